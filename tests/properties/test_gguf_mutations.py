"""Whatever happens to a GGUF, its reader either reads it or raises a GGUFError."""

from __future__ import annotations

from contextlib import suppress

import gguf
import numpy as np
import pytest
from gguf_bytes import Memory
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf.errors import GGUFError
from dflash_gguf.gguf_header import read_header


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A small file as gguf-py writes it."""
    path = tmp_path_factory.mktemp("gguf") / "real.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("small")
    writer.add_block_count(1)
    writer.add_rope_freq_base(1e4)
    writer.add_token_list(["a", "b", "c d"])
    writer.add_token_types([1, 1, 3])
    writer.add_add_bos_token(True)
    writer.add_tensor("token_embd.weight", np.ones((3, 32), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(32, np.float32))
    writer.add_tensor("blk.0.ffn_up.weight", np.ones((4, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def visit(data: bytes) -> None:
    """Read a header and decode everything in it."""
    header = read_header(Memory(data))
    for key, value in header.keys.items():
        if value.type_text == "array[string]":
            header.strings(key)
        elif value.type_text == "array[int32]":
            header.integers(key)
        elif value.type_text == "string":
            header.string(key)
        assert header.raw(key)
    for info in header.tensors.values():
        assert header.data_offset + info.offset + info.nbytes <= header.size


def test_the_whole_file_reads(real):
    visit(real)


def test_truncation_at_every_byte(real):
    header = read_header(Memory(real))
    last = list(header.tensors.values())[-1]
    needed = header.data_offset + last.offset + last.nbytes
    for length in range(needed):
        with pytest.raises(GGUFError):
            visit(real[:length])
    for length in range(needed, len(real) + 1):
        visit(real[:length])


@settings(max_examples=1500, deadline=None)
@given(data=st.data())
def test_random_mutation(real, data):
    changed = bytearray(real)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(changed) - 1))
        piece = data.draw(st.binary(min_size=1, max_size=8))
        changed[place : place + len(piece)] = piece
    with suppress(GGUFError):
        visit(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(junk=st.binary(max_size=200))
def test_junk_after_the_magic(junk):
    with suppress(GGUFError):
        visit(b"GGUF\x03\x00\x00\x00" + junk)
