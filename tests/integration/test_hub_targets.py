"""Targets of a conversion on the hub: in every form that `--target` takes, and by the drafter's own words."""

from __future__ import annotations

import json

import gguf
import pytest
import zoo
from click.testing import CliRunner
from golden.generate import PRE_TOKENIZER
from hub_repos import BULK, publish, same, tensors, write_pair

from dflash_gguf.cli import root
from dflash_gguf.convert import api
from dflash_gguf.convert.inputs import locate
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.convert.vocab import keys as vocabulary
from dflash_gguf.errors import CheckpointError, HubError
from dflash_gguf.gguf_header import read_header


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


@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("Qwen/Qwen3.6-27B-GGUF:BF16", "Qwen3.6-27B-BF16.gguf"),
        ("Qwen/Qwen3.6-27B-GGUF@main:bf16", "Qwen3.6-27B-BF16.gguf"),
        ("Qwen/Qwen3.6-27B-GGUF", "Qwen3.6-27B-Q8_0.gguf"),
    ],
)
def test_a_repository_of_ggufs_gives_its_header(hub, pair, tmp_path, form, file):
    for kind in ("BF16", "Q8_0"):
        path = tmp_path / "gguf" / f"Qwen3.6-27B-{kind}.gguf"
        path.parent.mkdir(exist_ok=True)
        zoo.write_target_gguf("incoai-2", path, type=kind)
        path.write_bytes(path.read_bytes() + bytes(BULK))
    publish(hub, "Qwen/Qwen3.6-27B-GGUF", tmp_path / "gguf")
    local = api.convert(pair[0], tmp_path / "gguf" / file, "BF16", tmp_path / "local.gguf")
    result = api.convert("incoai/Qwen3.8-27B-DFlash2", form, "BF16", tmp_path / "hub.gguf")
    assert same(local.path, result.path)
    assert (result.target.place, result.target.file) == ("Qwen/Qwen3.6-27B-GGUF", file)
    assert hub.bytes_of(".gguf") < BULK
    assert {row.path.rpartition("/")[2] for row in hub.asked("GET", "/cdn/Qwen/Qwen3.6-27B-GGUF")} == {file}


def test_the_tables_of_a_split_gguf_come_from_its_parts(hub, tmp_path):
    drafter, _ = write_pair("nemotron-v1", tmp_path / "files")
    whole = zoo.write_target_gguf("nemotron-v1", tmp_path / "whole.gguf")
    folder = tmp_path / "parts"
    folder.mkdir()
    split(whole, folder, "output.weight")
    publish(hub, f"org/{drafter.name}", drafter)
    publish(hub, "org/target-GGUF", folder)
    overrides = Overrides(block_size=8)
    local = api.convert(
        drafter, folder / "t-BF16-00001-of-00002.gguf", "BF16", tmp_path / "l.gguf", overrides=overrides
    )
    result = api.convert(
        f"org/{drafter.name}", "org/target-GGUF:BF16", "BF16", tmp_path / "h.gguf", overrides=overrides
    )
    assert same(local.path, result.path)
    assert "output.weight" in tensors(result.path)


def split(whole, folder, last):
    """A GGUF in two parts, the tensor ``last`` alone in the second."""
    reader = gguf.GGUFReader(whole)
    for number in (0, 1):
        writer = gguf.GGUFWriter(folder / f"t-BF16-0000{number + 1}-of-00002.gguf", "none")
        writer.kv_data[0].clear()
        for field in reader.fields.values():
            if number == 0 and not field.name.startswith("GGUF."):
                kind, item = field.types[0], field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(field.name, field.contents(), kind, item)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors:
            if (tensor.name == last) == bool(number):
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def test_a_mixture_of_here_and_there(hub, pair, tmp_path):
    local = api.convert(pair[0], pair[1], "BF16", tmp_path / "local.gguf")
    for place, target in (
        (pair[0], "Qwen/Qwen3.6-27B"),
        ("incoai/Qwen3.8-27B-DFlash2", pair[1]),
        ("incoai/Qwen3.8-27B-DFlash2@main", "Qwen/Qwen3.6-27B@main"),
        (pair[0], None),
    ):
        out = tmp_path / "mixed.gguf"
        result = api.convert(place, target, "BF16", out, force=True)
        assert same(local.path, out)
        if place == pair[0]:
            assert local.path.read_bytes() == out.read_bytes()
            assert result.drafter.commit is None


def test_a_folder_of_the_same_name_is_the_folder(hub, pair, tmp_path):
    (tmp_path / "incoai").mkdir()
    pair[0].rename(tmp_path / "incoai" / "Qwen3.8-27B-DFlash2")
    result = api.convert("incoai/Qwen3.8-27B-DFlash2", pair[1], "BF16", tmp_path / "out.gguf")
    assert result.drafter.commit is None
    assert "general.source.url" not in read_header(result.path).keys
    assert not hub.requests


def test_a_snapshot_that_was_downloaded_has_its_repositorys_name(hub, pair, tmp_path):
    api.convert("incoai/Qwen3.8-27B-DFlash2", out=tmp_path / "one.gguf")
    (snapshot,) = (tmp_path / "hub" / "models--incoai--Qwen3.8-27B-DFlash2" / "snapshots").iterdir()
    result = api.convert(snapshot, pair[1], out=tmp_path / "two.gguf")
    assert read_header(result.path).string("general.name") == "Qwen3.8 27B DFlash2"
    assert same(result.path, tmp_path / "one.gguf")


# ---------------------------------------------------------------- the drafter's own words


def named(hub, tmp_path, family, base_model=None, **config):
    """A drafter whose card and config say what they say, published beside a target."""
    drafter, target = write_pair(family, tmp_path / "files", base_model=base_model)
    held = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps(held | config))
    publish(hub, "org/target", target)
    return publish(hub, "org/drafter", drafter)


def verifier(name):
    return {"speculators_config": {"verifier": {"name_or_path": name, "architectures": []}}}


@pytest.mark.parametrize(
    ("words", "said_by"),
    [
        ({"base_model": "org/target"}, "`base_model` in its card"),
        ({"base_model": "https://huggingface.co/org/target"}, "`base_model` in its card"),
        ({"base_model": "[org/target]"}, "`base_model` in its card"),
        ({"base_model": "ORG/Target", **verifier("org/target")}, "the verifier in its speculators config"),
        (verifier("org/target"), "the verifier in its speculators config"),
        ({"base_model": "org/target", **verifier("/data/models/target")}, "`base_model` in its card"),
    ],
)
def test_the_target_by_the_drafters_words(hub, tmp_path, words, said_by):
    plan = run("convert", named(hub, tmp_path, "incoai-2", **words), "--dry-run", "--json")
    assert json.loads(plan.stdout)["target"]["said_by"] == said_by
    assert f"named by {said_by}" not in plan.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "`org/drafter` does not say which model it drafts for.*pass `--target`"),
        ({"base_model": "target"}, "does not say"),
        (
            {"base_model": "[org/target, org/other]"},
            "names several targets: `org/target` .*`org/other`.*`--target ",
        ),
        ({"base_model": "org/target", **verifier("org/other")}, "names several targets"),
        ({"base_model": "org/none"}, "there is no repository `org/none`"),
        ({"base_model": "org/drafter"}, r"names `org/drafter` as its target.*cannot serve.*pass `--target`"),
    ],
)
def test_words_that_settle_nothing(hub, tmp_path, words, told):
    with pytest.raises((CheckpointError, HubError), match=told):
        run("convert", named(hub, tmp_path, "incoai-2", **words))
    assert hub.bytes_of("drafter/model.safetensors") == 0


def test_what_a_target_can_be_named_by(hub, tmp_path, monkeypatch):
    drafter, _ = write_pair("incoai-2", tmp_path / "files")
    hub.add("org/several-GGUF", {"a-F32.gguf": b"x", "b-F32.gguf": b"x"})
    with pytest.raises(HubError, match=r"none of type Q4_K_M or Q8_0.*`:TYPE`.*or download one and give its path"):
        locate(drafter, "org/several-GGUF")
    for names in ((drafter, " "), ("", None)):
        with pytest.raises(CheckpointError, match=r"the name of a drafter or a target: got ' ?', expected"):
            locate(*names)
