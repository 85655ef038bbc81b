"""A pair of safetensors folders, checked for what ``ollama create --experimental`` does with them.

Comes in: two folders, or the name of a model that ollama has and one folder. Goes out: a `Source`.
Source of the rules: ollama x/create and x/models/dflash (v0.33.0-rc2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.convert.architectures import merged
from dflash_gguf.convert.checkpoint import CONFIG, INDEX, load_checkpoint
from dflash_gguf.convert.described import Described, describe
from dflash_gguf.convert.strict_json import load_object
from dflash_gguf.errors import PairError, TemplateError
from dflash_gguf.facts import DFLASH2, DSPARK
from dflash_gguf.file_text import listed
from dflash_gguf.modelfile.content import SAFETENSORS, Source
from dflash_gguf.modelfile.gguf_pair import absolute
from dflash_gguf.modelfile.versions import MLX_PULL_REQUEST

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

SINGLE: Final = "model.safetensors"
WEIGHTS: Final = "model*.safetensors"
FEEDING: Final = ("glimmer", "laguna")
"""Parts of the `model_type` of targets that ollama's main branch can draft for in this lane."""
PACKED: Final = (".scales", ".weight_packed", ".qweight", ".weight_scale_inv", ".weight_scale")
"""Ends of the names of tensors that only quantized weights have."""


def is_checkpoint(path: Path) -> bool:
    """Whether ``path`` is a folder that holds a config, and so not GGUF files."""
    return path.is_dir() and (path / CONFIG).is_file() and not any(path.glob("*.gguf"))


def safetensors_pair(target: str | os.PathLike[str], draft: str | os.PathLike[str], *, from_model: bool) -> Source:
    """Read and check a pair; raises `PairError` or `TemplateError` when ollama would refuse or misuse it."""
    draft_path = absolute(draft)
    _check_weights(draft_path, "drafter")
    facts = describe(load_object(draft_path / CONFIG), str(draft_path))
    if facts.kind == DSPARK:
        raise PairError(
            f"`{draft_path}` is a DSpark drafter",
            expected="DFlash or DFlash 2",
            remedy="convert it with `dflash-gguf convert` and run it with llama-server",
        )
    if from_model:
        unchecked = f"the pair was not checked: `{target}` is in ollama's store"
        return _source(str(target), draft_path, facts, (unchecked, *_unsupported(facts, None)), from_model=True)
    target_path = absolute(target)
    if target_path.samefile(draft_path):
        raise PairError(f"the target and the drafter are the same folder, `{target_path.resolve()}`")
    _check_weights(target_path, "target")
    config = merged(load_object(target_path / CONFIG))
    wrong = mismatches(facts, config)
    if wrong:
        raise PairError(f"`{draft_path}` does not fit `{target_path}`: {'; '.join(wrong)}")
    return _source(str(target_path), draft_path, facts, _unsupported(facts, config), from_model=False)


def mismatches(facts: Described, target: Mapping[str, Any]) -> list[str]:
    """Everything in which a drafter does not fit a target, whose config is merged."""
    return [text for rule in RULES for text in rule(facts, target)]


def refuse_packed(folder: Path, flag: str) -> None:
    """Raise `PairError` when the weights are quantized already, which ollama does not do twice."""
    names = [name for name in load_checkpoint(folder).tensors if name.endswith(PACKED)]
    if names or load_object(folder / CONFIG).get("quantization"):
        raise PairError(
            f"`{flag}` of `{folder}`, whose weights are quantized already{f' ({listed(names)})' if names else ''}",
            remedy=f"leave `{flag}` out, or use the unquantized model",
        )


def _source(target: str, draft: Path, facts: Described, warnings: tuple[str, ...], *, from_model: bool) -> Source:
    return Source(SAFETENSORS, target, draft, from_model, facts.kind, facts.block_size, warnings)


def _check_weights(folder: Path, role: str) -> None:
    """The files that ollama reads: those of the index, else `model*.safetensors`, of which one set may be there."""
    if not is_checkpoint(folder):
        raise TemplateError(f"the {role} folder `{folder}`", expected=f"one with {CONFIG} and {WEIGHTS}")
    found = sorted(path.name for path in folder.glob(WEIGHTS))
    if not (folder / INDEX).is_file():
        if not found:
            raise TemplateError(
                f"the {role} folder `{folder}` holds no weights that ollama reads", expected=f"{INDEX} or {WEIGHTS}"
            )
        if SINGLE in found and len(found) > 1:
            raise TemplateError(
                f"the {role} folder `{folder}` holds two sets of weights",
                value=", ".join(found[:4]),
                remedy=f"remove `{SINGLE}` or the others",
            )
    load_checkpoint(folder)


def _unsupported(facts: Described, target: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What a released ollama does not run, though it creates it."""
    if facts.kind == DFLASH2:
        return (f"ollama creates this pair, and runs it only when it holds {MLX_PULL_REQUEST} (DFlash 2)",)
    kind = str((target or {}).get("model_type", ""))
    if target is None or any(name in kind for name in FEEDING):
        return ()
    return (
        f"ollama creates this pair, and runs a `{kind}` target with a drafter only when it holds {MLX_PULL_REQUEST}",
    )


def _mask(facts: Described, target: Mapping[str, Any]) -> Iterator[str]:
    if facts.mask_token_id is None:
        yield "the drafter's config has no `dflash_config.mask_token_id`"
        return
    size = _number(target, "vocab_size")
    if size is not None and facts.mask_token_id >= size:
        yield f"mask token {facts.mask_token_id} is not in the target's vocabulary of {size}"


def _taps(facts: Described, target: Mapping[str, Any]) -> Iterator[str]:
    if any(first >= second for first, second in zip(facts.taps, facts.taps[1:], strict=False)):
        yield f"`target_layer_ids` {list(facts.taps)} do not ascend"
    layers = _number(target, "num_hidden_layers")
    if layers is None:
        return
    if max(facts.taps) >= layers:
        yield f"the drafter reads layer {max(facts.taps)}, the target has {layers}"
    if facts.n_target_layers not in (None, layers):
        yield f"the drafter is for a target of {facts.n_target_layers} layers, this one has {layers}"


def _sizes(facts: Described, target: Mapping[str, Any]) -> Iterator[str]:
    for name, ours in (("hidden_size", facts.hidden_size), ("vocab_size", facts.vocab_size)):
        theirs = _number(target, name)
        if None not in (ours, theirs) and ours != theirs:
            yield f"`{name}` differs (target {theirs}, drafter {ours})"


RULES: Final[tuple[Callable[[Described, Mapping[str, Any]], Iterator[str]], ...]] = (_mask, _taps, _sizes)
"""Each compares one matter as ollama's loader does (x/models/dflash)."""


def _number(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if type(value) is int else None
