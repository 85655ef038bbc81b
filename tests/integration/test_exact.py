"""`exact`: the text with a drafter is the target's own, whatever its type; and where that cannot be had, it is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dflash_gguf import Session, environment
from dflash_gguf.errors import SessionError
from dflash_gguf.runner import exact
from dflash_gguf.runner.exact import FAR, N_TEXT, PIECES, Widths, compare, prepare
from dflash_gguf.runner.settings import Settings

TESTS = Path(__file__).parents[1]


def in_a_process_of_its_own(*words, timeout=240):
    surroundings = {name: value for name, value in os.environ.items() if name != environment.TILED_PRODUCTS}
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env=surroundings | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    done = in_a_process_of_its_own(TESTS / "exact_cases.py", tmp_path_factory.mktemp("exact"))
    assert done.returncode == 0, done.stderr[-2000:]
    return {found["type"]: found for found in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", ["Q8_0", "Q4_K_M", "Q6_K", "F16"])
def test_texts_with_and_without_drafter_are_equal(name, outcomes):
    """At every depth, with filters, penalties and grammars, request after request; or exactness is refused."""
    found = outcomes[name]
    if "refused" in found:
        assert "does not leave the logits of single ones" in found["refused"]
        assert name == "F16" or sys.platform == "darwin", "measured: quantized targets are exact on a CPU"
        return
    assert found["different"] == []
    assert found["verify"] > 1
    assert found["accepted"] > 0
    assert found["texts"] > 15, "seeds and settings make texts of their own"


def test_long_texts_and_several_threads_are_exact_too(outcomes):
    """From 512 cells on a pass of one row sums a part a thread, in a cache of one type."""
    assert outcomes["far"] == {"type": "far", "verify": 8, "different": [], "texts": 4}


LATE = """
import sys
from dflash_gguf import Session
from dflash_gguf.errors import SessionError
options = {"n_ctx": 64, "n_threads": 1}
with Session(sys.argv[1], **options) as session:
    list(session.generate([7, 8, 9], max_tokens=2))
try:
    Session(sys.argv[1], exact=True, **options)
except SessionError as error:
    print(error)
"""

EARLY = """
import os, sys
from dflash_gguf import Session
options = {"n_ctx": 64, "n_threads": 1}
for exact in (True, False, True):
    with Session(sys.argv[1], exact=exact, **options) as session:
        list(session.generate([7, 8, 9], max_tokens=2))
print(os.environ["GGML_CPU_TILED_MM"])
"""


def test_after_a_pass_with_tiled_products_it_is_too_late(tiny_target):
    done = in_a_process_of_its_own("-c", LATE, tiny_target)
    assert done.stdout.startswith("`exact` comes too late"), done.stderr[-2000:]
    assert "in a process of its own, or set GGML_CPU_TILED_MM=0" in done.stdout


def test_after_an_exact_session_all_others_are_possible(tiny_target):
    assert in_a_process_of_its_own("-c", EARLY, tiny_target).stdout == "0\n"


@pytest.fixture
def fresh(monkeypatch):
    """A process in which nothing native has run."""
    monkeypatch.delenv(environment.TILED_PRODUCTS, raising=False)
    monkeypatch.setattr(exact._Process, "tiled_off", None)
    yield
    os.environ.pop(environment.TILED_PRODUCTS, None)


def test_what_exactness_sets(fresh):
    found = prepare(Settings(n_ubatch=512))
    assert (found.flash_attention, found.n_ubatch, found.placement.use_extra_bufts) == ("on", PIECES[0], False)
    assert max(PIECES) < 64
    assert prepare(Settings(n_ubatch=8)).n_ubatch == 8
    assert os.environ[environment.TILED_PRODUCTS] == "0"
    assert found.draft_placement(None).use_extra_bufts, "what a drafter rounds decides nothing"
    assert (found.type_k, found.type_v) == ("f16", "bf16")
    for types in (("q8_0", "q8_0"), ("f16", "q8_0"), ("bf16", "bf16")):
        kept = prepare(Settings(type_k=types[0], type_v=types[1]))
        assert (kept.type_k, kept.type_v) == types


def test_flash_attention_is_not_to_be_off(fresh):
    with pytest.raises(SessionError, match=r"`exact` needs flash attention.*got 'off', expected on or auto"):
        prepare(Settings(flash_attention="off"))
    assert environment.TILED_PRODUCTS not in os.environ


def test_a_process_that_has_run_a_target_is_refused_before_anything_is_loaded(fresh, monkeypatch, tiny_target):
    monkeypatch.setattr(exact._Process, "tiled_off", False)
    with pytest.raises(SessionError, match="`exact` comes too late"):
        Session(tiny_target, exact=True, n_ctx=64)
    monkeypatch.setattr(exact._Process, "tiled_off", True)
    assert prepare(Settings())


class Rounding:
    """A target whose logits depend on the width of a pass from some width on, and in longer prompt pieces.

    ``far``: from which width on at position 512 and behind. ``forgets``: it can go back to the beginning only.
    """

    def __init__(
        self, widest: int, longest: int = 10**6, n_outputs: int = 8, *, memory: bool = False, far: int = 10**6
    ) -> None:
        self.widest, self.longest, self.n_outputs, self.memory, self.far = widest, longest, n_outputs, memory, far
        self.n, self.rows, self.tainted = 0, [], 0
        self.n_ctx, self.forgets, self.marked = 1024, False, None

    def rewind(self, pos):
        self.n, self.tainted = 0 if self.forgets else pos, 0
        return self.n

    def mark(self, pos):
        assert pos == self.n
        self.marked = pos

    def decode(self, tokens, pos, n_logits):
        assert pos == self.n
        self.n += len(tokens)
        limit = self.widest if len(tokens) <= self.n_outputs else self.longest
        limit = min(limit, self.far) if pos >= 512 else limit
        off = len(tokens) > limit
        self.tainted += off and self.memory
        self.rows = [
            float(pos + i + (1 if (off and not self.memory) or self.tainted else 0)) for i in range(len(tokens))
        ]
        self.rows = self.rows[len(tokens) - n_logits :]
        self.first = len(tokens) - n_logits

    def logits(self, row):
        return np.array([self.rows[row - self.first]], np.float32)


IDS = list(range(N_TEXT))


@pytest.mark.parametrize("memory", [False, True], ids=["at once", "in the cache"])
@pytest.mark.parametrize(("widest", "verify", "piece"), [(2, 2, 2), (3, 3, 2), (7, 7, 4), (8, 8, 48), (100, 8, 48)])
def test_the_widest_identical_pass_is_found(widest, verify, piece, memory):
    target = Rounding(widest, memory=memory)
    assert compare(target, IDS, 8, 48) == Widths(verify, piece)
    assert target.n == 0, "the cache is left empty"


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize(("far", "verify", "piece"), [(2, 2, 2), (6, 6, 4), (8, 8, 8), (100, 8, 48)])
def test_far_from_the_beginning_widths_are_compared_again(far, verify, piece, forgets):
    target = Rounding(8, far=far)
    target.forgets = forgets
    assert compare(target, IDS, 8, 48) == Widths(verify, piece)
    assert target.marked == FAR
    target.n_ctx = 512
    assert compare(target, IDS, 8, 48) == Widths(8, 48), "where the context ends before, that is as far as it goes"


@pytest.mark.parametrize(("longest", "piece"), [(48, 48), (47, 32), (31, 16), (15, 8), (9, 8)])
def test_the_longest_identical_piece_is_found(longest, piece):
    assert compare(Rounding(8, longest), IDS, 8, 48).piece == piece


def test_where_no_width_is_identical_drafting_is_refused_and_plain_decoding_is_not():
    with pytest.raises(SessionError, match=r"a pass of 2 tokens does not leave the logits of single ones.*-dev none"):
        compare(Rounding(1, 0), IDS, 8, 48)
    assert compare(Rounding(1, 0, 1), IDS, 1, 48) == Widths(1, 1)
    assert compare(Rounding(1, 3, 1), IDS, 1, 48) == Widths(1, 2), "a piece may be cut to any shorter one"


def test_a_session_says_so(fresh, monkeypatch, tiny_target, tiny_drafter):
    monkeypatch.setattr(exact._Probe, "same", lambda *_: False)
    monkeypatch.setattr(exact, "_piece_holds", lambda *_: True)
    with pytest.raises(SessionError, match="`exact` cannot be had here") as raised:
        Session(tiny_target, tiny_drafter, exact=True, n_ctx=64, n_threads=1)
    assert "use a target in Q8_0 or a K-quant" in str(raised.value)
    with Session(tiny_target, exact=True, n_ctx=64, n_threads=1) as session:
        assert session.widths == Widths(1, 48)
        assert "exact: prompt pieces of up to 48" in str(session.widths)
    assert str(Widths(8, 48)).startswith("exact: passes of 1 to 8 tokens and prompt pieces of up to 48")


def test_the_depth_is_capped_by_the_widest_identical_pass(fresh, monkeypatch, tiny_target, tiny_drafter):
    from dflash_gguf.runner import assembly

    monkeypatch.setattr(assembly, "compare", lambda *_: Widths(4, 16))
    options = {"exact": True, "depth": "fixed", "n_ctx": 64, "n_threads": 1}
    with Session(tiny_target, tiny_drafter, **options) as session:
        assert session.n_max == 3
        assert session.widths == Widths(4, 16)
    with pytest.raises(SessionError, match=r"`spec_draft_n_min`: got 4, expected at most the 3 that are drafted"):
        Session(tiny_target, tiny_drafter, spec_draft_n_min=4, **options)
