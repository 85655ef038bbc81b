"""Sources that are not plain floats, read back from the finished file: FP8, NVFP4, MXFP4, patched rows, blocks."""

from __future__ import annotations

import gguf
import gguf.quants
import numpy as np
import pytest
import tiny
import zoo
from families import changed, target_of
from zoo.files import WIDTHS, Stored, floats
from zoo.small_floats import E2M1, E4M3, e4m3
from zoo.torch_file import mask_embedding

from dflash_gguf.convert import api, rows
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.errors import QuantizeError

GATE = "layers.0.mlp.gate_proj"
BUILT = "blk.0.ffn_gate.weight"


@pytest.fixture(params=[1 << 22, 5000], ids=["one slab", "many slabs"])
def slab(request, monkeypatch):
    """Rows read at once, and few at a time."""
    monkeypatch.setattr(rows, "SLAB", request.param)


def convert(folder, name, content, quant="F32", **target):
    checkpoint = zoo.write_content(folder / "drafter", content)
    overrides = Overrides(**zoo.FAMILIES[name].options)
    result = api.convert(checkpoint, target_of(name, **target), quant, folder / "out.gguf", overrides=overrides)
    return {tensor.name: tensor for tensor in gguf.GGUFReader(result.path).tensors}


def values(tensor):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def e4m3_values(data, shape):
    bits = np.frombuffer(data, np.uint8).reshape(shape)
    return np.where(bits & 128, -1, 1).astype(np.float32) * E4M3[bits & 127]


@pytest.mark.usefixtures("slab")
@pytest.mark.parametrize("shape", [(), (512,), (512, 1), (4, 2)])
def test_fp8_times_its_factors(tmp_path, shape):
    content = zoo.content("modelopt-v1-fp8")
    factors = np.random.default_rng(1).uniform(0.5, 2, shape).astype(np.float32)
    extra = {f"{GATE}.weight_scale": Stored("F32", shape, factors.tobytes())}
    found = convert(tmp_path, "modelopt-v1-fp8", changed(content, tensors=extra))[BUILT]
    weights = e4m3_values(content.tensors[f"{GATE}.weight"].data, (512, 256))
    grid = factors.repeat(128, 0).repeat(128, 1) if shape == (4, 2) else factors.reshape(-1, 1)
    assert np.array_equal(values(found), weights * grid)


def test_e5m2_is_half_of_f16(tmp_path, monkeypatch):
    monkeypatch.setitem(WIDTHS, "F8_E5M2", 1)
    content = zoo.content("modelopt-v1-fp8")
    halves = np.random.default_rng(2).standard_normal((512, 256)).astype(np.float16)
    upper = (halves.view(np.uint16) >> 8).astype(np.uint8)
    extra = {f"{GATE}.weight": Stored("F8_E5M2", (512, 256), upper.tobytes()), f"{GATE}.weight_scale": one_scale()}
    found = convert(tmp_path, "modelopt-v1-fp8", changed(content, tensors=extra))[BUILT]
    assert np.array_equal(values(found), (upper.astype(np.uint16) << 8).view(np.float16).astype(np.float32))


def one_scale():
    return Stored("F32", (), np.float32(1).tobytes())


@pytest.mark.usefixtures("slab")
def test_nvfp4_keeps_every_value(tmp_path):
    content = zoo.content("nemotron-v1")
    tensors = convert(tmp_path, "nemotron-v1", content, "BF16")
    packed = np.frombuffer(content.tensors[f"{GATE}.weight"].data, np.uint8).reshape(512, 128)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(512, 256)
    scales = e4m3_values(content.tensors[f"{GATE}.weight_scale"].data, (512, 16)).repeat(16, 1)
    expected = np.where(codes & 8, -1, 1) * E2M1[codes & 7] * scales
    assert tensors[BUILT].tensor_type.name == "NVFP4"
    assert np.array_equal(values(tensors[BUILT]), expected.astype(np.float32))
    for part, name in (("weight_scale_2", "scale"), ("input_scale", "input_scale")):
        assert tensors[f"blk.0.ffn_gate.{name}"].data.tobytes() == content.tensors[f"{GATE}.{part}"].data


@pytest.mark.usefixtures("slab")
def test_mxfp4_experts_keep_every_value(tmp_path):
    content = zoo.content("deepseek4")
    found = values(convert(tmp_path, "deepseek4", content, "BF16")["blk.1.ffn_down_exps.weight"])
    for i in range(4):
        stem = f"mtp.1.ffn.experts.{i}.w2"
        packed = np.frombuffer(content.tensors[f"{stem}.weight"].data, np.uint8).reshape(256, 64)
        codes = np.stack([packed & 15, packed >> 4], -1).reshape(256, 128)
        exponents = np.frombuffer(content.tensors[f"{stem}.scale"].data, np.uint8).reshape(256, 4).astype(np.int32)
        scales = np.ldexp(np.float32(1), exponents - 127).repeat(32, 1)
        assert np.array_equal(found[i], np.where(codes & 8, -1, 1) * E2M1[codes & 7] * scales)


@pytest.mark.usefixtures("slab")
@pytest.mark.parametrize("quant", ["F32", "Q8_0"])
@pytest.mark.parametrize("kind", ["BF16", "F16", "F32", "Q8_0"])
def test_one_row_is_replaced(tmp_path, kind, quant):
    row = np.linspace(-3, 3, 256, dtype=np.float32)
    content = zoo.content("zlab-v1-old")
    content.files["mask_embedding.pt"] = mask_embedding(3, row, "F32")
    tensors = convert(tmp_path, "zlab-v1-old", content, quant, type=kind)
    theirs = {t.name: t for t in gguf.GGUFReader(target_of("zlab-v1-old", type=kind)).tensors}
    found, expected = values(tensors["token_embd.weight"]), values(theirs["token_embd.weight"]).copy()
    expected[3] = row
    limit = {"F32": 1e-2, "Q8_0": 3e-2}[quant]
    assert np.abs(found - expected).max() <= limit
    if quant == "F32":
        assert np.array_equal(np.delete(found, 3, 0), np.delete(expected, 3, 0))
        assert np.array_equal(found[3], row if kind in ("F32", "Q8_0") else tiny.stored_values(row, kind))
    assert np.abs(values(tensors["output.weight"]) - values(theirs["output.weight"])).max() <= limit


def test_blocks_of_the_target_become_floats_or_stay(tmp_path):
    content = changed(zoo.content("zlab-v1-old"), tensors=floats({"embed_tokens.weight": np.ones((512, 256))}))
    theirs = {t.name: t for t in gguf.GGUFReader(target_of("zlab-v1-old", type="Q8_0")).tensors}["output.weight"]
    same = convert(tmp_path, "zlab-v1-old", content, "Q8_0", type="Q8_0")["output.weight"]
    assert same.data.tobytes() == theirs.data.tobytes()
    (tmp_path / "f").mkdir()
    plain = convert(tmp_path / "f", "zlab-v1-old", content, "F32", type="Q8_0")["output.weight"]
    assert np.array_equal(values(plain), values(theirs))


@pytest.mark.usefixtures("slab")
def test_interleaved_heads_of_quantized_weights(tmp_path):
    for name, stem in (("modelopt-v1-fp8", "layers.0.self_attn.q_proj"), ("zlab-v1-old", "layers.0.self_attn.q_proj")):
        folder = tmp_path / name
        folder.mkdir()
        content = zoo.content(name)
        plain = values(convert(folder, name, content)["blk.0.attn_q.weight"])
        (folder / "turned").mkdir()
        turned = changed(content, rope_is_neox_style=False)
        found = values(convert(folder / "turned", name, turned)["blk.0.attn_q.weight"])
        heads = plain.reshape(-1, 64, 256)
        assert np.array_equal(found, np.concatenate([heads[:, 0::2], heads[:, 1::2]], 1).reshape(-1, 256)), stem


def spoiled(content, name, place, byte):
    stored = content.tensors[name]
    data = bytearray(stored.data)
    data[place] = byte
    return changed(content, tensors={name: Stored(stored.dtype, stored.shape, bytes(data))})


@pytest.mark.parametrize(
    ("family", "name", "byte", "message"),
    [
        ("modelopt-v1-fp8", f"{GATE}.weight", 0x7F, "a value is not finite"),
        ("nemotron-v1", f"{GATE}.weight_scale", 0x7F, "a scale is not a number"),
        ("nemotron-v1", f"{GATE}.weight_scale", 0x90, "a scale is negative"),
        ("deepseek4", "mtp.0.ffn.experts.0.w1.scale", 0xFF, "a scale is not a number"),
        ("deepseek4", "mtp.0.main_proj.scale", 0xFF, "a value is not finite"),
    ],
)
def test_small_floats_that_are_no_numbers_name_their_tensor(tmp_path, family, name, byte, message):
    content = spoiled(zoo.content(family), name, 0, byte)
    with pytest.raises(QuantizeError, match=f"tensor `.*`: {message}"):
        convert(tmp_path, family, content, "BF16")
    assert [path.name for path in tmp_path.iterdir()] == ["drafter"]


def test_e4m3_of_the_zoo_is_the_tables():
    assert np.array_equal(e4m3_values(e4m3(E4M3).tobytes(), E4M3.shape), E4M3)
