"""Conversion from the hub: the same file as from folders, only what is needed downloaded, errors before weights."""

from __future__ import annotations

import json

import pytest
import zoo
from click.testing import CliRunner
from golden.generate import PRE_TOKENIZER
from hub_repos import BULK, files_of, publish, same, tensors, write_pair

import dflash_gguf
from dflash_gguf.cli import root
from dflash_gguf.convert import api
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.convert.vocab import keys as vocabulary
from dflash_gguf.errors import CheckpointError, HubError, OutputError, PairError
from dflash_gguf.gguf_header import read_header

HEADERS = 4 << 16
"""Bytes of headers and small files that may be read besides weights."""


@pytest.fixture(autouse=True)
def known_pre_tokenizer(monkeypatch, tmp_path):
    """A tiny vocabulary's digest is in no table."""
    monkeypatch.setattr(vocabulary, "recognise", lambda *_: PRE_TOKENIZER)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pair(hub, tmp_path):
    """The drafter of the issue's first line and its target, published; returns their folders."""
    drafter, target = write_pair("incoai-2", tmp_path / "files", base_model="Qwen/Qwen3.6-27B")
    publish(hub, "incoai/Qwen3.8-27B-DFlash2", drafter)
    publish(hub, "Qwen/Qwen3.6-27B", target)
    return drafter, target


def run(*words):
    """One command in this process; a failure is raised."""
    return CliRunner().invoke(root, [str(word) for word in words], standalone_mode=False, catch_exceptions=False)


# ---------------------------------------------------------------- the line as people type it


def test_the_line_as_typed(hub, pair, tmp_path):
    done = run("convert", "incoai/Qwen3.8-27B-DFlash2", "--quant", "Q4_K_M")
    out = tmp_path / "dflash-Qwen3.6-27B-Q4_K_M.gguf"
    commit, target = (hub.repos[name].commit for name in ("incoai/Qwen3.8-27B-DFlash2", "Qwen/Qwen3.6-27B"))
    assert f"drafter: incoai/Qwen3.8-27B-DFlash2 at {commit}" in done.stderr
    assert f"target: Qwen/Qwen3.6-27B at {target}, named by `base_model` in its card" in done.stderr
    assert done.stdout.startswith(f"wrote {out}")
    header = read_header(out)
    assert header.string("general.source.repo_url") == f"{hub.endpoint}/incoai/Qwen3.8-27B-DFlash2"
    assert header.string("general.source.url") == f"{hub.endpoint}/incoai/Qwen3.8-27B-DFlash2/tree/{commit}"
    assert header.integer("general.base_model.count") == 1
    assert header.string("general.base_model.0.repo_url") == "https://huggingface.co/Qwen/Qwen3.6-27B"
    assert header.string("general.base_model.0.organization") == "Qwen"
    assert header.string("general.name") == "Qwen3.8 27B DFlash2"
    assert header.string("dflash_gguf.version") == dflash_gguf.__version__
    assert header.string("dflash_gguf.llama_cpp_version").startswith("0.")
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name, "files", "hub"]


def test_twice_is_the_same_file_and_nothing_is_downloaded_again(hub, pair, tmp_path):
    api.convert("incoai/Qwen3.8-27B-DFlash2", out=tmp_path / "one.gguf")
    hub.forget()
    api.convert("incoai/Qwen3.8-27B-DFlash2", out=tmp_path / "two.gguf")
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()
    assert hub.bytes_of("DFlash2/model.safetensors") == 0
    assert sum(hub.served.values()) < HEADERS


FAMILIES = (
    "zlab-v1-old", "modelopt-v1-fp8", "mimo-v1", "nemotron-v1", "speculators-v1", "glm-2", "deepspec", "lfm2-dspark",
    "nemotron-dspark", "gemma4-dspark", "deepseek4",
)  # fmt: skip
"""One of each kind of source: plain, with factors, packed, with tables of its own, the target's or a mixture."""


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_comes_as_from_its_folder(hub, tmp_path, name):
    target_repo = f"org/{zoo.TARGETS[zoo.FAMILIES[name].target].folder}"
    drafter, target = write_pair(name, tmp_path / "files", base_model=target_repo)
    overrides = Overrides(**zoo.FAMILIES[name].options)
    local = api.convert(drafter, target, "BF16", tmp_path / "local.gguf", overrides=overrides)
    repo = publish(hub, f"org/{drafter.name}", drafter)
    publish(hub, target_repo, target)
    result = api.convert(repo, target_repo, "BF16", tmp_path / "hub.gguf", overrides=overrides)
    assert same(local.path, result.path)
    assert len([note for note in result.notes if "is taken from" in note]) == len(
        [note for note in local.notes if "is taken from" in note]
    )
    weights = sum(path.stat().st_size for path in drafter.glob("*.safetensors"))
    assert sum(count for path, count in hub.served.items() if repo in path) < weights + HEADERS
    shards = sum(path.stat().st_size for path in target.glob("*.safetensors"))
    assert hub.bytes_of(".safetensors") < weights + shards - BULK + HEADERS
    assert not list(tmp_path.glob(".hub.gguf*"))


# ---------------------------------------------------------------- what is downloaded


def test_a_dry_run_needs_no_weights(hub, pair):
    done = run("convert", "incoai/Qwen3.8-27B-DFlash2", "--dry-run", "--json")
    plan = json.loads(done.stdout)
    assert plan["kind"] == "dflash2"
    assert plan["drafter"] == {
        "place": "incoai/Qwen3.8-27B-DFlash2",
        "commit": hub.repos["incoai/Qwen3.8-27B-DFlash2"].commit,
        "file": None,
        "said_by": None,
    }
    assert plan["target"]["place"] == "Qwen/Qwen3.6-27B"
    assert plan["target"]["said_by"] == "`base_model` in its card"
    weights = len(hub.repos["incoai/Qwen3.8-27B-DFlash2"].files["model.safetensors"])
    assert weights > 10 * (1 << 16)
    assert hub.bytes_of("DFlash2/model.safetensors") <= 1 << 16
    assert hub.bytes_of("27B/model.safetensors") <= 1 << 16
    result = json.loads(run("convert", "incoai/Qwen3.8-27B-DFlash2", "--json").stdout)
    for name in ("n_bytes", "n_weights", "tensor_types", "drafter", "target"):
        assert plan[name] == result[name]


def test_of_the_target_only_config_and_tokenizer_are_downloaded(hub, pair):
    hub.repos["Qwen/Qwen3.6-27B"].files |= {"README.md": bytes(1 << 20), "merges.txt": bytes(1 << 20), "v.png": b"x"}
    api.convert("incoai/Qwen3.8-27B-DFlash2", "Qwen/Qwen3.6-27B")
    asked = {
        row.path.rpartition("/")[2]
        for row in hub.requests
        if "Qwen/Qwen3.6-27B/" in row.path and "/resolve/" in row.path
    }
    assert asked == {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert hub.bytes_of("27B/model.safetensors") <= 1 << 16


def test_target_tensors_are_fetched_by_ranges(hub, tmp_path):
    drafter, target = write_pair("nemotron-v1", tmp_path / "files")
    publish(hub, f"org/{drafter.name}", drafter)
    publish(hub, "org/target", target)
    result = api.convert(
        f"org/{drafter.name}", "org/target", "BF16", tmp_path / "out.gguf", overrides=Overrides(block_size=8)
    )
    assert any("is taken from the target" in note for note in result.notes)
    head = tensors(result.path)["output.weight"][1].nbytes
    ranges = [row.range for row in hub.asked("GET", "/cdn/org/target/")]
    assert f"{head - 1}" in {str(int(row[6:].split("-")[1]) - int(row[6:].split("-")[0])) for row in ranges}
    assert head <= hub.bytes_of("target/model.safetensors") <= 2 * head + (1 << 17) < BULK + head


def test_a_table_that_is_the_targets_is_told_by_its_bytes(hub, tmp_path):
    drafter, target = write_pair("deepspec", tmp_path / "files")
    local = api.convert(drafter, target, "BF16", tmp_path / "local.gguf")
    assert any("was left out: it is the target's" in note for note in local.notes)
    publish(hub, f"org/{drafter.name}", drafter)
    publish(hub, "org/target", target)
    plan = api.plan(f"org/{drafter.name}", "org/target", "BF16")
    assert any("is left out if it is the target's" in note for note in plan.notes)
    result = api.convert(f"org/{drafter.name}", "org/target", "BF16", tmp_path / "hub.gguf")
    assert same(local.path, result.path)
    assert result.notes == local.notes


def test_an_embedded_drafter_needs_only_its_shards(hub, tmp_path):
    drafter, target = write_pair("deepseek4", tmp_path / "files")
    local = api.convert(drafter, target, "BF16", tmp_path / "local.gguf")
    index = drafter / "model.safetensors.index.json"
    held = json.loads(index.read_text()) if index.is_file() else {"weight_map": {}}
    if not index.is_file():
        table = api.load_checkpoint(drafter).tensors
        held["weight_map"] = {name: entry.file.name for name, entry in table.items()}
    held["weight_map"]["model.layers.0.other"] = "model-others.safetensors"
    index.write_text(json.dumps(held))
    publish(hub, f"org/{drafter.name}", drafter)
    hub.repos[f"org/{drafter.name}"].files["model-others.safetensors"] = bytes(BULK)
    publish(hub, "org/target", target)
    assert same(local.path, api.convert(f"org/{drafter.name}", "org/target", "BF16", tmp_path / "hub.gguf").path)
    assert hub.bytes_of("model-others.safetensors") == 0


def test_a_drafter_in_a_folder_of_its_targets_repository(hub, tmp_path):
    drafter, target = write_pair("mimo-v1", tmp_path / "files")
    hub.add("org/MiMo-DFlash", files_of(target) | {f"dflash/{name}": data for name, data in files_of(drafter).items()})
    local = api.convert(drafter, target, "BF16", tmp_path / "local.gguf")
    result = api.convert("org/MiMo-DFlash", "org/MiMo-DFlash", "BF16", tmp_path / "hub.gguf")
    assert tensors(local.path).keys() == tensors(result.path).keys()
    assert read_header(result.path).string("general.name") == "MiMo DFlash"


# ---------------------------------------------------------------- errors come before weights


def test_a_pair_that_does_not_fit_is_refused_before_the_weights(hub, pair, tmp_path):
    _, other = write_pair("zlab-v1-llama3", tmp_path / "other")
    publish(hub, "org/other", other)
    hub.repos["org/other"].files["config.json"] = json.dumps(
        json.loads((other / "config.json").read_text()) | {"hidden_size": 128}
    ).encode()
    with pytest.raises(PairError):
        run("convert", "incoai/Qwen3.8-27B-DFlash2", "--target", "org/other")
    assert hub.bytes_of("DFlash2/model.safetensors") <= 1 << 16


def test_an_output_that_exists_is_refused_before_the_hub_is_asked(hub, pair, tmp_path):
    (tmp_path / "out.gguf").touch()
    with pytest.raises(OutputError, match="exists already"):
        run("convert", "incoai/Qwen3.8-27B-DFlash2", "-o", "out.gguf")
    assert not hub.requests


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("incoai/Qwen3.8-27B-DFlash", "there is no folder `incoai/Qwen3.8-27B-DFlash` here, so the hub was asked"),
        ("incoai/Qwen3.8-27B-DFlash2:Q4_K_M", "leave it out: `incoai/Qwen3.8-27B-DFlash2`, and say `--quant Q4_K_M`"),
        ("incoai/Qwen3.8-27B-DFlash2@v7", "has no revision `v7`"),
        ("org/ggufs", "holds GGUF files, which need no conversion"),
        ("org/empty", "has no config.json"),
        ("Qwen3.8-27B-DFlash2", "not a folder"),
    ],
)
def test_a_drafter_that_is_none(hub, pair, name, told):
    hub.add("org/ggufs", {"x-Q8_0.gguf": b"GGUF"})
    hub.add("org/empty", {"README.md": b""})
    with pytest.raises((HubError, CheckpointError), match=told):
        run("convert", name, "--target", "Qwen/Qwen3.6-27B")


def test_a_gated_target_is_told_before_the_drafter_is_downloaded(hub, pair):
    hub.repos["Qwen/Qwen3.6-27B"].gated = True
    with pytest.raises(HubError, match=r"`Qwen/Qwen3\.6-27B` is gated"):
        run("convert", "incoai/Qwen3.8-27B-DFlash2")
    assert hub.bytes_of("DFlash2/model.safetensors") == 0


def test_offline_by_what_is_cached(hub, pair, tmp_path, monkeypatch):
    first = api.convert("incoai/Qwen3.8-27B-DFlash2", out=tmp_path / "one.gguf")
    hub.forget()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    second = api.convert("incoai/Qwen3.8-27B-DFlash2", out=tmp_path / "two.gguf")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert not hub.requests
    with pytest.raises(HubError, match="is not in the cache"):
        api.plan("incoai/other", "Qwen/Qwen3.6-27B")


def test_an_interrupted_fetch_leaves_nothing_beside_the_output(hub, tmp_path):
    drafter, target = write_pair("nemotron-v1", tmp_path / "files")
    publish(hub, "org/target", target)
    hub.cuts["model.safetensors"] = [1 << 20, 1000, 0, 0, 0, 0, 0]
    with pytest.raises(HubError, match="cannot be reached"):
        api.convert(drafter, "org/target", "BF16", tmp_path / "out.gguf", overrides=Overrides(block_size=8))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files", "hub"]
    hub.cuts.clear()
    assert api.convert(drafter, "org/target", "BF16", tmp_path / "out.gguf", overrides=Overrides(block_size=8))
