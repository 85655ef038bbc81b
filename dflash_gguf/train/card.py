"""The card of a trained drafter: for what, of which shape, trained on what, and what it accepts.

Comes in: what a training came to. Goes out: the text of a README, which holds no path of this machine.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dflash_gguf.convert.target_gguf import QUANT_SUFFIX, SHARD_SUFFIX
from dflash_gguf.errors import GGUFError
from dflash_gguf.facts import DFLASH2, TITLES, architecture
from dflash_gguf.file_text import shown
from dflash_gguf.ggml_types import type_name

if TYPE_CHECKING:
    from dflash_gguf.gguf_header import GGUFHeader
    from dflash_gguf.train.api import Trained
    from dflash_gguf.train.recipe import Recipe
    from dflash_gguf.train.settings import CorpusSettings
    from dflash_gguf.train.shape import Shape

TAGS: Final = ("dflash", "speculative-decoding")
_LICENCE: Final = "general.license"
_MINUTES_FROM: Final = 120
"""Seconds; fewer are told as such."""
_WHAT: Final = (
    "Trained by `dflash-gguf train` on the answers of the file that runs. It answers nothing alone: it "
    "proposes tokens, and the target keeps those that it would have written."
)


def card(
    trained: Trained,
    header: GGUFHeader,
    recipe: Recipe,
    settings: CorpusSettings,
    features: GGUFHeader | None = None,
) -> str:
    """Markdown with a front matter. ``features``: of the file whose features were learnt from, where it is another."""
    title = target_title(header)
    rows = (
        ("target", f"{title}, {architecture(header)}, {_mostly(header)}"),
        *((("features", f"another file's, {target_title(features)}, {_mostly(features)}"),) if features else ()),
        ("shape", _shape(trained.shape)),
        ("weights", f"{trained.n_weights / 1e6:.1f} million, BF16"),
        ("data", _data(trained, settings)),
        ("training", _training(trained, recipe)),
        ("held out", _held_out(trained)),
    )
    kind = TITLES[trained.shape.kind]
    parts = [
        _front_matter(header),
        f"# A {kind} drafter for {title}",
        _WHAT,
        "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]),
        "    dflash-gguf convert FOLDER --target TARGET.gguf\n    dflash-gguf run -m TARGET.gguf -md DRAFTER.gguf",
    ]
    return "\n\n".join(parts) + "\n"


def target_title(header: GGUFHeader) -> str:
    """By its file's name, without type and number of the shard."""
    stem = header.name.rsplit("/", 1)[-1].removesuffix(".gguf")
    return shown(QUANT_SUFFIX.sub("", SHARD_SUFFIX.sub("", stem)))


def _front_matter(header: GGUFHeader) -> str:
    """YAML, in which a JSON string is a string too."""
    rows = []
    with suppress(GGUFError):
        rows += [f"license: {json.dumps(header.string(_LICENCE))}"] if _LICENCE in header.keys else []
    return "\n".join(["---", *rows, "tags:", *(f"- {tag}" for tag in TAGS), "---"])


def _mostly(header: GGUFHeader) -> str:
    """The type of most of the values, in words."""
    sizes: dict[int, int] = {}
    for info in header.tensors.values():
        sizes[info.type] = sizes.get(info.type, 0) + info.nbytes
    return f"weights mostly {type_name(max(sizes, key=lambda kind: sizes[kind]))}"


def _shape(shape: Shape) -> str:
    text = (
        f"{shape.layers} layers, hidden {shape.hidden}, {shape.heads}/{shape.kv_heads} heads of {shape.head_dim}, "
        f"FFN {shape.ffn}, block {shape.block}, taps {list(shape.taps)} of {shape.target_layers}, "
        f"mask id {shape.mask_id}"
    )
    if shape.kind == DFLASH2:
        text += f", conv {shape.conv_kernel}/{shape.conv_group}, selector rank {shape.rank}, top_k {shape.top_k}"
    return f"{text}, rope {shape.rope_base:g}"


def _data(trained: Trained, settings: CorpusSettings) -> str:
    return (
        f"{trained.n_texts:,} answers, {trained.n_tokens:,} tokens, that the target wrote, of at most "
        f"{settings.max_tokens} tokens each; {settings.sampled:.0%} sampled at temperature {settings.temperature:g}, "
        "the others greedy"
    )


def _training(trained: Trained, recipe: Recipe) -> str:
    last = trained.points[-1]
    anew = "".join(f", on another course from step {step:,} on" for step in trained.restarts)
    return (
        f"{last.step:,} steps, {last.n_anchors:,} blocks, {_duration(last.seconds)}; AdamW {recipe.rate:g} with "
        f"cosine decay{anew}, {recipe.anchors} anchors an answer, {recipe.texts} answers a step, {recipe.precision}"
        + ("; layers began at random" if trained.random_layers else "; layers began as the target's last ones")
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < _MINUTES_FROM else f"{seconds / 60:.0f} minutes"


def _held_out(trained: Trained) -> str:
    measured, accepted = trained.measured, trained.points[-1].accepted
    text = (
        f"mean acceptance length {measured.counts.acceptance_length:.2f} in libllama, along {measured.n_texts} answers"
    )
    if accepted is None:
        return text
    rates = " ".join(f"{rate:.2f}".lstrip("0") for rate in accepted.per_position)
    return f"{text}; in PyTorch, blocks that are right up to position 1, 2, ...: {rates}"
