"""Recipes for published drafters, taken apart again flag by flag."""

from __future__ import annotations

import json

import pytest
import tiny
from published import CONFIGS, TARGETS, write_config
from recipe_parts import MOE, MUSE, QWEN38, SMALL, V1, cook, flags, launch, step

import dflash_gguf as dg
from dflash_gguf.errors import TemplateError
from dflash_gguf.recipes.parts import BLOCK, DRAFTED
from dflash_gguf.recipes.table import ENGINES


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("published")
    return {name: write_config(parent, name) for name in CONFIGS}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a pair, it's $HOME")
    target = tiny.write_target(folder / "target Q8_0.gguf", **SMALL | {"layers": 2})
    return target, tiny.write_drafter(folder / "dflash-tiny.gguf", **SMALL)


def test_sglang(folders):
    made = cook("sglang", folders, QWEN38)
    assert launch(made) == {
        "": ["python"],
        "-m": "sglang.launch_server",
        "--model-path": "Qwen/Qwen3.8-27B",
        "--speculative-algorithm": "DFLASH",
        "--speculative-draft-model-path": str(folders[QWEN38]),
        "--speculative-num-draft-tokens": "8",
        "--speculative-draft-window-size": "2048",
        "--speculative-draft-attention-backend": "fa4",
    }
    assert step(made, "launch").exports == {}
    assert launch(cook("sglang", folders, MUSE))["--speculative-num-draft-tokens"] == "16"
    v1 = launch(cook("sglang", folders, V1))
    assert v1["--speculative-num-draft-tokens"] == "16"
    assert "--speculative-draft-window-size" not in v1


def test_a_large_mixture_of_experts_as_it_was_launched(folders):
    made = cook("sglang", folders, MOE, gpus=8, concurrency=32)
    assert step(made, "launch").exports == {"SGLANG_ENABLE_OVERLAP_PLAN_STREAM": "1"}
    found = launch(made)
    assert found.pop("--speculative-draft-window-size") == "4096"
    assert found == {
        "": ["python"],
        "-m": "sglang.launch_server",
        "--model-path": "Qwen/Qwen3.5-397B-A17B",
        "--trust-remote-code": True,
        "--speculative-algorithm": "DFLASH",
        "--speculative-draft-model-path": str(folders[MOE]),
        "--speculative-num-draft-tokens": "8",
        "--speculative-draft-attention-backend": "fa4",
        "--attention-backend": "trtllm_mha",
        "--tp-size": "8",
        "--max-running-requests": "32",
        "--cuda-graph-max-bs-decode": "32",
        "--mem-fraction-static": "0.8",
    }
    warnings = " ".join(made.warnings)
    assert "at 32 requests at once a drafter gains nothing" in warnings
    assert "CUDA graphs" in warnings


@pytest.mark.parametrize(("name", "drafted"), [(QWEN38, 7), (MUSE, 15), (V1, 15), (MOE, 7)])
def test_vllm(name, drafted, folders):
    found = launch(cook("vllm", folders, name, gpus=2, concurrency=16))
    assert json.loads(found.pop("--speculative-config")) == {
        "method": "dflash",
        "model": str(folders[name]),
        "num_speculative_tokens": drafted,
    }
    assert found == {
        "": ["vllm", "serve", TARGETS[name]],
        "--tensor-parallel-size": "2",
        "--max-num-seqs": "16",
    }
    install = step(cook("vllm", folders, name), "install").words[-1]
    assert install == ("vllm>=0.20" if name in (V1, MOE) else "vllm @ git+https://github.com/vllm-project/vllm.git")


def test_llama_server(folders, pair):
    made = dg.recipe("llama-server", target=pair[0], draft=pair[1])
    assert launch(made) == {
        "": ["llama.cpp/build/bin/llama-server"],
        "-m": str(pair[0]),
        "-md": str(pair[1]),
        "--spec-type": "draft-dflash",
        "--spec-draft-n-max": "7",
        "--parallel": "1",
    }
    made = cook("llama-server", folders, QWEN38, target="ggml-org/Qwen3.8-27B-GGUF:Q4_K_M", gpus=2)
    convert = flags(step(made, "make the drafter a GGUF").words)
    assert convert == {
        "": ["dflash-gguf", "convert", str(folders[QWEN38])],
        "--target": "ggml-org/Qwen3.8-27B-GGUF:Q4_K_M",
        "--quant": "Q4_K_M",
        "-o": "dflash-Qwen3.8-27B-GGUF-Q4_K_M.gguf",
    }
    found = launch(made)
    assert (found["-hf"], found["-md"]) == ("ggml-org/Qwen3.8-27B-GGUF:Q4_K_M", convert["-o"])
    assert (found["--spec-draft-n-max"], found["--split-mode"]) == ("7", "layer")
    assert launch(cook("llama-server", folders, MUSE))["--spec-draft-n-max"] == "15"
    placeholder = cook("llama-server", folders, V1)
    assert launch(placeholder)["-m"] == "TARGET_GGUF"
    assert any("takes a GGUF target" in warning for warning in placeholder.warnings)


def test_llama_server_reads_the_anchors_row_where_the_drafter_proposes_from_it(folders):
    for name in ("dspark_qwen3_4b_block7", "dflash_qwen3_4b_block7"):
        made = cook("llama-server", folders, name, target="org/Qwen3-4B-GGUF:Q8_0")
        found = launch(made)
        assert (found["--spec-type"], found["--spec-draft-n-max"]) == ("draft-dspark", "7")
        assert "the anchor's own row" in made.counting


def test_a_windowed_v1_drafter_is_converted_to_eight_bits(folders):
    made = cook("llama-server", folders, "Qwen3.6-27B-DFlash", target="org/Qwen3.6-27B-GGUF")
    assert flags(step(made, "make the drafter a GGUF").words)["--quant"] == "Q8_0"


def test_ollama_with_files(pair, folders):
    made = dg.recipe("ollama", target=pair[0], draft=pair[1])
    assert flags(step(made, "Modelfile").words) == {
        "": ["dflash-gguf", "modelfile"],
        "-m": str(pair[0]),
        "-md": str(pair[1]),
        "--draft-num-predict": "7",
        "-o": "Modelfile",
    }
    assert step(made, "create").words == ("ollama", "create", "target-q8_0-dflash", "-f", "Modelfile")
    assert any("0.33.0-rc2" in warning for warning in made.warnings)
    made = cook("ollama", folders, MUSE, target="org/Muse-Glimmer-30B-GGUF:Q4_K_M")
    assert flags(step(made, "Modelfile").words) == {
        "": ["dflash-gguf", "modelfile"],
        "-hf": "org/Muse-Glimmer-30B-GGUF:Q4_K_M",
        "-md": flags(step(made, "make the drafter a GGUF").words)["-o"],
        "--draft-num-predict": "15",
        "-o": "Modelfile",
    }
    assert not any("download" in each.title for each in made.steps)


def test_ollama_with_safetensors(folders):
    made = cook("ollama", folders, QWEN38, target="mlx-community/Qwen3.8-27B-4bit", mlx_bits=4)
    assert flags(step(made, "Modelfile").words) == {
        "": ["dflash-gguf", "modelfile"],
        "-m": "Qwen3.8-27B-4bit",
        "-md": str(folders[QWEN38]),
        "--draft-num-predict": "7",
        "--draft-quantize": "int4",
        "-o": "Modelfile",
    }
    assert step(made, "create").words == (
        *("./ollama", "create", "qwen3.8-27b-4bit-dflash", "-f", "Modelfile"),
        *("--experimental", "--draft-quantize", "int4"),
    )
    assert step(made, "take the pull request").words[-1] == "pull/17865/head:dflash2"
    with pytest.raises(TemplateError, match="two files of one kind"):
        dg.recipe("ollama", target="Qwen/Qwen3.8-27B", draft=tiny_gguf(folders))


def tiny_gguf(folders):
    return tiny.write_drafter(folders[QWEN38].parent / "d.gguf", **SMALL)


@pytest.mark.parametrize(
    ("target", "bits", "block"),
    [("Qwen/Qwen3.8-27B", None, 8), ("Qwen/Qwen3.8-27B", 4, 5), ("mlx-community/Qwen3.8-27B-4bit", None, 5)],
)
def test_omlx(target, bits, block, folders):
    made = cook("omlx", folders, QWEN38, target=target, mlx_bits=bits)
    settings = {
        "dflash_enabled": True,
        "dflash_draft_model": str(folders[QWEN38]),
        "dflash_block_size": block,
        "dflash_verify_mode": "dflash",
    }
    if bits:
        settings |= {"dflash_draft_quant_enabled": True, "dflash_draft_quant_weight_bits": bits}
    values = step(made, "merge into ~/.omlx/model_settings.json").values
    assert values == {"version": 1, "models": {target.rpartition("/")[2]: settings}}
    assert step(made, "launch").words == ("omlx", "serve", "--model-dir", "models")
    assert made.depth == block


@pytest.mark.parametrize(("name", "drafted", "told"), [(QWEN38, 7, True), (V1, 15, False)])
def test_trtllm(name, drafted, told, folders):
    made = cook("trtllm", folders, name, gpus=4, concurrency=2)
    assert step(made, "settings").values == {
        "speculative_config": {
            "decoding_type": "DFlash",
            "max_draft_len": drafted,
            "speculative_model": str(folders[name]),
        }
    }
    assert launch(made) == {
        "": ["trtllm-serve", TARGETS[name]],
        "--config": "trtllm-dflash.yaml",
        "--tp_size": "4",
        "--max_batch_size": "2",
    }
    assert any("no DFlash 2" in warning for warning in made.warnings) is told


def test_the_client(folders):
    made = cook("dflash-client", folders, QWEN38, target="mlx-community/Qwen3.8-27B-4bit", mlx_bits=4, concurrency=2)
    prompt = "How many positive whole-number divisors does 196 have?"
    sampling = {"--reasoning": "xhigh", "--temperature": "1", "--top-p": "0.95", "--top-k": "20"}
    models = {"--model": "mlx-community/Qwen3.8-27B-4bit", "--draft": str(folders[QWEN38])}
    server = {"--base-url": "http://127.0.0.1:8000", "--model": "mlx-community/Qwen3.8-27B-4bit"}
    mlx = models | {"--draft-bits": "4", "--block-size": "5"}
    expected = {
        "generate, openai": {"": ["dflash", "generate", "openai", prompt], **server},
        "benchmark, openai": {
            "": ["dflash", "benchmark", "openai"],
            **server,
            "--dataset": "gsm8k",
            "--num-prompts": "128",
            "--concurrency": "2",
        },
        "generate, mlx": {"": ["dflash", "generate", "mlx", prompt], **mlx},
        "benchmark, mlx": {
            "": ["dflash", "benchmark", "mlx"],
            **mlx,
            "--dataset": "gsm8k",
            "--max-samples": "128",
        },
    }
    for title, found in expected.items():
        assert launch(made, title) == found | sampling
    assert [each.title for each in made.steps] == ["install", *expected]
    measured = launch(cook("dflash-client", folders, MUSE), "benchmark, transformers")
    assert (measured["--dataset"], measured["--max-samples"]) == ("gsm8k", "128")
    muse = launch(cook("dflash-client", folders, MUSE), "generate, transformers")
    assert (muse["--reasoning"], muse["--top-k"], muse["--block-size"]) == ("high", "64", "16")
    plain = launch(cook("dflash-client", folders, V1), "generate, transformers")
    assert not {"--reasoning", "--top-k"} & plain.keys()


@pytest.mark.parametrize(
    ("name", "target", "backends"),
    [
        (QWEN38, "Qwen/Qwen3.8-27B", {"mlx"}),
        (QWEN38, "Qwen/Qwen3.8-9B", set()),
        (MUSE, "meta/Muse-Glimmer-30B", {"transformers"}),
        (V1, "Qwen/Qwen3-4B", {"mlx", "transformers"}),
        (V1, "Qwen/Qwen3.6-27B", {"mlx"}),
        (V1, "google/gemma-4-31b-it", {"mlx"}),
        (V1, "meta-llama/LLaMA-3.1-8B-Instruct", {"transformers"}),
        (V1, "Qwen/Qwen3.8-27B", set()),
        (V1, "openai/gpt-oss-20b", set()),
        (V1, "me/my-own", {"mlx", "transformers"}),
    ],
)
def test_the_client_names_only_backends_that_take_the_drafter(name, target, backends, folders):
    made = cook("dflash-client", folders, name, target=target)
    assert {each.title.partition(", ")[2] for each in made.steps} == {"", "openai"} | backends
    assert any("is left out" in note for note in made.notes)
    assert made.depth == made.block_size
    bits = cook("dflash-client", folders, name, target=target, mlx_bits=4)
    assert bits.depth == (min(5, made.block_size) if "mlx" in backends else made.block_size)


IDLE = {
    "concurrency": {"nemo"},
    "gpus": {"ollama", "omlx", "dflash-client"},
    "mlx_bits": {"sglang", "vllm", "llama-server", "trtllm", "nemo"},
}
"""Option -> the engines in whose recipe for Qwen3.8-27B's safetensors nothing takes it."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("option", IDLE)
def test_what_has_no_effect_is_told(engine, option, folders):
    made = cook(engine, folders, QWEN38, **{option: 8})
    told = [warning for warning in made.warnings if "(8) have no effect here" in warning]
    assert len(told) == (engine in IDLE[option])
    plain = cook(engine, folders, QWEN38)
    assert not any("no effect" in warning for warning in plain.warnings)
    assert (plain.steps == made.steps and plain.warnings == made.warnings[: len(plain.warnings)]) or not told


def test_bits_mean_something_to_ollama_beside_safetensors_alone(folders):
    files = cook("ollama", folders, QWEN38, target="ggml-org/Qwen3.8-27B-GGUF:Q4_K_M", mlx_bits=4)
    assert "bits of quantized MLX weights (4) have no effect here" in files.warnings[-1]


@pytest.mark.parametrize(("name", "module", "gamma"), [(QWEN38, "dflash2", "4.0"), (V1, "dflash", "7.0")])
def test_nemo(name, module, gamma, folders):
    found = launch(cook("nemo", folders, name, gpus=2), "train")
    assert found["-m"] == f"nemo_automodel.recipes.llm.train_{module}"
    assert found["-c"] == f"examples/speculative/dflash/qwen3_{module}.yaml"
    assert found["--nproc_per_node"] == "2"
    assert found["--recipe_args.target_model_name_or_path"] == TARGETS[name]
    assert found["--recipe_args.block_size"] == str(CONFIGS[name]["dflash_config"].get("block_size", 16))
    assert found["--recipe_args.mask_token_id"] == str(CONFIGS[name]["dflash_config"]["mask_token_id"])
    assert found["--recipe_args.loss_decay_gamma"] == gamma


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [QWEN38, MUSE, V1, MOE])
def test_every_engine_has_a_line_for_every_drafter_by_its_own_counting(engine, name, folders):
    made = cook(engine, folders, name)
    block = made.block_size
    rule = {BLOCK: block, DRAFTED: block - 1}.get(ENGINES[engine].depth.counting, block)
    assert made.depth == rule
    assert made.warnings[0]
    for each in made.steps:
        assert step(made, each.title) or True
    steps = [str(each.values) + " ".join(each.words) for each in made.steps]
    assert any(f"{made.depth}" in text and made.knob.rpartition("-")[2].partition("_")[0] in text for text in steps)
    assert made.checked
    assert made.source
