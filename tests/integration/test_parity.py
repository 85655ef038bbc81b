"""Every family of the zoo through our converter, beside what llama.cpp's own made of it (``tests/golden/families``).

Keys with their types and values, tensors with their shapes, types and bytes, and the order of both must agree,
but for the rows of ``DIFFERENCES``: each says where, what upstream writes, what we write, and why. A row that no
longer applies fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zoo
from golden.generate import FAMILIES, PRE_TOKENIZER, TYPES, digest, read
from zoo.files import floats
from zoo.parts import target_tables

from dflash_gguf.convert import api
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.convert.vocab import keys as vocabulary

if TYPE_CHECKING:
    from pathlib import Path

ABSENT = "absent"
LATER = "in another place"


@dataclass(frozen=True, slots=True)
class Difference:
    """``item`` is a key, or a tensor; ``families`` is where it differs; the values are those of both files.

    ``ours`` may be `ABSENT`, and of a tensor `TargetsOwn`; `LATER` on both sides is an order that differs.
    """

    item: str
    families: tuple[str, ...]
    upstream: Any
    ours: Any
    reason: str


@dataclass(frozen=True, slots=True)
class TargetsOwn:
    """A tensor that is the target's, bit for bit: ``embed_tokens.weight`` or ``lm_head.weight``."""

    name: str


class Llama3Factors:
    """``rope_freqs.weight`` of the zoo's Llama draft: a divisor of the frequency of each rotated pair."""


UNSAID = (
    "zlab-v1-old", "zlab-v1-llama3", "specforge-v1", "block-fp8-v1", "mimo-v1", "muse-assistant", "speculators-v1",
    "speculators-v1-full", "nemo-2", "nemo-2-flat", "deepspec", "deepspec-v1", "deepspec-inherited", "deepspec-experts",
    "specforge-dspark", "radixark", "lfm2-dspark", "ling-dspark", "speculators-dspark", "gemma4-dspark",
    "deepseek4",
)  # fmt: skip
MIXED = ("zlab-v1-new", "zlab-v1-gemma4", "minimax-v1")
COPIED = ("minimax-v1", "speculators-v1", "speculators-v1-full", "deepspec", "deepspec-v1", "ling-dspark")
EMBEDDINGS, HEAD = TargetsOwn("embed_tokens.weight"), TargetsOwn("lm_head.weight")
INHERITED = ("deepspec-inherited", "deepspec-experts")

NEVER_CAUSAL = "llama.cpp's default is written out, so that a reader need not know it (common/speculative.cpp)"
HALF_CAUSAL = (
    "z-lab's model.py makes sliding layers causal and full ones not; llama.cpp holds one answer for all layers "
    "(common/speculative.cpp), and it is written with a note"
)
ALL_CAUSAL = (
    "every layer slides and `sliding_window_non_causal` is false: causal, as speculators' config.py defines it; "
    "llama.cpp's default is not"
)
ONE_TABLE = (
    "equal to the target's, whose own is used; alone it would become the head as well, in the place of the target's "
    "(src/models/dflash.cpp, load_arch_tensors)"
)
SIZE = "follows from the tensors that are written"

DIFFERENCES: tuple[Difference, ...] = (
    Difference("dflash.attention.causal", UNSAID, ABSENT, False, NEVER_CAUSAL),
    Difference("dflash.attention.causal", MIXED, ABSENT, False, HALF_CAUSAL),
    Difference("dflash.attention.causal", ("speculators-dspark-full",), ABSENT, True, ALL_CAUSAL),
    Difference(
        "dflash.block_size",
        ("nemotron-v1",),
        ("UINT32", 16),
        ("UINT32", 8),
        "the config states none; llama.cpp's converter guesses 16, its authors serve 8, which `--block-size` gave",
    ),
    Difference("token_embd.weight", (*COPIED, "speculators-dspark", "gemma4-dspark"), EMBEDDINGS, ABSENT, ONE_TABLE),
    Difference("output.weight", ("gemma4-dspark",), EMBEDDINGS, ABSENT, ONE_TABLE),
    Difference(
        "output.weight",
        ("nemotron-v1", "nemotron-dspark"),
        ABSENT,
        HEAD,
        "the embeddings differ from the target's in the mask's row, and llama.cpp makes them the head where none is "
        "in the file (src/models/dflash.cpp, load_arch_tensors; PR 27804 saw 0.36 to 0.55 accepted)",
    ),
    Difference("general.size_label", COPIED, "1.5M", "1.4M", SIZE),
    Difference("general.size_label", ("speculators-dspark",), "1.6M", "1.4M", SIZE),
    Difference("general.size_label", ("gemma4-dspark",), "1.6M", "1.3M", SIZE),
    Difference("general.size_label", ("nemotron-v1",), "1.5M", "1.6M", SIZE),
    Difference("general.size_label", ("nemotron-dspark",), "1.6M", "1.7M", SIZE),
    Difference(
        "rope_freqs.weight",
        ("zlab-v1-llama3",),
        ABSENT,
        Llama3Factors(),
        "conversion/base.py leaves llama3 scaling to the class, and the dflash one does not write it; "
        "src/models/dflash.cpp reads it",
    ),
    Difference(
        "dflash.embedding_scale",
        ("zlab-v1-gemma4",),
        ABSENT,
        ("FLOAT32", 16.0),
        "Gemma's embedding module multiplies by the root of the hidden size, and z-lab's model.py calls that module; "
        "llama.cpp reads the plain rows",
    ),
    Difference(
        "dflash.rope.dimension_count",
        INHERITED,
        ("UINT32", 16),
        ABSENT,
        "copied from the target's config; training turns whole heads (DeepSpec issue 71, PR 72: 2.53 accepted, 1.4 "
        "with the key)",
    ),
    Difference(
        "order of dflash.rope.dimension_sections",
        INHERITED,
        LATER,
        LATER,
        "conversion/base.py writes the config's copied `mrope_section` first, then the draft's own over it",
    ),
    Difference(
        "dflash.expert_count",
        ("deepspec-experts",),
        ("UINT32", 256),
        ABSENT,
        "copied from the target: it has no experts",
    ),
    Difference(
        "dflash.expert_used_count", ("deepspec-experts",), ("UINT32", 8), ABSENT, "copied from the target as well"
    ),
    *(
        Difference(
            f"dflash.{key}",
            ("deepseek4",),
            ABSENT,
            True,
            "llama.cpp's default is written out (common/speculative.cpp); conversion/deepseek.py leaves it to that",
        )
        for key in ("sample_from_anchor", "has_confidence_head")
    ),
    Difference(
        "order of tokenizer.chat_template",
        ("deepseek4",),
        LATER,
        LATER,
        "conversion/deepseek.py writes a template of its own before all else, then the target's over it",
    ),
    *(
        Difference(
            f"dflash.{key}",
            ("speculators-v1", "speculators-v1-full"),
            False,
            ABSENT,
            "upstream refuses the label; its DSpark class, which takes the same layout, writes what only DSpark reads",
        )
        for key in ("sample_from_anchor", "has_confidence_head")
    ),
)


@pytest.fixture(autouse=True)
def known_pre_tokenizer(monkeypatch):
    """The generator's one change, made here as well: a tiny vocabulary's digest is in no table."""
    monkeypatch.setattr(vocabulary, "recognise", lambda *_: PRE_TOKENIZER)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Checkpoint and target of a family, written once."""
    made: dict[str, tuple[Path, Path]] = {}

    def write(name):
        if name not in made:
            parent = tmp_path_factory.mktemp(name)
            made[name] = zoo.write_checkpoint(name, parent), zoo.write_target_folder(name, parent / "target")
        return made[name]

    return write


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_the_file_is_upstreams_but_for_the_table(tmp_path, folders, name, kind):
    golden = json.loads((FAMILIES / f"{name}.json").read_text())[kind]
    checkpoint, target = folders(name)
    overrides = Overrides(**zoo.FAMILIES[name].options)
    result = api.convert(checkpoint, target, kind, tmp_path / "ours.gguf", overrides=overrides)
    ours = read(result.path)
    found = compare(golden["keys"], ours["keys"]) | compare(golden["tensors"], ours["tensors"])
    assert found == allowed(name, kind)


def test_the_table_names_families_of_the_zoo_and_none_twice_for_one_item():
    pairs = [(row.item, name) for row in DIFFERENCES for name in row.families]
    assert len(pairs) == len(set(pairs))
    assert {name for _, name in pairs} <= set(zoo.FAMILIES)


def compare(theirs: list[Any], ours: list[Any]) -> dict[str, tuple[Any, Any]]:
    """Item -> both values, for each one that differs; values are all that follows the name."""
    left, right = ({row[0]: plain(row) for row in rows} for rows in (theirs, ours))
    found = {
        item: (left.get(item, ABSENT), right.get(item, ABSENT))
        for item in {**left, **right}
        if left.get(item, ABSENT) != right.get(item, ABSENT)
    }
    shared = [item for item in left if item in right]
    moved = displaced(shared, [item for item in right if item in left])
    return found | {f"order of {item}": (LATER, LATER) for item in moved}


def plain(row: list[Any]) -> Any:
    """What is compared: a key's value with its type, a tensor's shape, type and digest."""
    return tuple(row[1:]) if len(row) > 3 else row[2] if row[1] in ("STRING", "BOOL") else (row[1], row[2])


def displaced(theirs: list[str], ours: list[str]) -> list[str]:
    """The fewest items whose removal leaves both lists in one order (taken one by one from the front)."""
    moved = []
    while theirs != ours:
        i = next(i for i, pair in enumerate(zip(theirs, ours, strict=True)) if pair[0] != pair[1])
        ahead, behind = ours.index(theirs[i]) - i, theirs.index(ours[i]) - i
        item = theirs[i] if ahead >= behind else ours[i]
        moved.append(item)
        theirs, ours = ([other for other in rows if other != item] for rows in (theirs, ours))
    return moved


def allowed(name: str, kind: str) -> dict[str, tuple[Any, Any]]:
    """The table's rows for one family, their tensors looked up."""
    rows = [row for row in DIFFERENCES if name in row.families]
    return {row.item: (value(name, kind, row.upstream), value(name, kind, row.ours)) for row in rows}


def value(name: str, kind: str, stated: Any) -> Any:
    """A stated value as `compare` has it."""
    dims = zoo.FAMILIES[name].dims
    if isinstance(stated, TargetsOwn):
        array = floats(target_tables(dims))[stated.name].values
        return list(array.shape[::-1]), kind, digest(floats({"": array}, kind)[""].data)
    if isinstance(stated, Llama3Factors):
        factors = llama3_factors(zoo.content(name).config["rope_scaling"], dims.rope_base, dims.head_dim)
        return [dims.head_dim // 2], "F32", digest(factors.astype("<f4").tobytes())
    return stated


def llama3_factors(scaling: dict[str, Any], base: float, head_dim: int) -> np.ndarray:
    """Llama 3.1's divisors: 1 for short waves, ``factor`` for long ones, a blend between."""
    waves = 2 * np.pi * base ** (np.arange(0, head_dim, 2) / head_dim)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    blend = np.clip((scaling["original_max_position_embeddings"] / waves - low) / (high - low), 0, 1)
    return 1 / ((1 - blend) / scaling["factor"] + blend)
