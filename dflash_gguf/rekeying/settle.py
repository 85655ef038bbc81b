"""What a file leaves out: read off its tensors, taken from the target, given by flag, or asked for.

Comes in: upstream's keys and tensors, the answers, the target. Goes out: all keys that llama.cpp needs.
A value is only assumed where llama.cpp assumes the same and the assumption is noted.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.pre_tokenizers import PRE_TOKENIZERS
from dflash_gguf.contract.vocabulary import BYTE_PAIRS
from dflash_gguf.convert.encode import KeyValue, scalar
from dflash_gguf.convert.spec import GEMMA
from dflash_gguf.convert.target import EMBEDDING, HEAD
from dflash_gguf.errors import GGUFError
from dflash_gguf.facts import DSPARK, drafter_kind
from dflash_gguf.file_text import quoted
from dflash_gguf.rekeying.answers import ALL, QUESTIONS, TAPS, Answers, Question, Sight
from dflash_gguf.rekeying.values import encoded
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.convert.target import Target
    from dflash_gguf.rekeying.forks import Fork
    from dflash_gguf.rekeying.keys import Names
    from dflash_gguf.rekeying.tensors import MovedTensor

TOKENIZER: Final = "tokenizer."
MODEL: Final = "dflash."
STRING_STARTS: Final = 4 + 8
"""Bytes before a text: its type's number and its length."""
FLAGS_A_LAYER: Final = ("array[bool]", "array[int32]", "array[uint32]")

Keyed = dict[str, KeyValue]


def settle(
    file: str,
    names: Names,
    tensors: Mapping[str, MovedTensor],
    answers: Answers,
    fork: Fork | None,
    target: Target | None,
) -> tuple[KeyValue, ...]:
    """All keys, in order; raises one `GGUFError` that names every flag which is missing. Adds to ``names.notes``."""
    keys = dict(names.keys)
    _read_off(keys, tensors, fork, names.notes)
    sight = _sight(keys, tensors)
    _drop_broken_pattern(keys, sight)
    _answered(file, keys, sight, answers, most=len(tensors))
    missing = [*names.asked, *_unanswered(keys, sight, asked=names.asked)]
    usages = [f"`{_what(question)}` (pass `{question.usage}`)" for question in missing]
    if target is None and not names.has_tokens:
        usages.append("its tokens (pass `--target`: the GGUF or the folder of its target)")
    pre = _unknown_pre(names)
    if target is None and names.has_tokens and pre:
        told = f"a `{Keys.TOKENIZER_PRE}` that llama.cpp knows, but {quoted(pre)}"
        usages.append(f"{told} (pass `--target`: the GGUF or the folder of its target)")
    if usages:
        raise GGUFError(f"`{file}` does not say {', '.join(usages)}")
    _assumed(keys, tensors, fork, target, names.notes)
    if target is not None and not names.has_tokens:
        keys = _with_tokenizer(keys, target, names.notes)
    elif pre is not None:
        _with_pre(keys, target, names.notes)
    return _ordered(keys, names)


def _unknown_pre(names: Names) -> str | None:
    """``tokenizer.ggml.pre`` of byte pairs where llama.cpp does not know it, empty where none is named; else None."""
    if _text_of(names.keys.get(Keys.TOKENIZER_MODEL)) != BYTE_PAIRS:
        return None
    pre = _text_of(names.keys.get(Keys.TOKENIZER_PRE))
    return None if pre in PRE_TOKENIZERS else pre


def _text_of(pair: KeyValue | None) -> str:
    """A text that was copied as it is; empty for anything else."""
    if pair is None or pair.type != "string":
        return ""
    return pair.raw[STRING_STARTS:].decode("utf-8", "replace")


def _with_pre(keys: Keyed, target: Target | None, notes: list[str]) -> None:
    """The target's way to cut text in the place of one that is unknown or not named."""
    if target is None:
        notes.append(f"`{Keys.TOKENIZER_PRE}` is missing, llama.cpp assumes `default`: pass `--target` to take its own")
        return
    theirs = next((pair for pair in target.tokenizer if pair.key == Keys.TOKENIZER_PRE), None)
    if theirs is not None:
        keys[Keys.TOKENIZER_PRE] = theirs
        notes.append(f"`{Keys.TOKENIZER_PRE}` is taken from `{target.name}`")


def _what(question: Question) -> str:
    return "dflash.target_layer_ids" if question is TAPS else question.key


def _number(keys: Keyed, key: str) -> int:
    value = keys[key].value if key in keys else None
    return value if type(value) is int else 0


def _sight(keys: Keyed, tensors: Mapping[str, MovedTensor]) -> Sight:
    return Sight(drafter_kind(tensors), _number(keys, Keys.SLIDING_WINDOW) > 0, Keys.HYPER_CONNECTIONS in keys)


def _read_off(keys: Keyed, tensors: Mapping[str, MovedTensor], fork: Fork | None, notes: list[str]) -> None:
    """Sizes that the tensors have, where a fork's file does not state them, or llama.cpp would assume another."""
    hidden, kernel = _number(keys, Keys.EMBEDDING_LENGTH), _number(keys, Keys.CONV_KERNEL_SIZE)
    heads, kv_heads = _number(keys, Keys.HEAD_COUNT), _number(keys, Keys.HEAD_COUNT_KV)

    def size(name: str, axis: int) -> int:
        shape = tensors[name].shape if name in tensors else ()
        return shape[axis] if axis < len(shape) else 0

    kernel = kernel or size("blk.0.attn_conv_base", 1)
    usual = hidden // heads if heads and fork is None else 0
    found: dict[str, tuple[int, int]] = {
        Keys.KEY_LENGTH: (size("blk.0.attn_q_norm.weight", 0), usual),
        Keys.VALUE_LENGTH: (size("blk.0.attn_v.weight", 1) // kv_heads if kv_heads else 0, usual),
        Keys.CONV_KERNEL_SIZE: (kernel, 0),
        Keys.CONV_GROUP_SIZE: (2 * kernel * hidden // (size("blk.0.attn_conv_proj.weight", 1) or 1), 0),
        Keys.SELECTOR_RANK: (size("selector_hidden.weight", 1), 0),
    }
    for key, (value, assumed) in found.items():
        if key not in keys and value and value != assumed:
            keys[key] = encoded(key, value)
            notes.append(f"`{key}` is {value}, by the tensors")
    if drafter_kind(tensors) == DSPARK and Keys.HAS_CONFIDENCE_HEAD not in keys:
        keys[Keys.HAS_CONFIDENCE_HEAD] = encoded(Keys.HAS_CONFIDENCE_HEAD, "conf_proj.weight" in tensors)


def _drop_broken_pattern(keys: Keyed, sight: Sight) -> None:
    pattern = keys.get(Keys.SLIDING_WINDOW_PATTERN)
    if pattern is None or not sight.windowed or sight.stages:
        return
    if pattern.type not in FLAGS_A_LAYER or pattern.count != _number(keys, Keys.BLOCK_COUNT):
        del keys[Keys.SLIDING_WINDOW_PATTERN]


def _answered(file: str, keys: Keyed, sight: Sight, answers: Answers, *, most: int) -> None:
    """Puts what the user said in its place; ``most`` is how many layers there can be at all."""
    for question in QUESTIONS:
        value = getattr(answers, question.attribute)
        if value is None or question is TAPS:
            continue
        if question.attribute == "target_layers":
            value = [layer + 1 for layer in value]
        if question.attribute == "sliding_layers":
            if not sight.windowed:
                raise GGUFError(f"`{file}` has no sliding window", remedy=f"leave `{question.usage}` out")
            value = _pattern(value, min(_number(keys, Keys.BLOCK_COUNT), most), question)
        keys[question.key] = encoded(question.key, value)


def _pattern(layers: tuple[int, ...] | str, count: int, question: Question) -> list[bool]:
    if layers == ALL:
        return [True] * count
    outside = [layer for layer in layers if layer not in range(count)]
    if outside:
        raise GGUFError(f"`{question.usage}`", value=outside[0], expected=f"layers from 0 to {count - 1}, or {ALL}")
    return [layer in layers for layer in range(count)]


def _unanswered(keys: Keyed, sight: Sight, *, asked: list[Question]) -> list[Question]:
    settled = {question.key for question in asked}
    return [
        question
        for question in QUESTIONS
        if question.needed(sight) and question.key not in keys and question.key not in settled
    ]


def _assumed(
    keys: Keyed,
    tensors: Mapping[str, MovedTensor],
    fork: Fork | None,
    target: Target | None,
    notes: list[str],
) -> None:
    if Keys.CAUSAL not in keys:
        keys[Keys.CAUSAL] = encoded(Keys.CAUSAL, value=False)
        notes.append(f"`{Keys.CAUSAL}` is false, as llama.cpp assumes; `--causal` decides otherwise")
    gemma = fork is not None and (fork.scales_embeddings or _is_gemma(target))
    if gemma and Keys.EMBEDDING_SCALE not in keys and EMBEDDING not in tensors:
        scale = sqrt(_number(keys, Keys.EMBEDDING_LENGTH))
        keys[Keys.EMBEDDING_SCALE] = encoded(Keys.EMBEDDING_SCALE, scale)
        what = f"the target's embeddings are multiplied by {scale:g}, as Gemma's own are"
        notes.append(f"{what}; `--embedding-scale` decides otherwise")
    if EMBEDDING in tensors and HEAD not in tensors:
        what = f"llama.cpp takes the drafter's `{EMBEDDING}` for its head too, as there is no `{HEAD}`"
        notes.append(f"{what}: if the target has a head of its own, convert the checkpoint instead")
    _sections(keys, target, notes)


def _is_gemma(target: Target | None) -> bool:
    return target is not None and target.facts.architecture.startswith(GEMMA)


def _sections(keys: Keyed, target: Target | None, notes: list[str]) -> None:
    if Keys.ROPE_DIMENSION_SECTIONS in keys:
        return
    if target is None:
        notes.append(f"whether `{Keys.ROPE_DIMENSION_SECTIONS}` is missing depends on the target: pass `--target`")
    elif target.mrope:
        usual = _number(keys, Keys.EMBEDDING_LENGTH) // (_number(keys, Keys.HEAD_COUNT) or 1)
        head = _number(keys, Keys.KEY_LENGTH) or usual
        keys[Keys.ROPE_DIMENSION_SECTIONS] = encoded(Keys.ROPE_DIMENSION_SECTIONS, [head // 2, 0, 0, 0])


def _with_tokenizer(keys: Keyed, target: Target, notes: list[str]) -> Keyed:
    """The target's tokenizer in the place of what is there; the mask stays the drafter's."""
    mask = scalar(Keys.MASK_TOKEN_ID, "uint32", keys[Keys.MASK_TOKEN_ID].value)
    kept = {key: pair for key, pair in keys.items() if not key.startswith(TOKENIZER)}
    notes.append(f"the tokenizer is taken from `{target.name}`")
    return kept | {pair.key: pair for pair in target.tokenizer} | {mask.key: mask}


def _ordered(keys: Keyed, names: Names) -> tuple[KeyValue, ...]:
    """The file's own order; what was added to the model's keys comes after the last of them."""
    new = {key for key in keys if key not in names.keys and key.startswith(MODEL)}
    added = [pair for key, pair in keys.items() if key in new]
    rest = [pair for key, pair in keys.items() if key not in new]
    last = max((index for index, pair in enumerate(rest) if pair.key.startswith(MODEL)), default=len(rest) - 1)
    return (*rest[: last + 1], *added, *rest[last + 1 :])
