"""The header reader, on files put together byte by byte."""

from __future__ import annotations

import re
import struct
import subprocess
import sys

import gguf_bytes as gb
import pytest
from gguf_bytes import Memory, gguf

from dflash_gguf.errors import GGUFError
from dflash_gguf.gguf_header import read_header


def read(data: bytes):
    return read_header(Memory(data))


def test_every_getter():
    header = read(gguf())
    assert (header.version, header.alignment, header.size) == (3, 32, len(gguf()))
    assert header.string("general.architecture") == "llama"
    assert header.integer("a.count") == 7
    assert header.integer("a.size") == 1 << 40
    assert header.number("a.base") == 0.5
    assert header.number("a.count") == 7
    assert header.boolean("a.flag") is True
    assert header.integers("a.ids") == [3, -4]
    assert header.booleans("a.flags") == [True, False]
    assert header.count("tokenizer.ggml.tokens") == 4
    assert header.strings("tokenizer.ggml.tokens") == ["a", "ß", "", "long token"]
    assert "a.count" in header.keys
    assert "a.other" not in header.keys


def test_raw_is_the_value_verbatim():
    header = read(gguf())
    assert {key: header.raw(key) for key in header.keys} == dict(gb.KEYS)


def test_tensors_in_file_order():
    header = read(gguf())
    first, second = header.tensors.values()
    assert (first.name, first.shape, first.type, first.offset, first.nbytes) == (
        "first.weight", (8, 3), 0, 0, 96,
    )  # fmt: skip
    assert (second.name, second.shape, second.type, second.offset, second.nbytes) == (
        "second.weight", (32,), 8, 96, 34,
    )  # fmt: skip
    assert header.data_offset + 96 + 34 == header.size


def test_a_path_and_a_source_agree(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf())
    header = read_header(path)
    assert header.name == str(path)
    assert header.keys == read(gguf()).keys


def test_defaults_stand_in_for_missing_keys_only():
    header = read(gguf())
    assert header.string("none", "x") == "x"
    assert header.integer("none", None) is None
    assert header.boolean("none", default=False) is False
    with pytest.raises(GGUFError, match="has no key `none`"):
        header.integer("none")
    with pytest.raises(GGUFError, match=r"key `a\.count`.*uint32.*a string"):
        header.string("a.count", "x")
    with pytest.raises(GGUFError, match=r"array\[int32\].*an integer"):
        header.integer("a.ids", 0)
    with pytest.raises(GGUFError, match="array of strings"):
        header.strings("a.ids")
    with pytest.raises(GGUFError, match="a boolean"):
        header.boolean("a.count")


def test_version_2_and_another_alignment():
    keys = (("general.alignment", gb.u32(64)),)
    tensors = (gb.tensor("t", (8,), 0, 0), gb.tensor("u", (8,), 0, 64))
    header = read(gguf(keys, tensors, bytes(96), version=struct.pack("<I", 2), alignment=64))
    assert (header.version, header.alignment, header.data_offset) == (2, 64, 128)


def test_no_tensors():
    assert not read(gguf(tensors=(), data=b"")).tensors


HUGE = (1 << 64) - 1
ONE_KEY = (("k", gb.u32(1)),)
BROKEN = {
    "empty": (b"", "the file is empty"),
    "magic": (gguf(magic=b"GGML"), "not a GGUF"),
    "version 1": (gguf(version=struct.pack("<I", 1)), "GGUF version: got 1, expected 2 or 3"),
    "version 0": (gguf(version=struct.pack("<I", 0)), "GGUF version"),
    "big-endian": (gguf(version=struct.pack(">I", 3)), "big-endian"),
    "tensor count": (gguf(n_tensors=HUGE), "number of tensors"),
    "key count": (gguf(n_keys=HUGE), "number of keys"),
    "more keys than bytes": (gguf(n_keys=1000), "number of keys"),
    "duplicate key": (gguf(ONE_KEY * 2), "`k` appears twice"),
    "empty key": (gguf((("", gb.u32(1)),)), "name of key 0"),
    "key name length": (gguf((), (), n_keys=1, data=struct.pack("<QQ", HUGE, 0)), "length of the name"),
    "key not UTF-8": (gguf(((b"\xff", gb.u32(1)),)), "not UTF-8"),
    "value type": (gguf((("k", struct.pack("<II", 13, 1)),)), "value type of key `k`: got 13"),
    "nested array": (gguf((("k", struct.pack("<IIQ", 9, 9, 1)),)), "array of arrays"),
    "array count": (gguf((("k", struct.pack("<IIQ", 9, 0, HUGE)),)), "truncated"),
    "string count": (gguf((("k", struct.pack("<IIQ", 9, 8, HUGE)),)), "number of strings in `k`"),
    "string length": (gguf((("k", struct.pack("<IQ", 8, HUGE)),)), "string in `k` is too long"),
    "string over the end": (gguf((("k", struct.pack("<IQ", 8, 1 << 20)),)), "truncated"),
    "alignment zero": (gguf((("general.alignment", gb.u32(0)),)), "power of two"),
    "alignment odd": (gguf((("general.alignment", gb.u32(48)),)), "power of two"),
    "alignment type": (gguf((("general.alignment", gb.string("32")),)), "expected uint32"),
    "duplicate tensor": (gguf(tensors=(gb.TENSORS[0], gb.tensor("first.weight", (8,), 0, 96))), "appears twice"),
    "tensor name length": (gguf(tensors=(gb.tensor("n" * 64, (8,), 0, 0),)), "name of tensor 0"),
    "tensor name not UTF-8": (gguf(tensors=(gb.tensor(b"\xff", (8,), 0, 0),)), "not UTF-8"),
    "no dimensions": (gguf(tensors=(gb.tensor("t", (), 0, 0),)), "number of dimensions of `t`"),
    "five dimensions": (gguf(tensors=(gb.tensor("t", (1,) * 5, 0, 0),)), "number of dimensions"),
    "empty dimension": (gguf(tensors=(gb.tensor("t", (8, 0), 0, 0),)), "shape of `t`"),
    "too many elements": (gguf(tensors=(gb.tensor("t", (1 << 40, 1 << 40), 0, 0),)), "shape of `t`"),
    "type of no tensor": (gguf(tensors=(gb.tensor("t", (8,), 4, 0),)), "type of tensor `t`"),
    "row not whole blocks": (gguf(tensors=(gb.tensor("t", (33,), 8, 0),)), "row length of `t`"),
    "overlap": (gguf(tensors=(gb.TENSORS[0], gb.tensor("u", (8,), 0, 64))), "offset of tensor `u`"),
    "hole": (gguf(tensors=(gb.TENSORS[0], gb.tensor("u", (8,), 0, 128))), "offset of tensor `u`"),
    "misaligned": (gguf(tensors=(gb.TENSORS[0], gb.tensor("u", (8,), 0, 97))), "offset of tensor `u`"),
    "offset out of range": (gguf(tensors=(gb.tensor("t", (8,), 0, HUGE),)), "offset of tensor `t`"),
    "data truncated": (gguf(data=gb.DATA[:-1]), "tensor data is truncated"),
    "tensor larger than the file": (gguf(tensors=(gb.tensor("t", (1 << 40,), 0, 0),)), "tensor data is truncated"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name):
    data, message = BROKEN[name]
    source = Memory(data)
    with pytest.raises(GGUFError, match=message):
        read_header(source)
    assert source.served <= len(data)
    assert source.largest <= len(data)


def test_an_unreadable_path_is_a_gguf_error(tmp_path):
    with pytest.raises(GGUFError, match="no such file"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(GGUFError, match="cannot be read"):
        read_header(tmp_path)


def test_text_that_is_not_utf8_is_refused_when_asked_for():
    header = read(gguf((("k", gb.string(b"\xff")), ("ks", gb.strings(b"\xff")))))
    assert header.raw("k") == gb.string(b"\xff")
    with pytest.raises(GGUFError, match="not UTF-8"):
        header.string("k")
    with pytest.raises(GGUFError, match="not UTF-8"):
        header.strings("ks")


def test_a_source_that_lies_about_its_size():
    class Short(Memory):
        @property
        def size(self):
            return len(self.data) + 1000

    with pytest.raises(GGUFError, match="ends at byte"):
        read_header(Short(gguf()[:50]))


def test_the_weights_behind_a_large_vocabulary_stay_unread():
    words = tuple(f"token {i}" for i in range(250_000))
    keys = (("tokenizer.ggml.tokens", gb.strings(*words)), ("tokenizer.ggml.merges", gb.strings(*words)))
    weights = 64 << 20
    source = Memory(gguf(keys, (gb.tensor("t", (weights // 4,), 0, 0),), bytes(weights)))
    header = read_header(source)
    assert source.served < header.data_offset * 2
    assert header.count("tokenizer.ggml.merges") == len(words)


def test_reading_a_header_loads_neither_numpy_nor_gguf():
    code = "import sys; import dflash_gguf.gguf_header; print('numpy' in sys.modules, 'gguf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


IMPOSTORS = {
    "page": (b"\n<!DOCTYPE html>\n<html>", "not a GGUF file but a page of HTML; download the file itself"),
    "bare page": (b"<HTML><body>Not Found", "not a GGUF file but a page of HTML; download the file itself"),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
        "git-lfs; run `git lfs pull`, or",
    ),
}


@pytest.mark.parametrize("name", IMPOSTORS)
def test_what_stands_in_a_models_place_is_named(name):
    data, message = IMPOSTORS[name]
    with pytest.raises(GGUFError, match=re.escape(message)):
        read(data)


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 15, 24, 40, 100])
def test_a_header_that_is_cut_is_a_truncated_file(cut):
    with pytest.raises(GGUFError, match="the file is truncated"):
        read(gguf()[:cut])


@pytest.mark.parametrize("name", BROKEN)
def test_every_refusal_ends_with_what_to_do(name):
    with pytest.raises(GGUFError, match=r"; (download the file again|convert the model with llama\.cpp's)"):
        read(BROKEN[name][0])
