"""``mask_embedding.pt`` without PyTorch: what torch.save writes is read, everything else is refused unrun."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zoo.torch_file import mask_embedding

from dflash_gguf.convert.mask_embedding import NAME, read_mask_embedding
from dflash_gguf.errors import CheckpointError

VECTOR = np.linspace(-2, 2, 64, dtype=np.float32)
STORED = VECTOR.tobytes()


def write(folder, data):
    path = folder / NAME
    path.write_bytes(data)
    return path


def archive(pickled, data=STORED, **others):
    """A zip as torch.save makes it, around any pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, blob in {"data.pkl": pickled, "data/0": data, "byteorder": b"little", **others}.items():
            made.writestr(f"mask_embedding/{name}", blob)
    return out.getvalue()


@pytest.mark.parametrize(("dtype", "digits"), [("F32", 7), ("F16", 3), ("BF16", 2)])
def test_what_torch_writes(tmp_path, dtype, digits):
    found = read_mask_embedding(write(tmp_path, mask_embedding(15166, VECTOR, dtype)))
    assert found.token_id == 15166
    np.testing.assert_allclose(np.frombuffer(found.values, "<f4"), VECTOR, rtol=10.0**-digits)


class Harm:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_something_is_refused_unrun(tmp_path, protocol):
    value = {"mask_token_id": 3, "embedding": Harm(tmp_path / "harm")}
    with pytest.raises(CheckpointError, match="not allowed"):
        read_mask_embedding(write(tmp_path, archive(pickle.dumps(value, protocol))))
    assert not (tmp_path / "harm").exists()


GLOBAL = b"cbuiltins\neval\n"
HOSTILE = {
    "a name of builtins": b"\x80\x02" + GLOBAL + b".",
    "a name of os": b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.",
    "a name on the stack": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "an allowed name, called with more": b"\x80\x02ccollections\nOrderedDict\n(K\x01tR.",
    "a tensor rebuilt from nothing": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNtR.",
    "a storage called": b"\x80\x02ctorch\nFloatStorage\n)R.",
    "build": b"\x80\x02}}b.",
    "inst": b"\x80\x02(ios\nsystem\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id that is text": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "a persistent id of another kind": b"\x80\x02(X\x01\x00\x00\x00aNNNNtQ.",
    "nothing on the stack": b"\x80\x02.",
    "a tuple without a beginning": b"\x80\x02t.",
    "an unknown memo": b"\x80\x02h\x07.",
    "a key that is no text": b"\x80\x02}K\x01K\x02s.",
    "no end": b"\x80\x02}",
    "no pickle": b"\xff\xfe",
    "empty": b"",
    "many opcodes": b"\x80\x02" + b"N" * 600 + b".",
    "a table within itself": b"\x80\x02}q\x00(X\x09\x00\x00\x00embeddingh\x00X\x0d\x00\x00\x00mask_token_idK\x01u.",
    "other keys": pickle.dumps({"a": 1}, 2),
    "an id that is text": pickle.dumps({"mask_token_id": "3", "embedding": None}, 2),
    "a list": pickle.dumps([1], 2),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(tmp_path, name):
    with pytest.raises(CheckpointError, match="is no mask embedding"):
        read_mask_embedding(write(tmp_path, archive(HOSTILE[name])))


def body(blob):
    """The pickle inside what torch writes."""
    with zipfile.ZipFile(io.BytesIO(blob)) as made:
        return made.read("mask_embedding/data.pkl")


PICKLED = body(mask_embedding(3, VECTOR, "F32"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        b"\x80\x02}.",
        archive(PICKLED, VECTOR.tobytes()[:-1]),
        archive(PICKLED, byteorder=b"big"),
        archive(PICKLED, np.full(64, np.nan, np.float32).tobytes()),
        archive(PICKLED, **{f"x{i}": b"" for i in range(80)}),
        archive(PICKLED).replace(b"data/0", b"data/1"),
        archive(PICKLED.replace(b"K\x40\x85", b"K\x41\x85")),
        archive(PICKLED.replace(b"K\x01\x85", b"K\x02\x85")),
    ],
)
def test_broken_files(tmp_path, data):
    with pytest.raises(CheckpointError):
        read_mask_embedding(write(tmp_path, data))


def test_packed_and_oversized_files(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("m/data.pkl", b"N" * 10_000_000)
    with pytest.raises(CheckpointError, match="packed"):
        read_mask_embedding(write(tmp_path, out.getvalue()))
    path = write(tmp_path, b"")
    with path.open("r+b") as file:
        file.truncate(17 << 20)
    with pytest.raises(CheckpointError, match="more than"):
        read_mask_embedding(path)
    with pytest.raises(CheckpointError, match="no such file"):
        read_mask_embedding(tmp_path / "none.pt")


WHOLE = mask_embedding(300, VECTOR, "BF16")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_mutation_is_read_or_refused(tmp_path, data):
    blob = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(blob) - 1))
        blob[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        found = read_mask_embedding(write(tmp_path, bytes(blob)))
    except CheckpointError:
        return
    assert 0 <= found.token_id < 1 << 31
    assert np.isfinite(np.frombuffer(found.values, "<f4")).all()
    assert struct.calcsize("f") * 64 >= len(found.values)


def test_a_parameter_is_its_tensor(tmp_path):
    start, end = PICKLED.index(b"ctorch._utils"), PICKLED.rindex(b"u.")
    tensor = PICKLED[start:end]
    wrapped = b"ctorch._utils\n_rebuild_parameter\n(" + tensor + b"\x89ccollections\nOrderedDict\n)RtR"
    found = read_mask_embedding(write(tmp_path, archive(PICKLED[:start] + wrapped + b"u.")))
    assert found.values == VECTOR.tobytes()
