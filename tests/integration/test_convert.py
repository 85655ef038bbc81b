"""Conversions end to end, against gguf-py, libggml and llama-quantize."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import ggml
import gguf
import llama_cpp
import numpy as np
import pytest
import tiny

from dflash_gguf import atomic
from dflash_gguf.convert import api, rows
from dflash_gguf.errors import CheckpointError, OutputError, QuantizeError
from dflash_gguf.gguf_header import read_header

WIDE = {"hidden": 1024, "heads": 16, "ffn": 2048, "rank": 64, "layers": 5}
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K_M")


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A checkpoint whose rows hold whole K-quant blocks, with embeddings and head, and a target for it."""
    folder = tmp_path_factory.mktemp("wide")
    rng = np.random.default_rng(5)
    tables = {
        name: rng.standard_normal((512, 1024)).astype(np.float32) for name in ("embed_tokens.weight", "lm_head.weight")
    }
    checkpoint = tiny.write_checkpoint(folder / "Wide-DFlash2", tensors=tables, **WIDE)
    return checkpoint, tiny.write_target(folder / "wide.gguf", type="F16", hidden=1024, heads=16, layers=4)


def read(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def converted(pair, quant, folder, **options):
    return api.convert(*pair, quant, folder / f"{quant}.gguf", **options).path


@pytest.mark.parametrize("quant", ["F32", "BF16"])
def test_plain_types_read_back_bit_for_bit(tmp_path, tiny_checkpoint, tiny_target, quant):
    tensors = read(converted((tiny_checkpoint, tiny_target), quant, tmp_path))
    values = tiny.checkpoint_values()
    assert set(tensors) == {tiny.gguf_name(name) for name in values}
    for name, array in values.items():
        tensor = tensors[tiny.gguf_name(name)]
        full = quant == "F32" or array.ndim == 1 or name.endswith("base_kernel")
        expected = array.astype("<f4").tobytes() if full else tiny.encode(array, "BF16")
        assert tensor.data.tobytes() == expected
        assert list(tensor.shape) == list(array.shape[::-1])


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("quant", TYPES)
def test_blocks_are_those_of_ggml_over_the_whole_tensor(tmp_path, tiny_target, monkeypatch, dtype, quant):
    monkeypatch.setattr(rows, "SLAB", 50_000)
    folder = tiny.write_checkpoint(tmp_path / "c", dtype=dtype)
    tensors = read(converted((folder, tiny_target), quant, tmp_path, n_threads=3))
    for name, array in tiny.checkpoint_values(dtype=dtype).items():
        tensor = tensors[tiny.gguf_name(name)]
        assert tensor.data.tobytes() == ggml.quantize(array, int(tensor.tensor_type)), name


@pytest.mark.parametrize("quant", ["Q8_0", "Q4_0", "Q4_K_M"])
@pytest.mark.parametrize("pair", ["narrow", "wide"])
def test_the_file_is_what_llama_quantize_makes_of_the_unquantized_one(
    request, tmp_path, tiny_checkpoint, tiny_target, quant, pair
):
    files = request.getfixturevalue("wide") if pair == "wide" else (tiny_checkpoint, tiny_target)
    plain = converted(files, "BF16", tmp_path)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = {"Q8_0": 7, "Q4_0": 2, "Q4_K_M": 15}[quant]
    params.nthread = 2
    theirs = tmp_path / "theirs.gguf"
    assert llama_cpp.llama_model_quantize(str(plain).encode(), str(theirs).encode(), params) == 0
    assert converted(files, quant, tmp_path).read_bytes() == theirs.read_bytes()


def test_a_mixture_really_mixes(tmp_path, wide):
    kinds = {tensor.tensor_type.name for tensor in read(converted(wide, "Q4_K_M", tmp_path)).values()}
    assert {"F32", "Q4_K", "Q6_K"} <= kinds


def test_interleaved_rope_is_reordered(tmp_path, tiny_target, monkeypatch):
    monkeypatch.setattr(rows, "SLAB", 100_000)
    folder = tiny.write_checkpoint(tmp_path / "c", dtype="F32", config={"rope_is_neox_style": False})
    tensors, values = read(converted((folder, tiny_target), "F32", tmp_path)), tiny.checkpoint_values(dtype="F32")
    for part in ("q_proj", "k_proj", "q_norm", "k_norm"):
        name = f"layers.1.self_attn.{part}.weight"
        heads = values[name].reshape(-1, 64, *values[name].shape[1:])
        expected = np.concatenate([heads[:, 0::2], heads[:, 1::2]], axis=1).reshape(values[name].shape)
        assert tensors[tiny.gguf_name(name)].data.tobytes() == expected.astype("<f4").tobytes()


def test_the_tokenizer_is_the_targets_own(tmp_path, tiny_checkpoint, tiny_target):
    theirs, ours = read_header(tiny_target), read_header(converted((tiny_checkpoint, tiny_target), "F16", tmp_path))
    keys = [key for key in theirs.keys if key.startswith("tokenizer.")]
    assert [key for key in ours.keys if key.startswith("tokenizer.")] == [*keys, "tokenizer.ggml.mask_token_id"]
    assert all(ours.raw(key) == theirs.raw(key) for key in keys)


@pytest.mark.parametrize("quant", TYPES)
def test_libllama_loads_every_type(tmp_path, tiny_checkpoint, tiny_target, quant):
    path = converted((tiny_checkpoint, tiny_target), quant, tmp_path)
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model
    llama_cpp.llama_model_free(model)


def test_the_result_and_the_progress(tmp_path, tiny_checkpoint, tiny_target, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = []
    result = api.convert(tiny_checkpoint, tiny_target, "int4", progress=lambda *call: calls.append(call))
    assert result.path == tmp_path / "dflash-tiny-qwen3-Q4_0.gguf"
    assert (result.quant, result.n_bytes) == ("Q4_0", result.path.stat().st_size)
    assert sum(result.tensor_types.values()) == len(read_header(result.path).tensors)
    assert calls == sorted(calls)
    assert calls[-1] == (result.n_bytes, result.n_bytes)
    assert list(tmp_path.iterdir()) == [result.path]


def test_an_existing_output_is_kept_unless_forced(tmp_path, tiny_checkpoint, tiny_target):
    out = tmp_path / "out.gguf"
    out.write_text("precious")
    with pytest.raises(OutputError, match="exists already"):
        api.convert(tiny_checkpoint, tiny_target, "Q8_0", out)
    assert out.read_text() == "precious"
    assert api.convert(tiny_checkpoint, tiny_target, "Q8_0", out, force=True).n_bytes == out.stat().st_size


def test_outputs_that_cannot_be(tmp_path, tiny_checkpoint, tiny_target):
    with pytest.raises(OutputError, match="is a folder"):
        api.convert(tiny_checkpoint, tiny_target, "F16", tmp_path)
    with pytest.raises(OutputError, match="does not exist"):
        api.convert(tiny_checkpoint, tiny_target, "F16", tmp_path / "no" / "x.gguf")
    before = Path(tiny_target).read_bytes()
    with pytest.raises(OutputError, match="one of the inputs"):
        api.convert(tiny_checkpoint, tiny_target, "F16", tiny_target, force=True)
    assert Path(tiny_target).read_bytes() == before


def test_an_output_made_meanwhile_is_kept(tmp_path, tiny_checkpoint, tiny_target):
    out = tmp_path / "out.gguf"
    with pytest.raises(OutputError, match="made meanwhile"):
        api.convert(tiny_checkpoint, tiny_target, "F16", out, progress=lambda *_: out.write_text("x"))
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert out.read_text() == "x"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quant", TYPES)
@pytest.mark.parametrize("name", ["layers.0.mlp.up_proj.weight", "norm.weight"])
def test_values_that_are_not_finite_name_their_tensor(tmp_path, tiny_target, quant, value, name):
    array = tiny.drafter_arrays()[name]
    array.flat[-1] = value
    folder = tiny.write_checkpoint(tmp_path / "c", dtype="F32", tensors={name: array})
    with pytest.raises(QuantizeError, match=f"tensor `{name}`: a value is not finite"):
        converted((folder, tiny_target), quant, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_value_too_large_for_f16_names_its_tensor(tmp_path, tiny_target):
    array = tiny.drafter_arrays()["fc.weight"]
    array[3, 5] = 70000.0
    folder = tiny.write_checkpoint(tmp_path / "c", tensors={"fc.weight": array})
    with pytest.raises(QuantizeError, match=r"tensor `fc.weight`: a value is too large for f16"):
        converted((folder, tiny_target), "F16", tmp_path)
    assert converted((folder, tiny_target), "BF16", tmp_path).exists()


def test_a_full_disk_leaves_nothing(tmp_path, tiny_checkpoint, tiny_target, monkeypatch):
    real, calls = os.pwrite, []

    def full(fd, data, offset):
        calls.append(len(data))
        if len(calls) > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    monkeypatch.setattr(atomic.os, "pwrite", full)
    with pytest.raises(OutputError, match="no space left on device"):
        converted((tiny_checkpoint, tiny_target), "F16", tmp_path)
    assert not list(tmp_path.iterdir())


def test_short_writes_are_finished(tmp_path, tiny_checkpoint, tiny_target, monkeypatch):
    whole = converted((tiny_checkpoint, tiny_target), "F16", tmp_path).read_bytes()
    real, real_at = os.write, os.pwrite
    half = lambda data: data[: max(1, len(data) // 2)]  # noqa: E731
    monkeypatch.setattr(atomic.os, "write", lambda fd, data: real(fd, half(data)))
    monkeypatch.setattr(atomic.os, "pwrite", lambda fd, data, offset: real_at(fd, half(data), offset))
    assert converted((tiny_checkpoint, tiny_target), "F16", tmp_path, force=True).read_bytes() == whole


def test_a_checkpoint_cut_short_after_planning(tmp_path, tiny_target):
    folder = tiny.write_checkpoint(tmp_path / "c")
    shard = folder / "model.safetensors"

    def cut(done, _total):
        if done:
            os.truncate(shard, 100_000)

    with pytest.raises(CheckpointError, match="ends inside tensor"):
        api.convert(folder, tiny_target, "F16", tmp_path / "out.gguf", progress=cut)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_an_interrupt_removes_the_partial_file(tmp_path, tiny_checkpoint, tiny_target):
    def stop(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        converted((tiny_checkpoint, tiny_target), "F16", tmp_path, progress=stop)
    assert not list(tmp_path.iterdir())


STALL = """
import sys, time
from dflash_gguf.convert import api

def stall(done, total):
    if done > total // 2:
        print("half", flush=True)
        time.sleep(60)

api.convert(*sys.argv[1:3], "Q8_0", sys.argv[3], progress=stall)
"""


def test_a_killed_conversion_leaves_no_output_and_is_taken_over(tmp_path, tiny_checkpoint, tiny_target):
    out = tmp_path / "out.gguf"
    command = [sys.executable, "-c", STALL, tiny_checkpoint, tiny_target, out]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "half\n"
        with pytest.raises(OutputError, match="being written by another run"):
            api.convert(tiny_checkpoint, tiny_target, "Q8_0", out)
        running.send_signal(signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf.partial"]
    whole = api.convert(tiny_checkpoint, tiny_target, "Q8_0", out)
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert out.stat().st_size == whole.n_bytes


def test_a_link_in_the_partial_files_place_is_not_followed(tmp_path, tiny_checkpoint, tiny_target):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "out.gguf.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(OutputError, match="could not be written"):
        api.convert(tiny_checkpoint, tiny_target, "F16", tmp_path / "out.gguf")
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path, tiny_checkpoint, tiny_target):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(OutputError, match="permission denied"):
        api.convert(tiny_checkpoint, tiny_target, "F16", folder / "out.gguf")


def test_two_slabs_and_many_threads_give_the_same_bytes(tmp_path, tiny_checkpoint, tiny_target, monkeypatch):
    one = converted((tiny_checkpoint, tiny_target), "Q4_K_M", tmp_path, n_threads=1).read_bytes()
    monkeypatch.setattr(rows, "SLAB", 4096)
    assert converted((tiny_checkpoint, tiny_target), "Q4_K_M", tmp_path, n_threads=7, force=True).read_bytes() == one
