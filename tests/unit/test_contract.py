"""What libllama demands of a file: sound files have no fault, and each demand has one that breaks it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import pytest
import tiny
import tiny_architectures
import zoo
from families import target_of

from dflash_gguf import pair
from dflash_gguf.contract.architectures import DEMANDS
from dflash_gguf.contract.drafter import drafter_findings
from dflash_gguf.contract.pre_tokenizers import PRE_TOKENIZERS
from dflash_gguf.contract.target import target_findings
from dflash_gguf.convert import api
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.convert.vocab.pre import PRE_TOKENIZERS as GIVEN
from dflash_gguf.findings import errors_of
from dflash_gguf.gguf_header import read_header
from dflash_gguf.schema import TAP_TARGETS

if TYPE_CHECKING:
    from pathlib import Path


UINT16 = gguf.GGUFValueType.UINT16


def faults(path: Path) -> list[str]:
    return [str(finding) for finding in target_findings(read_header(path))]


def test_every_architecture_that_takes_a_drafter_has_its_demands_and_a_tiny_file() -> None:
    assert set(DEMANDS) == set(TAP_TARGETS) == set(tiny_architectures.ARCHITECTURES)


@pytest.mark.parametrize("arch", sorted(TAP_TARGETS))
def test_a_sound_target_has_no_fault(arch: str, tmp_path: Path) -> None:
    path = tiny_architectures.write(tmp_path / "target.gguf", arch)
    assert faults(path) == []
    pair.check_alone(read_header(path))


@pytest.mark.parametrize("name", sorted(zoo.FAMILIES))
def test_a_converted_drafter_has_no_fault(name: str, tmp_path: Path) -> None:
    checkpoint = zoo.write_checkpoint(name, tmp_path)
    options = Overrides(**zoo.FAMILIES[name].options)
    path = api.convert(checkpoint, target_of(name), "BF16", tmp_path / "d.gguf", overrides=options).path
    assert errors_of(drafter_findings(read_header(path))) == ()


@pytest.mark.parametrize(
    ("arch", "extra", "drop"),
    [
        ("deepseek4", {"deepseek4.attention.compress_ratios": [0, 4, 128, 0, 0]}, ()),
        ("deepseek4", {"deepseek4.embedding_length_out": 64}, ()),
        ("deepseek4", {}, ("deepseek4.embedding_length_out",)),
        ("bailingmoe3", {"bailingmoe3.attention.value_length": 16}, ()),
        ("bailingmoe3", {}, ("bailingmoe3.attention.value_length",)),
        ("bailingmoe3", {"bailingmoe3.rope.dimension_sections": [2, 1, 1, 0]}, ()),
        ("bailingmoe3", {"bailingmoe3.kda.safe_gate": True}, ()),
        ("mimo2", {"mimo2.expert_gating_func": 2}, ()),
        ("mimo2", {"mimo2.attention.sliding_window_pattern": [1, 0, 1, 0]}, ()),
        ("mimo2", {"mimo2.attention.head_count_kv": [2, 1, 2, 1]}, ()),
        ("nemotron_h_moe", {"nemotron_h_moe.expert_used_count": [0, 0, 0, 2]}, ()),
        ("nemotron_h_moe", {"nemotron_h_moe.expert_feed_forward_length": [0, 0, 0, 32]}, ()),
        ("nemotron_h_moe", {"nemotron_h_moe.expert_group_count": 1, "nemotron_h_moe.expert_group_used_count": 1}, ()),
        ("gemma4", {"gemma4.rope.dimension_count": 16, "gemma4.rope.dimension_count_swa": 16}, ()),
        ("gemma4", {"gemma4.attention.shared_kv_layers": 2}, ()),
        ("gemma4", {"gemma4.feed_forward_length": [64, 64, 128, 128]}, ()),
        ("gemma4", {"gemma4.attention.head_count_kv": [2, 1, 2, 1]}, ()),
        ("hunyuan-dense", {"hunyuan-dense.expert_count": 1, "hunyuan-dense.expert_used_count": 1}, ()),
        ("gpt-oss", {"gpt-oss.attention.sliding_window_pattern": 2}, ()),
        ("minimax-01", {"minimax-01.attention.recurrent_layers": [True, False, True, False]}, ()),
        ("qwen35", {"qwen35.nextn_predict_layers": 1}, ()),
        ("qwen3", {"tokenizer.ggml.add_bos_token": True}, ()),
        ("qwen3", {"tokenizer.ggml.add_bos_token": True}, ("tokenizer.ggml.bos_token_id",)),
        ("llama", {"llama.rope.dimension_count": 16, "llama.vocab_size": 320}, ()),
    ],
)
def test_what_converters_write_is_no_fault(
    arch: str, extra: dict[str, Any], drop: tuple[str, ...], tmp_path: Path
) -> None:
    """Source: llama.cpp conversion/*.py (0.5.0)."""
    assert faults(tiny_architectures.write(tmp_path / "target.gguf", arch, extra_keys=extra, drop_keys=drop)) == []


ROUTER = "blk.1.ffn_gate_inp.weight"


@pytest.mark.parametrize(
    ("arch", "types"),
    [
        ("qwen3moe", {ROUTER: "BF16"}),
        ("gpt-oss", {f"blk.0.ffn_{name}_exps.weight": "MXFP4" for name in ("gate", "up", "down")}),
        ("qwen35moe", {"blk.0.ffn_gate_inp_shexp.weight": "F16"}),
        ("deepseek4", {"blk.1.attn_compressor_ape.weight": "BF16", "blk.0.hc_attn_fn.weight": "BF16"}),
        ("qwen3", {"token_embd.weight": "Q8_0", "output.weight": "Q4_0"}),
    ],
)
def test_types_that_ggml_computes_with(arch: str, types: dict[str, str], tmp_path: Path) -> None:
    assert faults(tiny_architectures.write(tmp_path / "target.gguf", arch, types=types)) == []


CASES: list[tuple[str, dict[str, Any], str]] = [
    # every architecture
    ("qwen3", {"qwen3.block_count": 0}, "`qwen3.block_count` is not within 1 to 512"),
    ("qwen3", {"qwen3.attention.head_count_kv": 3}, "`qwen3.attention.head_count_kv` does not divide the 4 heads"),
    ("qwen3", {"qwen3.rope.scaling.type": "dynamic"}, "`qwen3.rope.scaling.type` is none of none, linear"),
    ("qwen3", {"qwen3.embedding_length_out": 128}, "`qwen3.embedding_length_out` is not its hidden size"),
    ("qwen3", {"qwen3.nextn_predict_layers": 4}, "`qwen3.nextn_predict_layers` leaves none of the 4 layers"),
    ("qwen3", {"qwen3.expert_used_count": 1}, "`qwen3.expert_used_count` is not within 0 to the 0 experts"),
    ("qwen3moe", {"qwen3moe.expert_used_count": 5}, "`qwen3moe.expert_used_count` is not within 1 to the 4 experts"),
    ("qwen3moe", {"qwen3moe.expert_group_count": 3}, "experts are not in groups: 4 in 3"),
    ("qwen3moe", {"qwen3moe.expert_feed_forward_length": 0}, "`qwen3moe.expert_feed_forward_length` is not within 1"),
    ("qwen3", {"qwen3.attention.layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon` is not within 1e-38"),
    # heads
    ("qwen35", {"qwen35.attention.value_length": 8}, "heads are not as long for keys (16) as for values"),
    ("qwen3", {"qwen3.rope.dimension_count": 8}, "`qwen3.rope.dimension_count` is not the length of a head, 16"),
    ("minimax-m2", {"minimax-m2.rope.dimension_count": 7}, "is not an even number from 2 to the head's 16"),
    ("llama", {"llama.attention.head_count_kv": [2, 2, 1, 2]}, "layers do not all have as many key heads"),
    ("gemma4", {"gemma4.attention.key_length_swa": 8}, "is not an even number from 2 to the 8 of a head in a window"),
    ("gemma4", {"gemma4.rope.dimension_count_swa": 3}, "is not an even number from 2 to the 16 of a head in a window"),
    ("gpt-oss", {"gpt-oss.rope.dimension_count_swa": 14}, "`gpt-oss.rope.dimension_count_swa` is not 16, as in layers"),
    ("mimo2", {"mimo2.attention.value_length_swa": 8}, "`mimo2.attention.value_length_swa` is not 16, as in layers"),
    # windows
    ("gpt-oss", {"gpt-oss.attention.sliding_window_pattern": 1}, "sliding_window_pattern` leaves no layer that slides"),
    ("mimo2", {"mimo2.attention.sliding_window_pattern": [False] * 4}, "sliding_window_pattern` names no layer"),
    ("gemma4", {"gemma4.attention.sliding_window": 0}, "`gemma4.attention.sliding_window` is not within 1 to 16777216"),
    ("gemma4", {"gemma4.attention.shared_kv_layers": 1}, "does not leave a sliding layer and a full one to share"),
    # experts
    ("minimax-m2", {"minimax-m2.expert_gating_func": 5}, "`minimax-m2.expert_gating_func` is not within 1 to 4"),
    ("lfm2moe", {"lfm2moe.expert_count": 0, "lfm2moe.expert_used_count": 0}, "but only the first 2 layers are dense"),
    ("qwen3moe", {"qwen3moe.expert_used_count": [2, 0, 2, 2]}, "`qwen3moe.expert_used_count` is not within 1 to the 4"),
    (
        "nemotron_h_moe",
        {"nemotron_h_moe.expert_used_count": [2, 0, 0, 0]},
        "expert_used_count` is 0 in a layer of exper",
    ),
    # sections
    ("qwen35", {"qwen35.rope.dimension_sections": [0, 0, 0, 8]}, "`qwen35.rope.dimension_sections` is not 3 or 4"),
    # recurrent states
    ("qwen35", {"qwen35.full_attention_interval": 0}, "`qwen35.full_attention_interval` is not within 1"),
    ("qwen35", {"qwen35.ssm.group_count": 3}, "`qwen35.ssm.group_count` does not divide the 4 heads of the state"),
    ("qwen35", {"qwen35.ssm.inner_size": 32}, "`qwen35.ssm.inner_size` is not 4 heads of 16"),
    ("qwen3next", {"qwen3next.ssm.conv_kernel": 1}, "`qwen3next.ssm.conv_kernel` is not within 2"),
    ("nemotron_h", {"nemotron_h.ssm.group_count": 3}, "`nemotron_h.ssm.group_count` does not divide the state's 64"),
    ("nemotron_h", {"nemotron_h.ssm.time_step_rank": 1}, "`nemotron_h.ssm.group_count` does not divide the 1 heads"),
    ("nemotron_h", {"nemotron_h.ssm.time_step_rank": 0}, "`nemotron_h.ssm.time_step_rank` is not within 1"),
    ("minimax-01", {"minimax-01.full_attention_interval": 5}, "does not leave a layer of each kind"),
    ("minimax-01", {"minimax-01.attention.recurrent_layers": [True] * 4}, "does not leave a layer of each kind"),
    ("lfm2", {"lfm2.shortconv.l_cache": 1}, "`lfm2.shortconv.l_cache` is not within 2"),
    ("bailingmoe3", {"bailingmoe3.kda.safe_gate": False}, "`bailingmoe3.kda.safe_gate` is false"),
    ("bailingmoe3", {"bailingmoe3.kda.gate_lower_bound": 0.0}, "`bailingmoe3.kda.gate_lower_bound` is not within"),
    ("bailingmoe3", {"bailingmoe3.attention.key_length": 38}, "heads are not as long as a rank of 32 and 8 turned"),
    ("bailingmoe3", {"bailingmoe3.attention.key_length_mla": 0}, "`bailingmoe3.attention.key_length_mla` is not"),
    ("bailingmoe3", {"bailingmoe3.ssm.conv_kernel": 0}, "`bailingmoe3.ssm.conv_kernel` is not within 2"),
    ("nanbeige", {"nanbeige.num_loops": 200}, "`nanbeige.num_loops` makes more than 512 layers"),
    # streams
    ("deepseek4", {"deepseek4.hyper_connection.count": 2}, "`deepseek4.hyper_connection.count` is not within 4 to 4"),
    ("deepseek4", {"deepseek4.hyper_connection.sinkhorn_iterations": 0}, "sinkhorn_iterations` is not within 1 to 32"),
    ("deepseek4", {"deepseek4.hyper_connection.sinkhorn_iterations": 33}, "sinkhorn_iterations` is not within 1 to 32"),
    ("deepseek4", {"deepseek4.attention.output_group_count": 3}, "output_group_count` does not divide the 4 heads"),
    ("deepseek4", {"deepseek4.attention.head_count_kv": 2}, "layers do not all share one head of keys and values"),
    ("deepseek4", {"deepseek4.attention.compress_ratios": [0, 4, 128]}, "does not have an entry for each of the 4"),
    ("deepseek4", {"deepseek4.attention.compress_ratios": [0, 4, 7, 0]}, "compress_ratios` knows 0, 4, 128"),
    ("deepseek4", {"deepseek4.attention.indexer.key_length": 63}, "indexer.key_length` is no multiple of 64"),
    ("deepseek4", {"deepseek4.attention.indexer.top_k": 0}, "`deepseek4.attention.indexer.top_k` is not within 1"),
    ("deepseek4", {"deepseek4.expert_gating_func": 2}, "`deepseek4.expert_gating_func` is not within 4 to 4"),
]


@pytest.mark.parametrize(("arch", "extra", "message"), CASES)
def test_one_demand_unmet(arch: str, extra: dict[str, Any], message: str, tmp_path: Path) -> None:
    found = faults(tiny_architectures.write(tmp_path / "target.gguf", arch, extra_keys=extra))
    assert any(message in text for text in found), found


@pytest.mark.parametrize(
    ("arch", "drop", "message"),
    [
        ("qwen35", "blk.0.attn_gate.weight", "layer 0 lacks `blk.0.attn_qkv.weight` and `blk.0.attn_gate.weight`"),
        ("nemotron_h", "blk.3.ssm_conv1d.bias", "tensor `blk.3.ssm_conv1d.bias` is missing"),
    ],
)
def test_a_tensor_that_only_the_graph_needs(arch: str, drop: str, message: str, tmp_path: Path) -> None:
    (text,) = faults(tiny_architectures.write(tmp_path / "target.gguf", arch, drop_tensors=[drop]))
    assert message in text


@pytest.mark.parametrize(
    ("arch", "name", "kind", "needed"),
    [
        ("qwen3", "output_norm.weight", "F16", "F32 is needed"),
        ("qwen3", "blk.0.attn_q.weight", "I32", "a float or quantized type is needed"),
        ("gpt-oss", "blk.0.ffn_gate_exps.bias", "BF16", "F32 is needed"),
        ("gpt-oss", "blk.0.attn_sinks.weight", "F16", "F32 is needed"),
        ("lfm2", "blk.0.shortconv.conv.weight", "F16", "F32 is needed"),
        ("qwen35", "blk.0.ssm_a", "BF16", "F32 is needed"),
        ("deepseek4", "blk.0.hc_attn_base.weight", "F16", "F32 is needed"),
        ("deepseek4", "blk.0.ffn_gate_tid2eid.weight", "F32", "I32 is needed"),
        ("nemotron_h", "blk.0.ssm_norm.weight", "F16", "F32 is needed"),
    ],
)
def test_a_type_that_ggml_has_no_kernel_for(arch: str, name: str, kind: str, needed: str, tmp_path: Path) -> None:
    (text,) = faults(tiny_architectures.write(tmp_path / "target.gguf", arch, types={name: kind}))
    assert text.startswith(f"the target's tensor `{name}` cannot be computed with: {needed} (target {kind})")


def test_nvfp4_with_both_a_bias_and_a_factor(tmp_path: Path) -> None:
    up = "blk.0.ffn_up"
    shapes = {f"{up}.bias": (64,), f"{up}.scale": (1,)}
    path = tiny_architectures.write(tmp_path / "t.gguf", "llama", types={f"{up}.weight": "NVFP4"}, shapes=shapes)
    (text,) = faults(path)
    assert f"tensor `{up}.weight` has both a bias and a factor" in text
    del shapes[f"{up}.bias"]
    path = tiny_architectures.write(tmp_path / "t.gguf", "llama", types={f"{up}.weight": "NVFP4"}, shapes=shapes)
    assert faults(path) == []


def test_nvfp4_embeddings_that_stand_for_a_head_with_a_factor(tmp_path: Path) -> None:
    options: dict[str, Any] = {"types": {"token_embd.weight": "NVFP4"}, "drop_tensors": ["output.weight"]}
    assert faults(tiny_architectures.write(tmp_path / "t.gguf", "qwen3", **options)) == []
    path = tiny_architectures.write(tmp_path / "t.gguf", "qwen3", shapes={"output.scale": (1,)}, **options)
    (text,) = faults(path)
    assert "`token_embd.weight` stands for the head too" in text


def shards(folder: Path, *, drop: tuple[str, ...] = (), number: tuple[Any, ...] = (1, UINT16)) -> Path:
    """A target in two parts, the second of which has the layers from 2 on."""
    rows = tiny_architectures.rows_of("qwen35")
    second = {name for name in rows if name.startswith(("blk.2.", "blk.3."))} | {"blk.1.attn_output.weight"}
    paths = [folder / f"t-{part}-of-00002.gguf" for part in ("00001", "00002")]
    for index, (path, left_out) in enumerate(zip(paths, (second, rows.keys() - second), strict=True)):
        keys = {"split.count": (2, UINT16), "split.no": (0, UINT16) if index == 0 else number}
        tiny_architectures.write(path, "qwen35", extra_keys=keys, drop_tensors={*left_out, *drop})
    return paths[0]


def test_shards_are_judged_as_one_file(tmp_path: Path) -> None:
    assert faults(shards(tmp_path)) == []
    (text,) = faults(shards(tmp_path, drop=("blk.2.attn_gate.weight",)))
    assert "layer 2 lacks `blk.2.attn_qkv.weight` and `blk.2.attn_gate.weight`" in text
    path = shards(tmp_path, number=(1, gguf.GGUFValueType.UINT32))
    (text,) = faults(path)
    assert "-00002-of-00002.gguf` is not uint16 (target uint32)" in text
    (tmp_path / "t-00002-of-00002.gguf").unlink()
    assert faults(path) == []  # libllama tells of the missing one


def test_a_drafter_in_shards(tmp_path: Path) -> None:
    keys = {"split.count": (2, UINT16), "split.no": (0, UINT16)}
    header = read_header(tiny.write_drafter(tmp_path / "d.gguf", layers=1, extra_keys=keys))
    (finding,) = drafter_findings(header)
    assert finding.what == "the drafter's file is one of several shards"


def test_special_tokens_that_are_not_there_are_passed_over(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"tokenizer.ggml.padding_token_id": 320, "tokenizer.ggml.eot_token_id": (1 << 32) - 1}
    found = target_findings(read_header(tiny_architectures.write(tmp_path / "t.gguf", "qwen3", extra_keys=keys)))
    assert [(finding.level, finding.target_value) for finding in found] == [
        ("warning", (1 << 32) - 1),
        ("warning", 320),
    ]
    keys = {"tokenizer.ggml.bos_token_id": 320, "tokenizer.ggml.model": "gemma4"}
    found = target_findings(read_header(tiny_architectures.write(tmp_path / "t.gguf", "qwen3", extra_keys=keys)))
    assert [finding.level for finding in found] == ["warning", "error"]


def test_layers_that_predict_further_tokens_may_be_left_out(tmp_path: Path) -> None:
    keys = {"qwen35.nextn_predict_layers": 1, "qwen35.block_count": 5}
    assert faults(tiny_architectures.write(tmp_path / "t.gguf", "qwen35", extra_keys=keys)) == []


@pytest.mark.parametrize("pre", ["newest", "Qwen2", "qwen2 "])
def test_a_pre_tokenizer_that_the_loader_refuses(pre: str, tmp_path: Path) -> None:
    extra = {"tokenizer.ggml.pre": pre}
    drafter = tiny.write_drafter(tmp_path / "d.gguf", extra_keys=extra)
    (found,) = errors_of(drafter_findings(read_header(drafter)))
    assert f"none that libllama 0.5.0 knows, which refuses the file (drafter '{pre}'); take the target's" in str(found)
    (told,) = faults(tiny_architectures.write(tmp_path / "t.gguf", "qwen3", extra_keys=extra))
    assert told.endswith("or convert the model with that of llama.cpp 0.5.0")


@pytest.mark.parametrize("pre", ["", "default", "kimi-k2", "qwen35"])
def test_pre_tokenizers_that_the_loader_takes(pre: str, tmp_path: Path) -> None:
    path = tiny.write_drafter(tmp_path / "d.gguf", extra_keys={"tokenizer.ggml.pre": pre})
    assert errors_of(drafter_findings(read_header(path))) == ()


def test_every_name_that_the_converter_gives_to_byte_pairs_is_known() -> None:
    of_word_pieces = {"bert-bge-large", "jina-v2-en"}
    assert set(GIVEN.values()) - of_word_pieces <= PRE_TOKENIZERS


BY_REKEYING = {
    "no mask": ({"drop_keys": ["tokenizer.ggml.mask_token_id"]}, "--mask-token-id"),
    "a far mask": ({"mask": 4000}, "--mask-token-id"),
    "no taps": ({"drop_keys": ["dflash.target_layers"]}, "--target-layers"),
    "a tap twice": ({"taps": (1, 1, 2)}, "--target-layers"),
    "no block": ({"drop_keys": ["dflash.block_size"]}, "--block-size"),
    "a block of one": ({"block": 1}, "--block-size"),
    "no pattern": ({"extra_keys": {"dflash.attention.sliding_window": 8}}, "--sliding-layers"),
    "no tokens": ({"drop_keys": ["tokenizer.ggml.tokens"]}, "--target"),
    "no tokenizer": ({"drop_keys": ["tokenizer.ggml.model"]}, "--target"),
    "no vocabulary": ({"extra_keys": {"tokenizer.ggml.model": "none"}}, "--target"),
    "no context": ({"drop_keys": ["dflash.context_length"]}, "--context-length"),
    "no epsilon": ({"drop_keys": ["dflash.attention.layer_norm_rms_epsilon"]}, "--rms-eps"),
    "no base": ({"extra_keys": {"dflash.rope.freq_base": 0.0}}, "--rope-theta"),
    "a type of causality": ({"extra_keys": {"dflash.attention.causal": 1}}, "--causal/--no-causal"),
}


@pytest.mark.parametrize("name", BY_REKEYING)
def test_what_rekeying_mends_is_sent_to_it(name: str, tmp_path: Path) -> None:
    options, flag = BY_REKEYING[name]
    path = tiny.write_drafter(tmp_path / "d.gguf", kind="dflash", **options)
    remedies = [finding.remedy for finding in errors_of(drafter_findings(read_header(path)))]
    assert any(
        remedy.startswith(f"mend the file with `dflash-gguf rekey` and `{flag}`, or conv") for remedy in remedies
    )


def test_a_lattice_too_wide_names_its_limit(tmp_path: Path) -> None:
    path = tiny.write_drafter(tmp_path / "d.gguf", hidden=64, top_k=8)
    (found,) = errors_of(drafter_findings(read_header(path)))
    assert "top_k * (top_k + 1) may be at most the hidden size, 64" in found.what
    assert "`--selector-top-k`" in found.remedy
    assert "get the drafter again" in found.remedy
    assert "convert" not in found.remedy
