"""A `Target` from its Hugging Face folder: the config, the tokenizer, and the tables of its safetensors.

Comes in: a folder with ``config.json`` and ``tokenizer.json``. Goes out: a `Target`. Reads no weights; the
folder may be without any, or they may lie elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.architectures import PASS_THE_GGUF, REFUSED, architecture_of, merged
from dflash_gguf.convert.config import UINT_LIMIT
from dflash_gguf.convert.strict_json import load_object
from dflash_gguf.convert.target import EMBEDDING, EXPECTED, HEAD, Target, file_title
from dflash_gguf.convert.target_tensors import folder_tensors
from dflash_gguf.convert.vocab.files import TOKENIZER, read_files
from dflash_gguf.convert.vocab.keys import ROLE_KEYS, tokenizer_table
from dflash_gguf.errors import CheckpointError, PairError
from dflash_gguf.facts import TargetFacts
from dflash_gguf.padding import padding
from dflash_gguf.pair import taps_unexposed
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from dflash_gguf.convert.encode import KeyValue
    from dflash_gguf.files import File

CONFIG: Final = "config.json"
GENERATION: Final = "generation_config.json"
HIDDEN_SIZE: Final = ("hidden_size", "n_embd", "dim")
LAYERS: Final = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
LAYER_LISTS: Final = ("layers_block_type", "hybrid_override_pattern")
ENDS: Final = ("eos", "eot", "eom")


def folder_target(folder: Path, *, called: str = "", shards: Mapping[str, File] | None = None) -> Target:
    """Read the folder; raises `CheckpointError`, or `PairError` when nothing can be done with such a target.

    ``called`` stands for the folder in messages; ``shards`` are its safetensors by name when they lie elsewhere.
    """
    shown = called or str(folder)
    for name in (CONFIG, TOKENIZER):
        if not (folder / name).is_file():
            raise CheckpointError(f"the target `{shown}` has no {name}", expected=EXPECTED)
    config = load_object(folder / CONFIG)
    architecture, flat = architecture_of(config), merged(config)
    if architecture.vocabulary == REFUSED:
        raise PairError(f"the target `{shown}` cannot be used: {taps_unexposed(architecture.name)}")
    size = _integer(flat, ("vocab_size",))
    tokenizer = tokenizer_table(read_files(folder, config), architecture.vocabulary, size)
    tensors, names = folder_tensors(folder, shards)
    return Target(
        name=shown,
        title=file_title(folder_name(folder)),
        facts=_facts(architecture.name, flat, tokenizer, _generation(folder)),
        tokenizer=tokenizer,
        mrope=_mrope(config),
        tied=False if HEAD in names else _tied(flat, known=EMBEDDING in names),
        tensors=tensors,
    )


def _facts(
    name: str, config: Mapping[str, Any], tokenizer: Iterable[KeyValue], generation: Mapping[str, Any]
) -> TargetFacts:
    values = {pair.key: pair.value for pair in tokenizer}
    texts = values[Keys.TOKENS]
    tokens = texts if isinstance(texts, tuple) else ()
    ends = [values.get(ROLE_KEYS[role]) for role in ENDS]
    ends += [*_ids(config.get("eos_token_id")), *_ids(generation.get("eos_token_id"))]
    pads = [values.get(Keys.PADDING_TOKEN_ID), *_ids(config.get("pad_token_id"))]
    return TargetFacts(
        architecture=name,
        hidden_size=_required(config, HIDDEN_SIZE),
        n_layers=_layers(config),
        vocab_size=len(tokens),
        n_padded=padding(tokens),
        eos_token_ids=tuple(sorted({number for number in ends if isinstance(number, int)})),
        pad_token_ids=tuple(sorted({number for number in pads if isinstance(number, int)})),
    )


def _layers(config: Mapping[str, Any]) -> int:
    for name in LAYER_LISTS:
        value = config.get(name)
        if isinstance(value, (list, str)) and value:
            return len(value)
    return _required(config, LAYERS)


def _required(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    value = _integer(config, names)
    if value is None:
        raise CheckpointError(f"the target's config.json has no `{names[0]}`", remedy=PASS_THE_GGUF)
    return value


def _integer(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = config.get(name)
        if value is not None:
            if type(value) is not int or not 0 < value <= UINT_LIMIT:
                what = f"`{name}` in the target's config.json is {ascii(value)[:80]}"
                raise CheckpointError(what, expected=f"an integer from 1 to {UINT_LIMIT}")
            return value
    return None


def _ids(value: object) -> list[int]:
    return [number for number in (value if isinstance(value, list) else [value]) if type(number) is int and number >= 0]


def _generation(folder: Path) -> Mapping[str, Any]:
    path = folder / GENERATION
    return load_object(path) if path.is_file() else {}


def _mrope(config: Mapping[str, Any]) -> bool:
    """As llama.cpp's converter asks it, conversion/qwen.py (0.5.0)."""
    inner = config.get("text_config", config)
    rope = (inner.get("rope_parameters") or inner.get("rope_scaling")) if isinstance(inner, dict) else None
    return isinstance(rope, dict) and "mrope_section" in rope


def _tied(config: Mapping[str, Any], *, known: bool) -> bool | None:
    """Whether the head is the embeddings, when no head was found; ``known``: embeddings were.

    A config that says no has its head in a shard that is not here.
    """
    stated = config.get("tie_word_embeddings")
    if isinstance(stated, bool):
        return stated
    return True if known else None


def folder_name(folder: Path) -> str:
    """The folder's own name, or that of the repository in whose download cache it lies."""
    path = folder.absolute()
    if path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--"):
        return path.parent.parent.name.rpartition("--")[2]
    return path.name
