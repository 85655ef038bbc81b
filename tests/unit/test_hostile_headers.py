"""Sound GGUFs that state what no model has, in numbers that no model has: the answer is short, and comes soon."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import forks
import gguf_bytes as raw
import pytest
import tiny
import tiny_architectures
import zoo
from families import target_of
from gguf_parts import Parts, i32s

from dflash_gguf import gguf_parser, pair
from dflash_gguf.contract import tables
from dflash_gguf.contract.drafter import CONVERT_AGAIN, drafter_findings
from dflash_gguf.contract.target import target_findings
from dflash_gguf.convert import api
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.errors import GGUFError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.inspect import inspect
from dflash_gguf.rekeying.api import planned

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 5
MANY = 1 << 18
"""Entries of a list; in the square of it, minutes."""
MESSAGE = 1000
"""Characters that a finding may have."""


@pytest.fixture(scope="module")
def target() -> Path:
    return forks.small_files()["target"]


def drafter(folder: Path, **keys: bytes) -> Path:
    """A sound drafter with keys of ``dflash.`` replaced."""
    parts = Parts.of(forks.small_files()["native"])
    return parts.changed({f"dflash.{name}": value for name, value in keys.items()}).write(folder / "drafter.gguf")


def findings_of(target: Path, draft: Path) -> list[str]:
    """What the check says, which must be little and soon."""
    start = monotonic()
    texts = [str(finding) for finding in pair.check(target, draft).findings]
    assert monotonic() - start < SECONDS
    assert max(map(len, texts), default=0) < MESSAGE
    return texts


@pytest.mark.parametrize("taps", [(*range(MANY), MANY - 1), (7,) * 513, tuple(range(1, 514))])
def test_more_taps_than_layers(taps: tuple[int, ...], target: Path, tmp_path: Path) -> None:
    (text,) = [text for text in findings_of(target, drafter(tmp_path, target_layers=i32s(*taps))) if "entries" in text]
    assert f"`dflash.target_layers` does not have 1 to 512 entries (drafter {len(taps)})" in text


def test_taps_out_of_range_are_not_all_named(target: Path, tmp_path: Path) -> None:
    found = findings_of(target, drafter(tmp_path, target_layers=i32s(*range(10, 510))))
    assert any("(target 5 layers, drafter taps 10, 11, 12, 13, 14 and 495 more)" in text for text in found)


def test_a_tap_twice_is_named(target: Path, tmp_path: Path) -> None:
    found = findings_of(target, drafter(tmp_path, target_layers=i32s(1, 2, 3, 3, 1)))
    assert any("names a layer twice (drafter 3)" in text for text in found)


def test_a_fork_with_more_taps_than_layers(tmp_path: Path) -> None:
    key = "dflash-draft.dflash.target_layer_ids"
    parts = Parts.of(forks.small_files()["buun"]).changed({key: i32s(*range(MANY))})
    with pytest.raises(GGUFError, match=rf"entries of key `{key}`: got {MANY}, expected at most 512"):
        planned(parts.write(tmp_path / "fork.gguf"))


@pytest.mark.parametrize(
    ("arch", "key"), [("qwen35", "rope.dimension_sections"), ("deepseek4", "attention.compress_ratios")]
)
def test_a_targets_long_lists_are_not_decoded(
    arch: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_architectures.write(tmp_path / "t.gguf", arch, extra_keys={f"{arch}.{key}": [4] * MANY})
    header = read_header(path)
    decoded: list[int] = []
    original = type(header).integers

    def integers(self: Any, name: str) -> list[int]:
        decoded.append(self.keys[name].count)
        return original(self, name)

    monkeypatch.setattr(type(header), "integers", integers)
    assert any(f"`{arch}.{key}` does not have 1 to" in str(finding) for finding in target_findings(header))
    assert max(decoded, default=0) <= 512


def test_more_types_than_tokens_are_not_decoded(target: Path, tmp_path: Path) -> None:
    types = i32s(*[1] * MANY)
    path = Parts.of(target).changed({"tokenizer.ggml.token_type": types}).write(tmp_path / "t.gguf")
    assert findings_of(path, forks.small_files()["native"]) == []


def test_many_heads_are_not_all_named(tmp_path: Path) -> None:
    heads = list(range(1, 401))
    extra = {"llama.block_count": 400, "llama.attention.head_count": heads, "llama.attention.head_count_kv": heads}
    path = tiny_architectures.write(tmp_path / "t.gguf", "llama", extra_keys=extra)
    found = [str(finding) for finding in target_findings(read_header(path))]
    assert any("(target 1, 2, 3, 4, 5 and 395 more)" in text for text in found)
    assert max(map(len, found)) < MESSAGE


@pytest.mark.parametrize("length", [65, 1 << 22])
def test_an_architecture_that_is_no_name(length: int, target: Path, tmp_path: Path) -> None:
    path = Parts.of(target).changed({"general.architecture": raw.string("x" * length)}).write(tmp_path / "t.gguf")
    native = forks.small_files()["native"]
    assert any("target's `general.architecture` is no name of one" in text for text in findings_of(path, native))
    assert findings_of(target, path) == [
        f"the drafter's `general.architecture` is no name of one (drafter none); {CONVERT_AGAIN}"
    ]
    with pytest.raises(GGUFError) as caught:
        planned(path)
    assert len(str(caught.value)) < MESSAGE
    assert max(len(fact.key) for fact in inspect(path).dims.values()) < MESSAGE


def test_long_names_of_keys_are_cut(tmp_path: Path) -> None:
    name = "x" * 60_000
    twice = tmp_path / "twice.gguf"
    twice.write_bytes(raw.gguf(((name, raw.u32(1)), (name, raw.u32(2))), (), b""))
    with pytest.raises(GGUFError) as caught:
        read_header(twice)
    assert len(str(caught.value)) < MESSAGE
    parts = Parts.of(forks.small_files()["buun"])
    more = {f"dflash-draft.{name}{number}": raw.u32(1) for number in range(9)}
    notes = planned(parts.changed(more).write(tmp_path / "fork.gguf")).notes
    assert max(map(len, notes)) < MESSAGE
    assert any(" and 5 more" in note for note in notes)


def test_strings_are_walked_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = (("a", raw.strings("x", "y")), ("b", raw.strings("x", "y")))
    monkeypatch.setattr(gguf_parser, "STRINGS_LIMIT", 3)
    with pytest.raises(GGUFError, match="number of strings in arrays: got 4, expected at most 3"):
        read_header(raw.Memory(raw.gguf(keys, (), b"")))


def test_a_table_of_rows_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "NUMBERS_LIMIT", 1)
    path = tiny_architectures.write(tmp_path / "t.gguf", "deepseek4")
    assert any("tid2eid.weight` has more than 1 numbers" in str(found) for found in target_findings(read_header(path)))


def test_too_many_tokens_are_not_compared(target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dflash_gguf.facts.TOKEN_LIMIT", 10)
    monkeypatch.setattr("dflash_gguf.contract.vocabulary.TOKEN_LIMIT", 10)
    monkeypatch.setattr("dflash_gguf.gguf_header.GGUFHeader.strings", lambda *_: pytest.fail("decoded"))
    draft = tiny.write_drafter(tmp_path / "d.gguf", kind="dflash", **forks.SMALL | {"vocab": 299})
    assert any("has more than 10 entries" in text for text in findings_of(target, draft))


def test_a_block_of_a_drafter_with_deepseek_v4s_layers_has_room(tmp_path: Path) -> None:
    """Its graph is planned by another rule than those of the other DSpark drafters."""
    checkpoint = zoo.write_checkpoint("deepseek4", tmp_path)
    options = Overrides(**zoo.FAMILIES["deepseek4"].options)
    path = api.convert(checkpoint, target_of("deepseek4"), "BF16", tmp_path / "d.gguf", overrides=options).path
    long = Parts.of(path).changed({"dflash.block_size": raw.u32(1024)}).write(tmp_path / "long.gguf")
    assert [finding for finding in drafter_findings(read_header(long)) if "graph" in finding.what] == []


@pytest.mark.parametrize("number", [(1 << 32) - 1, 1 << 24, 1 << 16])
@pytest.mark.parametrize("which", ["target", "native"])
def test_no_number_of_a_file_is_counted_up_to(which: str, number: int, tmp_path: Path) -> None:
    parts = Parts.of(forks.small_files()[which])
    keys = [key for key, value in parts.keys.items() if value[:4] == raw.u32(0)[:4]]
    assert len(keys) > 5
    for changed in ([key] for key in keys):
        path = parts.changed(dict.fromkeys(changed, raw.u32(number))).write(tmp_path / "changed.gguf")
        pair_of = (path, forks.small_files()["native"]) if which == "target" else (forks.small_files()["target"], path)
        findings_of(*pair_of)
