"""Checkpoints from disk: what is read, and what is refused."""

from __future__ import annotations

import json
import shutil
import struct

import pytest
import tiny

from dflash_gguf.convert.checkpoint import load_checkpoint
from dflash_gguf.convert.safetensors_header import read_table
from dflash_gguf.errors import CheckpointError


def safetensors(header, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2,), start=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def test_the_table_holds_every_tensor_in_order_of_name(tiny_checkpoint):
    checkpoint = load_checkpoint(tiny_checkpoint)
    values = tiny.checkpoint_values()
    assert list(checkpoint.tensors) == sorted(values)
    fc = checkpoint.tensors["fc.weight"]
    assert (fc.dtype, fc.shape, fc.nbytes) == ("BF16", (512, 1536), 512 * 1536 * 2)
    raw = fc.file.read_bytes()[fc.offset : fc.offset + fc.nbytes]
    assert raw == tiny.encode(values["fc.weight"], "BF16")


def test_shards_are_found_by_their_index(tmp_path):
    folder = tiny.write_checkpoint(tmp_path / "c", shards=3)
    assert set(load_checkpoint(folder).tensors) == set(tiny.checkpoint_values())
    assert len({tensor.file for tensor in load_checkpoint(folder).tensors.values()}) == 3


def test_shards_of_any_name_and_without_an_index(tmp_path):
    folder = tiny.write_checkpoint(tmp_path / "c", shards=2)
    index = folder / "model.safetensors.index.json"
    parts = json.loads(index.read_text())
    index.unlink()
    assert set(load_checkpoint(folder).tensors) == set(tiny.checkpoint_values())
    (folder / "sub").mkdir()
    for part in set(parts["weight_map"].values()):
        (folder / part).rename(folder / "sub" / f"odd-{part}")
    moved = {name: f"sub/odd-{part}" for name, part in parts["weight_map"].items()}
    index.write_text(json.dumps({"weight_map": moved}))
    assert set(load_checkpoint(folder).tensors) == set(tiny.checkpoint_values())


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map"),
        ({"weight_map": []}, "weight_map"),
        ({"weight_map": {"a": 1}}, "weight_map"),
        ({"weight_map": {"a": "../model.safetensors"}}, "inside the folder"),
        ({"weight_map": {"a": "/etc/passwd"}}, "inside the folder"),
        ({"weight_map": {"a": ""}}, "inside the folder"),
        ({"weight_map": {"a": "missing.safetensors"}}, "no such file"),
        ({"weight_map": {"a": "model.safetensors"}}, "disagree on"),
        (b"{", "not JSON"),
        (b"[1]", "a JSON object"),
        (b'{"a": 1, "a": 2}', "names `a` twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff", "not JSON"),
    ],
)
def test_a_broken_index_is_refused(tmp_path, index, message):
    folder = tiny.write_checkpoint(tmp_path / "c")
    text = index if isinstance(index, bytes) else json.dumps(index).encode()
    (folder / "model.safetensors.index.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


def test_a_tensor_in_two_files_is_refused(tmp_path):
    folder = tiny.write_checkpoint(tmp_path / "c")
    shutil.copy(folder / "model.safetensors", folder / "model-2.safetensors")
    with pytest.raises(CheckpointError, match="is in both"):
        load_checkpoint(folder)


def test_folders_that_are_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="not a folder"):
        load_checkpoint(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"config\.json` cannot be read"):
        load_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="has no safetensors"):
        load_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(safetensors({}))
    with pytest.raises(CheckpointError, match="holds no tensors"):
        load_checkpoint(tmp_path)


EIGHT = bytes(8)
BROKEN = {
    "empty": (b"", "truncated"),
    "no header": (struct.pack("<Q", 100), "header length"),
    "header longer than the file": (safetensors({"a": entry()}, EIGHT, length=1 << 40), "header length"),
    "header length of 64 bits": (safetensors({}, length=(1 << 64) - 1), "header length"),
    "not JSON": (safetensors(b"{nope}"), "not JSON"),
    "not UTF-8": (safetensors(b"\xff\xfe"), "not JSON"),
    "not an object": (safetensors(b"[]"), "a JSON object"),
    "duplicate name": (safetensors(b'{"a": {}, "a": {}}'), "names `a` twice"),
    "a huge number": (safetensors(b'{"a": ' + b"9" * 5000 + b"}"), "not JSON"),
    "entry is a list": (safetensors({"a": []}), "the entry of `a`"),
    "entry lacks a field": (safetensors({"a": {"dtype": "F32", "shape": [2]}}), "the entry of `a`"),
    "unknown dtype": (safetensors({"a": entry("F7")}, EIGHT), "dtype of `a`"),
    "dtype is a list": (safetensors({"a": entry([])}, EIGHT), "dtype of `a`"),
    "negative size": (safetensors({"a": entry(shape=(-2,))}, EIGHT), "shape of `a`"),
    "size is a truth value": (safetensors({"a": entry(shape=(True,))}, EIGHT), "shape of `a`"),
    "absurd shape": (safetensors({"a": entry(shape=(1 << 40, 1 << 40))}, EIGHT), "shape of `a`"),
    "many dimensions": (safetensors({"a": entry(shape=(1,) * 17)}, EIGHT), "shape of `a`"),
    "offsets reversed": (safetensors({"a": entry(start=8, end=0)}, EIGHT), "data_offsets of `a`"),
    "offsets past the end": (safetensors({"a": entry(end=1 << 50)}, EIGHT), "data_offsets of `a`"),
    "wrong byte count": (safetensors({"a": entry(shape=(3,))}, EIGHT), "bytes of `a`: got 8, expected 12"),
    "overlap": (safetensors({"a": entry(), "b": entry(start=4, end=12)}, bytes(12)), "overlaps"),
    "hole": (safetensors({"a": entry(), "b": entry(start=12, end=20)}, bytes(20)), "overlaps"),
    "bytes left over": (safetensors({"a": entry()}, bytes(9)), "ends elsewhere"),
    "unprintable name": (safetensors({"a\u202e": entry()}, EIGHT), "printable ascii"),
    "metadata of the wrong type": (safetensors({"__metadata__": 1, "a": entry()}, EIGHT), "not a valid"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_safetensors_are_refused(tmp_path, name):
    data, message = BROKEN[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        read_table(path)


def test_truncation_at_every_byte_is_refused(tmp_path):
    whole = safetensors({"a": entry(), "b": entry("BF16", (2, 1), 8, 12)}, bytes(12))
    path = tmp_path / "model.safetensors"
    path.write_bytes(whole)
    assert read_table(path)["b"].shape == (2, 1)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_table(path)


def test_shards_and_indexes_of_any_name(tmp_path):
    folder = tiny.write_checkpoint(tmp_path / "one")
    whole = load_checkpoint(folder).tensors
    (folder / "model.safetensors").rename(folder / "dflash_draft_model.safetensors")
    assert list(load_checkpoint(folder).tensors) == list(whole)
    parts = tiny.write_checkpoint(tmp_path / "two", shards=2)
    (parts / "model.safetensors.index.json").rename(parts / "draft.safetensors.index.json")
    assert set(load_checkpoint(parts).tensors) == set(whole)
    shutil.copy(parts / "draft.safetensors.index.json", parts / "other.safetensors.index.json")
    with pytest.raises(CheckpointError, match=r"several indexes: got 'draft\.safetensors\.index\.json, other"):
        load_checkpoint(parts)


def test_a_drafter_inside_another_models_folder(tmp_path):
    folder = tiny.write_checkpoint(tmp_path / "c", prefix="mtp.")
    assert set(load_checkpoint(folder, {"DFlash2DraftModel": "mtp."}).tensors) == set(load_checkpoint(folder).tensors)
    with pytest.raises(CheckpointError, match=r"holds no tensors named `other\.\*`"):
        load_checkpoint(folder, {"DFlash2DraftModel": "other."})
    assert load_checkpoint(folder, {"Another": "other."}).tensors
