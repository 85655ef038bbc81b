"""``inspect --against``: what quantizing cost, against the same sums in NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny
import zoo
from families import target_of
from test_commands import dflash, one_line_error

from dflash_gguf.convert import api
from dflash_gguf.errors import GGUFError
from dflash_gguf.quantize import cost
from dflash_gguf.quantize.api import quantize
from dflash_gguf.quantize.cost import against, as_dict


@pytest.fixture(scope="module")
def quantized(tmp_path_factory, tiny_drafter):
    return quantize(tiny_drafter, tmp_path_factory.mktemp("q") / "q.gguf", "Q8_0", n_threads=1).path


def test_sums_are_numpys(quantized, tiny_drafter, monkeypatch):
    monkeypatch.setattr(cost, "VALUES", 5000)  # many slabs, the last of them short
    found = {row.name: row for row in against(quantized, tiny_drafter).tensors}
    arrays = {tiny.gguf_name(name): array for name, array in tiny.drafter_arrays().items()}
    assert found.keys() == arrays.keys()
    for name in ("fc.weight", "blk.1.ffn_down.weight", "selector_hidden.weight", "blk.0.attn_conv_base"):
        theirs = arrays[name].astype(np.float64)
        kind = found[name].type
        ours = tiny.stored_values(arrays[name], kind).astype(np.float64)
        row = found[name]
        assert row.rmse == pytest.approx(np.sqrt(np.mean((ours - theirs) ** 2)))
        assert row.relative_rmse == pytest.approx(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
        assert row.largest == pytest.approx(np.abs(ours - theirs).max())
        cosine = (ours * theirs).sum() / np.linalg.norm(ours) / np.linalg.norm(theirs)
        assert row.cosine == pytest.approx(cosine)
        assert (row.n_weights, row.tensors, row.source_type) == (theirs.size, 1, "F32")


def test_types_are_sums_of_tensors(quantized, tiny_drafter):
    found = against(quantized, tiny_drafter)
    assert [row.type for row in found.types] == ["Q8_0", "F32"]
    for row in found.types:
        tensors = [tensor for tensor in found.tensors if tensor.type == row.type]
        assert row.tensors == len(tensors)
        assert row.n_bytes == sum(tensor.n_bytes for tensor in tensors)
        assert row.largest == max(tensor.largest for tensor in tensors)
        squares = sum(tensor.rmse**2 * tensor.n_weights for tensor in tensors)
        assert row.rmse == pytest.approx(np.sqrt(squares / row.n_weights))
    assert found.types[1].rmse == 0
    json.dumps(as_dict(found), allow_nan=False)


def test_a_file_against_itself(quantized):
    for row in against(quantized, quantized).tensors:
        assert (row.rmse, row.largest) == (0, 0)
        assert row.cosine == pytest.approx(1)


@pytest.mark.parametrize("name", ["lfm2-dspark", "modelopt-v1-fp8", "mimo-v1"])
def test_a_checkpoint_is_read_as_convert_reads_it(tmp_path, name):
    """Rotary pairs put in order, packed weights, tables of the target."""
    folder = zoo.write_checkpoint(name, tmp_path)
    made = api.convert(folder, target_of(name), "F32", tmp_path / "f.gguf", n_threads=1).path
    found = against(made, folder, target_of(name))
    assert all(row.rmse == 0 for row in found.tensors)


def test_files_of_different_tensors(tmp_path, quantized):
    other = tiny.write_drafter(tmp_path / "o.gguf", layers=1)
    with pytest.raises(GGUFError, match=r"`.*o.gguf` lacks tensors of `.*q.gguf`: `blk.1"):
        against(quantized, other)
    with pytest.raises(GGUFError, match=r"`.*q.gguf` lacks|`.*o.gguf` lacks"):
        against(other, quantized)
    wide = tiny.write_drafter(tmp_path / "w.gguf", rank=64)
    with pytest.raises(
        GGUFError, match=r"the shape of `selector_hidden.weight` in .*: got '\[512, 32\]', expected \[512, 64\]"
    ):
        against(quantized, wide)


def test_the_command(quantized, tiny_drafter, tmp_path):
    done = dflash("inspect", quantized, "--against", tiny_drafter)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["type", "tensors", "bytes", "RMSE"]
    assert lines[1].split()[0] == "Q8_0"
    assert any(line.startswith("blk.1.ffn_up.weight") for line in lines)
    found = json.loads(dflash("inspect", quantized, "--against", tiny_drafter, "--json").stdout)
    assert {row["type"] for row in found["types"]} == {"Q8_0", "F32"}
    assert "not both" in one_line_error(dflash("inspect", quantized, "--against", tiny_drafter, "--diff", quantized), 2)
    assert "--target needs" in one_line_error(dflash("inspect", quantized, "--target", tiny_drafter), 2)
