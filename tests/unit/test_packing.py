"""Quantized checkpoints: FP8 and NVFP4 with all their parts, every other packing refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import zoo
from families import changed, planned
from zoo.files import Stored, floats, whole

from dflash_gguf.convert.sources import F32, NVFP4, Fp8, Nvfp4
from dflash_gguf.errors import CheckpointError

FP8 = "modelopt-v1-fp8"
BLOCKS = "block-fp8-v1"
NVFP4_V1 = "nemotron-v1"
GATE = "layers.0.mlp.gate_proj"


def source(plan, name):
    return next(tensor.source for tensor in plan.tensors if tensor.name == name)


def with_parts(name, **parts):
    """A family with parts of one weight replaced, or taken out where they are None."""
    content = zoo.content(name)
    drop = [f"{GATE}.{part}" for part, tensor in parts.items() if tensor is None]
    return changed(content, drop=drop, tensors={f"{GATE}.{p}": t for p, t in parts.items() if t is not None})


def scales(*shape, dtype="F32"):
    return floats({"": np.ones(shape, np.float32)}, dtype)[""]


@pytest.mark.parametrize(
    ("shape", "block"),
    [((), (512, 256)), ((1,), (512, 256)), ((1, 1), (512, 256)), ((512,), (1, 256)), ((512, 1), (1, 256))],
)
def test_fp8_factors_of_a_tensor_and_of_rows(tmp_path, shape, block):
    found = source(planned(tmp_path, FP8, with_parts(FP8, weight_scale=scales(*shape))), "blk.0.ffn_gate.weight")
    assert isinstance(found, Fp8)
    assert (found.type, found.scales.block) == (F32, block)


def test_fp8_factors_of_blocks(tmp_path):
    found = source(planned(tmp_path, BLOCKS), "blk.0.ffn_gate.weight")
    assert (found.scales.shape, found.scales.block) == ((4, 2), (128, 128))


def test_blocks_of_another_size(tmp_path):
    content = with_parts(BLOCKS, weight_scale_inv=scales(8, 4))
    with pytest.raises(CheckpointError, match=r"the factors of FP8 tensor `layers.0.mlp.gate_proj.weight`"):
        planned(tmp_path, BLOCKS, content)


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        (FP8, {"weight_scale": None}, r"FP8 tensor `.*gate_proj.weight`: got 'no factors'"),
        (FP8, {"weight_scale_inv": scales(), "scale": scales()}, "`.*weight_scale_inv` and `.*weight_scale`"),
        (FP8, {"weight_scale": scales(3)}, r"F32 \[3\]"),
        (FP8, {"weight_scale": whole(np.zeros((), np.int64))}, r"I64 \[\]"),
        (FP8, {"weight": Stored("F8_E4M3", (512 * 256,), bytes(512 * 256))}, "a matrix with one"),
        (NVFP4_V1, {"weight_scale": scales(512, 16)}, "with F32 scales"),
        (NVFP4_V1, {"weight_scale": Stored("F8_E4M3", (512, 8), bytes(512 * 8))}, r"scales of \[512, 8\]"),
        (NVFP4_V1, {"weight_scale": None}, "unknown: `.*gate_proj.weight_scale_2`"),
        (NVFP4_V1, {"weight_scale_2": scales(2)}, "`.*weight_scale_2`: got 'F32 .2.'"),
        (NVFP4_V1, {"weight_scale_2": floats({"": np.zeros(())})[""]}, "a positive number"),
        (NVFP4_V1, {"weight_scale_2": floats({"": np.array(np.nan)}, "F32")[""]}, "a positive number"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit(tmp_path, name, parts, message):
    with pytest.raises(CheckpointError, match=message):
        planned(tmp_path, name, with_parts(name, **parts))


@pytest.mark.parametrize(
    "ending", ["qweight", "qzeros", "g_idx", "weight_packed", "weight_zero_point", "absmax", "SCB"]
)
def test_other_packings_are_refused(tmp_path, ending):
    extra = {f"{GATE}.{ending}": whole(np.zeros((4, 4), np.int32))}
    with pytest.raises(CheckpointError, match=rf"tensor `{GATE}.{ending}` is packed by a scheme"):
        planned(tmp_path, "zlab-v1-old", changed(zoo.content("zlab-v1-old"), tensors=extra))


def test_a_scheme_is_named_with_its_groups(tmp_path):
    with pytest.raises(CheckpointError, match=r"compressed-tensors nvfp4-pack-quantized \(group_0, group_1\)"):
        planned(tmp_path, "zlab-v1-old", zoo.content("compressed-nvfp4"))


def test_a_config_inherited_from_a_quantized_target_means_nothing(tmp_path):
    scheme = {"quant_method": "gptq", "bits": 4, "weight_block_size": [128, 128]}
    content = changed(zoo.content("zlab-v1-old"), quantization_config=scheme)
    assert planned(tmp_path, "zlab-v1-old", content).tensors == planned(tmp_path, "zlab-v1-old").tensors


@pytest.mark.parametrize("block", [128, [128], [0, 128], ["a", 1], [128, 128, 1]])
def test_block_sizes_that_are_none(tmp_path, block):
    content = changed(zoo.content("zlab-v1-old"), quantization_config={"weight_block_size": block})
    with pytest.raises(CheckpointError, match="weight_block_size"):
        planned(tmp_path, "zlab-v1-old", content)


def test_nvfp4_is_kept_in_every_output_type(tmp_path):
    for quant in ("F32", "Q4_K_M"):
        plan = planned(tmp_path, NVFP4_V1, quant=quant)
        kinds = {tensor.name: tensor.type for tensor in plan.tensors}
        assert kinds["blk.0.ffn_gate.weight"] == NVFP4
        assert isinstance(source(plan, "blk.0.ffn_gate.weight"), Nvfp4)
        assert {"blk.0.ffn_gate.scale", "blk.0.ffn_gate.input_scale"} <= set(kinds)
    keys = {pair.key: pair.value for pair in planned(tmp_path, NVFP4_V1, quant="F16").keys}
    assert keys["general.file_type"] == 39


def test_a_scale_of_one_is_left_out(tmp_path):
    plan = planned(tmp_path, NVFP4_V1, with_parts(NVFP4_V1, weight_scale_2=scales(), input_scale=None))
    names = {tensor.name for tensor in plan.tensors}
    assert not {"blk.0.ffn_gate.scale", "blk.0.ffn_gate.input_scale"} & names


def test_nvfp4_where_llama_cpp_has_no_scale(tmp_path):
    content = zoo.content("nemotron-dspark")
    one = zoo.small_floats.nvfp4("markov_head.markov_w1.weight", np.ones((512, 64), np.float32))
    with pytest.raises(CheckpointError, match=r"no scale for `markov_w1.weight`"):
        planned(tmp_path, "nemotron-dspark", changed(content, tensors=one))


def test_weights_whose_inputs_stay_whole_are_listed(tmp_path):
    keys = {pair.key: pair.value for pair in planned(tmp_path, "nemotron-dspark").keys}
    names = keys["general.tensor_extra.name"]
    assert names == tuple(sorted(names))
    assert {"fc.weight", "markov_w2.weight", "blk.1.ffn_down.weight"} < set(names)
    assert keys["general.tensor_extra.prec_a4"] == (False,) * len(names)


def test_single_modules_may_have_their_own_algorithm(tmp_path):
    layers = {"model.layers.0.mlp.gate_proj": {"quant_algo": "W4A16_NVFP4"}, "layers.0.mlp": {"quant_algo": "NVFP4"}}
    layers["layers.1.mlp.up_proj"] = {"quant_algo": "W4A16_NVFP4"}
    scheme = {"quant_algo": "MIXED_PRECISION", "quant_method": "modelopt", "quantized_layers": layers}
    content = changed(zoo.content(NVFP4_V1), quantization_config=scheme)
    keys = {pair.key: pair.value for pair in planned(tmp_path, NVFP4_V1, content).keys}
    assert keys["general.tensor_extra.name"] == ("blk.0.ffn_gate.weight", "blk.1.ffn_up.weight")


@pytest.mark.parametrize("text", ['{"quantization": 3}', '{"quantization": {"quant_algo": 1}}'])
def test_a_side_file_that_says_nothing(tmp_path, text):
    content = changed(zoo.content(NVFP4_V1), quantization_config=...)
    content.files["hf_quant_config.json"] = text.encode()
    assert planned(tmp_path, NVFP4_V1, content).tensors


@pytest.mark.parametrize("text", ["[]", "{"])
def test_a_side_file_that_is_none(tmp_path, text):
    content = changed(zoo.content(NVFP4_V1), quantization_config=...)
    content.files["hf_quant_config.json"] = text.encode()
    with pytest.raises(CheckpointError, match="hf_quant_config"):
        planned(tmp_path, NVFP4_V1, content)
