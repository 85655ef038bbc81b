"""Whatever a fork's file leaves out or holds, re-keying it twice is re-keying it once, or it is refused."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import forks
import gguf_bytes as raw
import pytest
import tiny
from gguf_bytes import Memory
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf.convert.encode import pad
from dflash_gguf.convert.target import load_target
from dflash_gguf.errors import DflashError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.rekeying.answers import Answers
from dflash_gguf.rekeying.plan import plan_rekey

SIZES = {"hidden": 64, "ffn": 64, "heads": 2, "kv_heads": 1, "head_dim": 32, "vocab": 300}
SHAPE = ("block_count", "embedding_length", "feed_forward_length", "head_count", "head_count_kv", "architecture")
"""Ends of the keys that no flag stands for."""
HELD = (
    "tokenizer.",
    "dflash-draft.attention.sliding",
    "qwen35-dflash-draft.attention.sliding",
    "dspark.attention.sliding",
)
VOCABULARY = ("tokenizer.ggml.tokens", "tokenizer.ggml.model", "tokenizer.ggml.mask_token_id")
"""Without one of these the tokenizer is the target's; with a part of it missing the file is broken."""
ALL = Answers(
    block_size=8,
    mask_token_id=7,
    target_layers=(0, 1, 2),
    sliding_layers="all",
    causal=True,
    sample_from_anchor=True,
    context_length=2048,
    rms_eps=1e-6,
    rope_theta=1e4,
)
"""An answer to everything that can be asked about a drafter with a window, if it is no DFlash 2."""
STYLES = {"buun": "dflash", "lucebox": "dspark", "prism": "dspark", "pulsar": "dflash2"}


@cache
def pair():
    """Style -> the header of such a fork's file; and their target."""
    headers = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for style, kind in STYLES.items():
            native = tiny.write_drafter(folder / "native.gguf", kind=kind, window=9, rank=16, top_k=4, **SIZES)
            fork = forks.write_fork(native, folder / f"{style}.gguf", forks.STYLES[style])
            headers[style] = read_header(fork)
        return headers, load_target(tiny.write_target(folder / "target.gguf", **SIZES))


def file_of(keys, tensors):
    """A file of these keys and rows; its weights are zeros."""
    rows = tuple(raw.tensor(t.name, t.shape, t.type, t.offset) for t in tensors)
    size = max(t.offset + t.nbytes for t in tensors)
    return Memory(raw.gguf(keys, rows, bytes(size)))


@settings(max_examples=150, deadline=None)
@given(style=st.sampled_from(sorted(STYLES)), chosen=st.integers(0, (1 << 24) - 1))
def test_twice_is_once_whatever_is_missing(style, chosen):
    headers, target = pair()
    header, answers = headers[style], replace(ALL, selector_top_k=4 if STYLES[style] == "dflash2" else None)
    loose = [key for key in header.keys if not key.endswith(SHAPE) and (key in VOCABULARY or not key.startswith(HELD))]
    missing = {key for index, key in enumerate(loose) if chosen >> index & 1}
    kept = tuple((key, header.raw(key)) for key in header.keys if key not in missing)
    old = read_header(file_of(kept, header.tensors.values()))

    first = plan_rekey(old, target, answers)
    assert first.changed
    new = read_header(Memory(first.header + bytes(first.n_bytes - len(first.header))))
    for given_again in (answers, Answers()):
        second = plan_rekey(new, target, given_again)
        assert not second.changed, second.changes
        assert second.n_bytes == new.size


@cache
def old_file(style):
    """A fork's file whose tensors all differ."""
    header = pair()[0][style]
    last = list(header.tensors.values())[-1]
    size = header.data_offset + last.offset + last.nbytes
    head = header.blob + bytes(header.data_offset - len(header.blob))
    return head + bytes(index % 251 for index in range(size - len(head)))


def check_plan(first, old, target, answers):
    """A plan that is made again, for the new file, changes nothing; and none changes a tensor's data."""
    new = written(first, old)
    assert not plan_rekey(read_header(Memory(new)), target, answers).changed
    assert tensor_bytes(new) == tensor_bytes(old)


@settings(max_examples=800, deadline=None)
@given(data=st.data())
def test_a_mutated_file_is_rekeyed_or_refused(data):
    headers, target = pair()
    style = data.draw(st.sampled_from(sorted(headers)))
    changed = bytearray(old_file(style))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(headers[style].blob) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=8))
        changed[place : place + len(piece)] = piece
    old, answers = bytes(changed), data.draw(st.sampled_from([ALL, Answers()]))
    try:
        first = plan_rekey(read_header(Memory(old)), target, answers)
    except DflashError:
        return
    check_plan(first, old, target, answers)


@pytest.mark.parametrize("style", sorted(STYLES))
def test_an_unchanged_file_is_rekeyed(style):
    answers = replace(ALL, selector_top_k=4 if STYLES[style] == "dflash2" else None)
    old, target = old_file(style), pair()[1]
    first = plan_rekey(read_header(Memory(old)), target, answers)
    assert first.changed
    check_plan(first, old, target, answers)


def written(decided, old):
    """The file that the plan describes."""
    if not decided.changed:
        return old[: decided.n_bytes]
    pieces = [old[t.source : t.source + t.nbytes] + bytes(pad(t.nbytes) - t.nbytes) for t in decided.tensors]
    return decided.header + b"".join(pieces)


def tensor_bytes(data):
    """The data of each tensor, in the file's order."""
    header = read_header(Memory(data))
    starts = [(header.data_offset + info.offset, info.nbytes) for info in header.tensors.values()]
    return [data[start : start + length] for start, length in starts]
