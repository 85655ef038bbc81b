"""Recipes for published drafters, taken apart again flag by flag; what is refused; any path through any format."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
import tiny
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from published import CONFIGS, TARGETS, write_config
from safetensors_pair import write_pair

import dflash_gguf as dg
from dflash_gguf.errors import CheckpointError, GGUFError, HubError, PairError, TemplateError
from dflash_gguf.recipes import spell
from dflash_gguf.recipes.parts import BLOCK, DRAFTED
from dflash_gguf.recipes.table import ENGINES

SMALL = {"hidden": 288, "ffn": 64, "layers": 1, "heads": 2, "kv_heads": 1, "taps": (0,), "vocab": 300}
QWEN38, MUSE, V1, MOE = (
    "Qwen3.8-27B-DFlash2",
    "Muse-Glimmer-30B-DFlash2",
    "Qwen3-4B-DFlash-b16",
    "Qwen3.5-397B-A17B-DFlash",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("published")
    return {name: write_config(parent, name) for name in CONFIGS}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a pair, it's $HOME")
    target = tiny.write_target(folder / "target Q8_0.gguf", **SMALL | {"layers": 2})
    return target, tiny.write_drafter(folder / "dflash-tiny.gguf", **SMALL)


def cook(engine, folders, name, **more):
    return dg.recipe(engine, target=more.pop("target", TARGETS[name]), draft=more.pop("draft", folders[name]), **more)


def step(recipe, title):
    """A step, once its text was taken apart again and found to be its words or values."""
    (found,) = [each for each in recipe.steps if each.title == title]
    assert found.text.rstrip("\n") in recipe.text
    if found.form == "shell":
        lines = found.text.split("\n")
        exports = [line for line in lines if line.startswith("export ")]
        # Unlike a shell, shlex keeps the end of a line behind a backslash, as a word.
        words = shlex.split("\n".join(lines[len(exports) :]))
        assert tuple(word for word in words if word != "\n") == found.words
        assert dict(shlex.split(line)[1].split("=", 1) for line in exports) == found.exports
    else:
        read = {"yaml": yaml.safe_load, "json": json.loads}[found.form]
        assert read(found.text) == found.values
    return found


def flags(words):
    """Flag -> its value (True: it has none); what stands alone is under ``""``."""
    found, alone = {}, []
    words = list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            alone.append(word)
        elif "=" in word:
            name, _, found[name] = word.partition("=")
        else:
            found[word] = words.pop(0) if words and not words[0].startswith("-") else True
    return found | {"": alone}


def launch(recipe, title="launch"):
    return flags(step(recipe, title).words)


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
    assert flags(step(made, "download the target").words)["--include"] == "*Q4_K_M*.gguf"
    assert flags(step(made, "Modelfile").words)["--draft-num-predict"] == "15"
    assert flags(step(made, "Modelfile").words)["-md"] == flags(step(made, "make the drafter a GGUF").words)["-o"]


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
        "generate, transformers": {"": ["dflash", "generate", "transformers", prompt], **models, "--block-size": "8"},
        "benchmark, transformers": {
            "": ["dflash", "benchmark", "transformers"],
            **models,
            "--block-size": "8",
            "--dataset": "gsm8k",
            "--max-samples": "128",
        },
    }
    for title, found in expected.items():
        assert launch(made, title) == found | sampling
    muse = launch(cook("dflash-client", folders, MUSE), "generate, transformers")
    assert (muse["--reasoning"], muse["--top-k"], muse["--block-size"]) == ("high", "64", "16")
    plain = launch(cook("dflash-client", folders, V1), "generate, transformers")
    assert not {"--reasoning", "--top-k"} & plain.keys()


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


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gguf_drafter_where_none_loads(engine, pair):
    made = dg.recipe(engine, target=pair[0], draft=pair[1])
    text = "\n".join(each.text for each in made.steps)
    if engine in ("llama-server", "ollama"):
        assert shlex.quote(str(pair[1])) in text
    elif engine != "nemo":
        assert "DRAFTER_CHECKPOINT" in text
        assert any("GGUF drafters do not load in" in warning for warning in made.warnings)
        assert str(pair[1]) not in text


@pytest.mark.parametrize("engine", sorted(ENGINES.keys() - {"llama-server"}))
def test_dspark_has_a_line_in_llama_server_alone(engine, folders):
    with pytest.raises(TemplateError, match=r"DSpark drafter.*`dflash-gguf recipe llama-server`"):
        cook(engine, folders, "dspark_qwen3_4b_block7")


def test_what_is_told_of_requests_at_once(folders):
    for engine, words in (("llama-server", "for one user"), ("ollama", "for one user"), ("vllm", "shrinks")):
        assert not any(words in warning for warning in cook(engine, folders, QWEN38).warnings)
        assert any(words in warning for warning in cook(engine, folders, QWEN38, concurrency=8).warnings)


def test_an_anchored_drafter_is_warned_of_elsewhere(folders):
    assert any("anchor" in warning for warning in cook("vllm", folders, "dflash_qwen3_4b_block7").warnings)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"draft": "absent"}, TemplateError, "does not exist"),
        ({"target": "absent.gguf"}, TemplateError, "does not exist"),
        ({"concurrency": 0}, TemplateError, "concurrency"),
        ({"gpus": 1.0}, TemplateError, "gpus"),
        ({"mlx_bits": 3}, TemplateError, "4 or 8"),
    ],
)
def test_wrong_arguments(changes, error, words, folders):
    with pytest.raises(error, match=words):
        cook("vllm", folders, QWEN38, **changes)


def test_an_engine_that_is_not_in_the_table(folders):
    with pytest.raises(TemplateError, match="one of sglang, vllm"):
        cook("lightllm", folders, QWEN38)


def test_configs_that_are_no_drafters(tmp_path):
    for name, changes, words in (
        ("no block", {"dflash_config": {"target_layer_ids": [1]}}, "states no `block_size`"),
        ("two blocks", {"block_size": 9}, "disagree"),
        ("no taps", {"dflash_config": {"block_size": 8}}, "target_layer_ids"),
        ("unknown", {"architectures": ["DominoDraftModel"]}, "Domino"),
    ):
        folder = write_config(tmp_path / name, QWEN38, **changes)
        with pytest.raises(CheckpointError, match=words):
            dg.recipe("vllm", target="a/b", draft=folder)


def test_pairs_that_are_here_are_checked(tmp_path, pair):
    target, draft = write_pair(tmp_path)
    assert dg.recipe("omlx", target=target, draft=draft).depth == 5  # its name says 4bit
    config = json.loads((target / "config.json").read_text())
    config["text_config"]["hidden_size"] = 64
    (target / "config.json").write_text(json.dumps(config))
    with pytest.raises(PairError, match="`hidden_size` differs"):
        dg.recipe("vllm", target=target, draft=draft)
    other = tiny.write_drafter(tmp_path / "d.gguf", **SMALL | {"vocab": 301})
    with pytest.raises(PairError, match="vocabularies differ"):
        dg.recipe("llama-server", target=pair[0], draft=other)
    with pytest.raises(PairError, match="swapped"):
        dg.recipe("llama-server", target=pair[1], draft=pair[1])
    with pytest.raises(GGUFError, match="expected `dflash`"):
        dg.recipe("llama-server", target=pair[0], draft=pair[0])


def test_a_drafter_on_the_hub(hub, pair):
    config = json.dumps(CONFIGS[QWEN38]).encode()
    hub.add("incoai/Qwen3.8-27B-DFlash2", {"config.json": config, "model.safetensors": b"\0" * 4096})
    hub.add("incoai/tiny-GGUF", {"tiny-Q8_0.gguf": Path(pair[1]).read_bytes()})
    hub.add("incoai/empty", {"README.md": b""})
    made = dg.recipe("sglang", target="Qwen/Qwen3.8-27B", draft="incoai/Qwen3.8-27B-DFlash2")
    assert launch(made)["--speculative-draft-model-path"] == "incoai/Qwen3.8-27B-DFlash2"
    assert hub.bytes_of("model.safetensors") == 0
    made = dg.recipe("llama-server", target="org/t-GGUF:Q8_0", draft="incoai/tiny-GGUF:Q8_0")
    found = launch(made)
    assert (found["-hf"], found["-hfd"], found["--spec-draft-n-max"]) == (
        "org/t-GGUF:Q8_0",
        "incoai/tiny-GGUF:Q8_0",
        "7",
    )
    made = dg.recipe("llama-server", target=pair[0], draft="incoai/tiny-GGUF:Q8_0")
    assert launch(made)["-md"] == "DRAFTER_GGUF"
    assert any("only beside `-hf`" in warning for warning in made.warnings)
    for name in ("incoai/empty", "incoai/tiny-GGUF:Q2_K", "incoai/absent"):
        with pytest.raises(HubError):
            dg.recipe("vllm", target="a/b", draft=name)


NASTY = [
    "it's",
    'say "hi"',
    "$HOME `id` $(id)",
    "a\nb",
    "# x",
    "~",
    "-m",
    "größe 模型 🦙",
    "a\\b",
    "*?[",
    "a;b&c|d>e",
    "!x",
]


def shell(rows):
    """The words that a shell makes of a command's rows."""
    text = spell.command([["printf", r"%s\0"], *rows])
    done = subprocess.run(["sh", "-c", text], capture_output=True, check=True, timeout=30)
    return done.stdout.decode().split("\0")[:-1]


def test_a_shell_takes_apart_what_is_spelt():
    assert shell([NASTY]) == NASTY
    assert shell([[word] for word in NASTY]) == NASTY


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t"), max_size=16)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_any_words_come_back_from_a_command(rows):
    assert shell(rows) == [word for row in rows for word in row]


@given(WORDS, st.integers(), st.booleans())
def test_any_values_come_back_from_a_file(text, number, flag):
    values = {"outer": {"text": text, "number": number, "flag": flag}}
    assert yaml.safe_load(spell.document("yaml", values)) == values
    assert json.loads(spell.document("json", values)) == values


@pytest.mark.parametrize("name", NASTY[:4] + NASTY[7:])
@pytest.mark.parametrize("engine", ["sglang", "vllm", "trtllm", "omlx", "dflash-client"])
def test_any_folder_comes_through_any_engine(engine, name, tmp_path):
    folder = write_config(tmp_path / name, QWEN38)
    made = dg.recipe(engine, target="Qwen/Qwen3.8-27B", draft=folder)
    for each in made.steps:
        step(made, each.title)
    assert any(str(folder) in (*each.words, *map(str, _leaves(each.values))) for each in made.steps) or engine == "vllm"


def _leaves(values):
    for value in values.values():
        yield from _leaves(value) if isinstance(value, dict) else [value]


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "omlx"])
@pytest.mark.parametrize(("name", "words"), [("caf\udce9", "is no UTF-8 text"), ("a\x1b[31m", r"character U\+001B")])
def test_a_path_that_cannot_be_shown(engine, name, words, tmp_path):
    folder = write_config(tmp_path / name, QWEN38)
    with pytest.raises(TemplateError, match=words) as caught:
        dg.recipe(engine, target="a/b", draft=folder)
    assert str(caught.value).isprintable()


def test_the_table():
    assert list(ENGINES) == ["sglang", "vllm", "llama-server", "ollama", "omlx", "trtllm", "dflash-client", "nemo"]
    for name, engine in ENGINES.items():
        assert engine.name == name
        assert engine.kinds
        assert engine.source
        assert engine.constraints
