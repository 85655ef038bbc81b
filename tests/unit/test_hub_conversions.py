"""A drafter of safetensors given to `-hfd`: converted for its target once, under a key of all it depends on."""

from __future__ import annotations

import fcntl

import pytest
import tiny

import dflash_gguf
from dflash_gguf.convert.api import convert
from dflash_gguf.errors import HubError, OutputError, PairError, QuantizeError
from dflash_gguf.hub.client import hub as the_hub
from dflash_gguf.hub.models import LocalModel
from dflash_gguf.hub.pairs import OnHub, find_drafter, find_target
from dflash_gguf.hub.spec import parse_spec

SIZES = {"hidden": 128, "ffn": 256, "heads": 4, "kv_heads": 2, "head_dim": 32}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The bytes of a target, and the files of a checkpoint."""
    folder = tmp_path_factory.mktemp("files")
    target = tiny.write_target(folder / "t.gguf", type="Q8_0", **SIZES)
    checkpoint = tiny.write_checkpoint(folder / "checkpoint", kind="dflash", **SIZES)
    return target.read_bytes(), {path.name: path.read_bytes() for path in checkpoint.iterdir()}


@pytest.fixture
def published(hub, files):
    target, checkpoint = files
    hub.add("org/T-GGUF", {"T-Q8_0.gguf": target, "T-F16.gguf": target + bytes(32)})
    hub.add("org/D", checkpoint)
    return hub


def target_of(name="org/T-GGUF:Q8_0", **how):
    return find_target(the_hub(**how), OnHub(parse_spec(name)))


def conversion(name="org/D", target=None, **how):
    return find_drafter(the_hub(**how), OnHub(parse_spec(name)), target or target_of(**how))


def kept(tmp_path):
    return sorted(path.name for path in (tmp_path / "assets").rglob("*"))


def test_it_is_what_convert_writes(published, tmp_path):
    path, notes = conversion("org/D:q8_0").make()
    assert path.is_relative_to(tmp_path / "assets")
    assert path.name == "dflash-D-Q8_0.gguf"
    written = convert("org/D", "org/T-GGUF:Q8_0", "Q8_0", tmp_path / "own.gguf")
    assert path.read_bytes() == written.path.read_bytes()
    assert notes == written.notes


def test_it_is_made_once_and_then_needs_no_network(published):
    first, _ = conversion().make()
    made = first.stat().st_mtime_ns
    assert published.bytes_of("T-Q8_0.gguf") <= 1 << 18
    published.forget()
    assert conversion().make() == (first, ())
    assert published.bytes_of(".safetensors") == published.bytes_of(".gguf") == 0
    target_of().fetch()
    published.forget()
    assert conversion(offline=True).make() == (first, ())
    assert published.requests == []
    assert first.stat().st_mtime_ns == made


def test_all_that_it_depends_on_is_in_its_place(published, tmp_path, files, monkeypatch):
    paths = [conversion().path, conversion("org/D:Q8_0").path, conversion(target=target_of("org/T-GGUF:F16")).path]
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(files[0])
    paths.append(conversion(target=LocalModel(copy)).path)
    published.repos["org/D"].files["README.md"] = b"another commit"
    paths.append(conversion().path)
    monkeypatch.setattr(dflash_gguf, "__version__", "9.9.9")
    paths.append(conversion().path)
    assert len({path.parent for path in paths}) == len(paths)


def test_the_same_target_by_another_name_is_the_same(published):
    on_hub = conversion().path
    assert conversion(target=LocalModel(target_of().fetch())).path == on_hub


def test_what_is_interrupted_leaves_nothing(published, tmp_path):
    def interrupt(done, _total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conversion().make(interrupt)
    assert kept(tmp_path) == ["dflash-gguf", "org--D"]
    assert conversion().make()[0].is_file()


def test_what_does_not_fit_leaves_nothing_and_costs_no_weights(published, tmp_path):
    other = tiny.write_target(tmp_path / "other.gguf", type="Q8_0", **SIZES | {"hidden": 64})
    with pytest.raises(PairError, match="hidden sizes differ"):
        conversion(target=LocalModel(other)).make()
    assert kept(tmp_path) == ["dflash-gguf", "org--D"]
    assert published.bytes_of(".safetensors") < len(published.repos["org/D"].files["model.safetensors"]) / 10


def test_a_second_run_does_not_write_into_the_first(published):
    made = conversion()
    made.path.parent.mkdir(parents=True)
    partial = made.path.with_name(f"{made.path.name}.partial")
    with partial.open("wb") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="being written by another run"):
            made.make()
    assert partial.is_file()


def test_a_killed_run_is_taken_over(published):
    made = conversion()
    made.path.parent.mkdir(parents=True)
    made.path.with_name(f"{made.path.name}.partial").write_bytes(b"half")
    assert made.make()[0].read_bytes()[:4] == b"GGUF"
    assert [path.name for path in made.path.parent.iterdir()] == ["dflash-D-Q4_K_M.gguf"]


def test_the_folder_of_llama_cpp(published, tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama"))
    assert conversion().path.is_relative_to(tmp_path / "llama" / "assets")


def test_a_gguf_of_the_type_comes_before_a_conversion(published):
    published.repos["org/D"].files["dflash-D-Q8_0.gguf"] = b"GGUF"
    assert conversion("org/D:Q8_0").path == "dflash-D-Q8_0.gguf"


def test_a_type_that_there_is_not_and_a_target_that_is_not_named(published):
    with pytest.raises(QuantizeError, match="unknown output type: got 'Q9_9'"):
        conversion("org/D:Q9_9")
    with pytest.raises(HubError, match="converted for a target, and none is named"):
        find_drafter(the_hub(), OnHub(parse_spec("org/D")), None)
