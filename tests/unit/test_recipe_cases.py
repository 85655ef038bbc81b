"""Recipes: what is refused and told, models on the hub, and any path through any format."""

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
from published import CONFIGS, write_config
from recipe_parts import QWEN38, SMALL, cook, launch, step
from safetensors_pair import write_pair

import dflash_gguf as dg
from dflash_gguf.errors import CheckpointError, GGUFError, HubError, PairError, TemplateError
from dflash_gguf.recipes import spell
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


@pytest.mark.parametrize("engine", sorted(ENGINES.keys() - {"llama-server", "nemo"}))
def test_an_anchored_drafter_has_a_line_in_llama_server_alone(engine, folders):
    with pytest.raises(TemplateError, match=r"anchor's own row.*`dflash-gguf recipe llama-server`"):
        cook(engine, folders, "dflash_qwen3_4b_block7")


def test_how_much_to_think_is_said_in_the_engines_way(folders):
    for engine, words in (("vllm", "chat_template_kwargs"), ("ollama", "ollama run --think high")):
        (found,) = [note for note in cook(engine, folders, QWEN38).notes if note.startswith("thinking")]
        assert words in found


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
    made = dg.recipe("ollama", target="org/t-GGUF", draft="incoai/tiny-GGUF:Q8_0")
    assert step(made, "Modelfile").words[2:6] == ("-hf", "org/t-GGUF", "-hfd", "incoai/tiny-GGUF:Q8_0")
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


@pytest.mark.parametrize(("name", "words"), [("caf\udce9", "is no UTF-8 text"), ("a\x9b31m", r"character U\+009B")])
def test_a_target_that_cannot_be_shown(name, words, tmp_path):
    """Its name is a key of oMLX's settings."""
    target, draft = write_pair(tmp_path)
    with pytest.raises(TemplateError, match=words):
        dg.recipe("omlx", target=target.rename(tmp_path / name), draft=draft)


def test_the_table():
    assert list(ENGINES) == ["sglang", "vllm", "llama-server", "ollama", "omlx", "trtllm", "dflash-client", "nemo"]
    for name, engine in ENGINES.items():
        assert engine.name == name
        assert engine.kinds
        assert engine.source
        assert engine.constraints
