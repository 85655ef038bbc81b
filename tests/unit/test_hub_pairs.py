"""What `-hf` and `-hfd` mean, on a cache alone: the rows of llama.cpp's table, run with `llama-server --offline`.

Where we differ from llama.cpp, the test says why.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tiny
from hub_cache import COMMIT, write_repo

from dflash_gguf.errors import HubError
from dflash_gguf.gguf_header import GGUFHeader
from dflash_gguf.hub.client import Hub
from dflash_gguf.hub.models import LocalModel
from dflash_gguf.hub.pairs import OnHub, find_drafter, find_sidecar, find_target
from dflash_gguf.hub.spec import parse_spec

SIZES = {"hidden": 128, "ffn": 256, "heads": 4, "kv_heads": 2, "head_dim": 32}
TARGETS = ["T-BF16.gguf", "T-F16.gguf", "T-Q4_K_M.gguf", "T-Q8_0.gguf"]
OTHER = "f" * 40


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """The bytes of a target."""
    path = tiny.write_target(tmp_path_factory.mktemp("target") / "t.gguf", type="Q8_0", **SIZES)
    return path.read_bytes()


@pytest.fixture(scope="module")
def drafter(tmp_path_factory):
    """The bytes of a drafter that fits it."""
    return tiny.write_drafter(tmp_path_factory.mktemp("drafter") / "d.gguf", kind="dflash", **SIZES).read_bytes()


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """The bytes of a drafter of another width."""
    return tiny.write_drafter(
        tmp_path_factory.mktemp("stranger") / "d.gguf", kind="dflash", **SIZES | {"hidden": 64}
    ).read_bytes()


@pytest.fixture
def cache(tmp_path):
    """Repositories ``name -> table``, and a hub that asks nobody."""

    class Cache:
        hub = Hub("http://hub.invalid", tmp_path, offline=True)

        def add(self, repo, paths, data=b"GGUF", **more):
            files = paths if isinstance(paths, dict) else dict.fromkeys(paths, data)
            return write_repo(tmp_path, repo, files, **more)

        def target(self, name, file=""):
            return find_target(self.hub, OnHub(parse_spec(name), file))

        def drafter(self, name, target=None, file=""):
            return find_drafter(self.hub, OnHub(parse_spec(name), file), target)

    return Cache()


def refusal(call, *words):
    with pytest.raises(HubError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------- the target: -hf


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("org/T:Q8_0", "T-Q8_0.gguf"),
        ("org/T:q4_k_m", "T-Q4_K_M.gguf"),
        ("org/T", "T-Q4_K_M.gguf"),
        ("org/T:BF16", "T-BF16.gguf"),
        ("org/T@main:Q8_0", "T-Q8_0.gguf"),
        (f"org/T@{COMMIT}:Q8_0", "T-Q8_0.gguf"),
    ],
)
def test_a_target_by_its_tag(cache, name, path):
    snapshot = cache.add("org/T", TARGETS)
    found = cache.target(name)
    assert (found.path, found.fetch(), found.missing, found.notes) == (path, snapshot / path, 0, ())


def test_f16_is_not_bf16(cache):
    # llama.cpp takes BF16, the first of the listing that has F16 anywhere. The user is told.
    cache.add("org/T", TARGETS)
    found = cache.target("org/T:F16")
    assert found.path == "T-F16.gguf"
    assert found.notes == ("took `T-F16.gguf`; llama.cpp's `-hf` would take `T-BF16.gguf` for this name",)
    cache.add("org/B", ["T-BF16.gguf", "T-Q8_0.gguf"])
    refusal(lambda: cache.target("org/B:F16"), "no GGUF of type `F16`", "`T-BF16.gguf`, `T-Q8_0.gguf`")


def test_a_file_by_its_path(cache):
    cache.add("org/T", [*TARGETS, "a/odd name.gguf"])
    assert cache.target("org/T", "a/odd name.gguf").path == "a/odd name.gguf"
    assert cache.target("org/T:Q8_0", "T-BF16.gguf").path == "T-BF16.gguf"
    refusal(lambda: cache.target("org/T", "none.gguf"), "no file `none.gguf` for `--hf-file`", "`a/odd name.gguf`")


def test_several_of_a_type_are_named(cache):
    # llama.cpp takes the first of the listing, in an order that is the file system's when offline.
    cache.add("org/T", ["A-Q8_0.gguf", "B-Q8_0.gguf", "A-F16.gguf"])
    told = refusal(lambda: cache.target("org/T:Q8_0"), "`A-Q8_0.gguf`, `B-Q8_0.gguf`", "`--hf-file`")
    assert "A-F16" not in told
    refusal(lambda: cache.target("org/T:Q2_K"), "no GGUF of type `Q2_K`", "`A-F16.gguf`")
    cache.add("org/U", ["U-IQ3_S.gguf", "U-Q6_K.gguf"])
    refusal(lambda: cache.target("org/U"), "none of type Q4_K_M or Q8_0", "`:TYPE`", "`U-IQ3_S.gguf`, `U-Q6_K.gguf`")
    cache.add("org/M", [f"M{number:03}-Q8_0.gguf" for number in range(200)])
    assert "and 176 more" in refusal(lambda: cache.target("org/M:Q8_0"))


def test_a_repository_without_a_gguf(cache):
    cache.add("org/T", ["config.json", "model.safetensors"])
    refusal(lambda: cache.target("org/T"), "`org/T` in the cache holds no GGUF")
    refusal(lambda: cache.target("org/none"), "`org/none` is not in the cache")


def test_what_is_offered_could_be_meant(cache):
    cache.add("org/T", ["T-Q8_0.gguf", "dflash-T-BF16.gguf", "mmproj-BF16.gguf"])
    told = refusal(lambda: cache.target("org/T:BF16"), "no GGUF of type `BF16`, but these: `T-Q8_0.gguf`; leave out")
    assert "dflash-" not in told
    target = cache.target("org/T:Q8_0")
    cache.add("org/U", ["U-Q8_0.gguf", "U-Q4_0.gguf"])
    target = cache.target("org/U:Q8_0")
    told = refusal(lambda: cache.drafter("org/U:Q8_0", target), "no GGUF of type `Q8_0`, but these: `U-Q4_0.gguf`;")
    assert "`U-Q8_0.gguf`" not in told
    cache.add("org/V", ["V-Q8_0.gguf"])
    refusal(lambda: cache.drafter("org/V", cache.target("org/V")), "`org/V` in the cache holds no other GGUF")
    cache.add("org/W", ["dflash-W-Q8_0.gguf"])
    refusal(lambda: cache.target("org/W"), "`org/W` in the cache holds no other GGUF")


def test_all_parts_of_a_split_target(cache):
    parts = [f"q8/T-Q8_0-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    snapshot = cache.add("org/T", parts)
    found = cache.target("org/T:Q8_0")
    assert (found.path, found.parts, found.fetch()) == (parts[0], parts, snapshot / parts[0])
    assert cache.target("org/T", parts[1]).path == parts[0]
    cache.add("org/P", parts[:2])
    refusal(cache.target("org/P:Q8_0").fetch, "the cache lacks `q8/T-Q8_0-00003-of-00003.gguf`")


def test_copies_in_a_cache_are_told_apart(cache):
    """Where a file system has no links; a conversion for the one target is not taken for the other's."""
    snapshot = cache.add("org/T", ["T-F16.gguf", "T-Q8_0.gguf"])
    for path in snapshot.iterdir():
        path.unlink()
        path.write_bytes(b"GGUF")
    ids = {cache.target(f"org/T:{tag}").identity for tag in ("F16", "Q8_0")}
    assert len(ids) == 2
    assert all(str(snapshot) in each for each in ids)


def test_another_branch_will_do_when_main_is_not_cached(cache):
    cache.add("org/T", ["T-Q8_0.gguf"], commit=OTHER, ref="dev")
    assert cache.target("org/T").listing.commit == OTHER
    refusal(lambda: cache.target("org/T@main"), "`org/T` at `main` is not in the cache")


def test_a_preset_is_named_and_not_followed(cache):
    # llama.cpp loads such a repository as a set of models for its router.
    cache.add("org/T", ["T-Q8_0.gguf", "preset.ini"])
    found = cache.target("org/T")
    assert found.path == "T-Q8_0.gguf"
    assert "preset.ini" in found.notes[0]


# ---------------------------------------------------------------- -hf T: the drafter beside it


def test_the_nearest_sidecar_of_the_target(cache):
    """`-hf T --spec-type draft-dflash`. Plain `-hf T` of llama.cpp decodes alone; here drafting is the point."""
    cache.add("org/T", [*TARGETS, "dflash-T-F16.gguf", "dflash-T-Q8_0.gguf"])
    assert find_sidecar(cache.target("org/T:Q4_K_M")).path == "dflash-T-Q8_0.gguf"
    assert find_sidecar(cache.target("org/T:BF16")).path == "dflash-T-F16.gguf"


def test_no_sidecar(cache):
    cache.add("org/T", [*TARGETS, "T-DFlash2-Q8_0.gguf", "mtp-T-Q8_0.gguf", "other/dflash-T-Q8_0.gguf"])
    assert find_sidecar(cache.target("org/T")) is None


def test_sidecars_that_are_as_near_are_told_apart_by_their_headers(cache, target, drafter, stranger):
    files = {"T-Q6_K.gguf": target, "dflash-A-Q4_0.gguf": stranger, "dflash-B-Q8_0.gguf": drafter}
    cache.add("org/T", files)
    assert find_sidecar(cache.target("org/T")).path == "dflash-B-Q8_0.gguf"
    cache.add("org/U", files | {"dflash-C-Q8_0.gguf": target})
    assert find_sidecar(cache.target("org/U:Q6_K")).path == "dflash-B-Q8_0.gguf"


def test_sidecars_that_nothing_tells_apart_are_named(cache, target, drafter):
    cache.add("org/T", {"T-Q6_K.gguf": target, "dflash-A-Q4_0.gguf": drafter, "dflash-B-Q8_0.gguf": drafter})
    refusal(lambda: find_sidecar(cache.target("org/T")), "`dflash-A-Q4_0.gguf`, `dflash-B-Q8_0.gguf`", "`-hfd`")


def test_the_drafter_beside_a_file_is_the_one_that_fits(tmp_path, target, drafter, stranger):
    (tmp_path / "t-Q8_0.gguf").write_bytes(target)
    here = LocalModel(tmp_path / "t-Q8_0.gguf")
    assert find_sidecar(here) is None
    (tmp_path / "dflash-other-Q8_0.gguf").write_bytes(stranger)
    (tmp_path / "dflash-broken-Q8_0.gguf").write_bytes(b"GGUF")
    assert find_sidecar(here) is None
    (tmp_path / "dflash-t-F16.gguf").write_bytes(drafter)
    assert find_sidecar(here).path == tmp_path / "dflash-t-F16.gguf"
    (tmp_path / "dflash-t-Q8_0.gguf").write_bytes(drafter)
    assert find_sidecar(here).path == tmp_path / "dflash-t-Q8_0.gguf"
    (tmp_path / "dflash-u-Q8_0.gguf").write_bytes(drafter)
    refusal(lambda: find_sidecar(here), "lie beside it", "`dflash-t-Q8_0.gguf`, `dflash-u-Q8_0.gguf`", "`-md`")
    assert find_sidecar(LocalModel(tmp_path / "none.gguf")) is None


# ---------------------------------------------------------------- -hfd D


def test_any_sidecar_of_the_drafters_repository(cache):
    """`-hf T -hfd D`. llama.cpp prefers an MTP head; there is no loop for one here."""
    cache.add("org/T", TARGETS)
    cache.add("org/D", ["mtp-T-Q4_K_M.gguf", "dflash-T-Q8_0.gguf", "eagle3-T-Q4_K_M.gguf"])
    assert cache.drafter("org/D", cache.target("org/T")).path == "dflash-T-Q8_0.gguf"


def test_a_sidecar_of_a_type_else_the_nearest(cache):
    """`-hf T -hfd D:TAG --spec-type draft-dflash`."""
    cache.add("org/T", TARGETS)
    cache.add("org/D", ["dflash-T-BF16.gguf", "dflash-T-Q4_0.gguf", "dflash-T-Q8_0.gguf", "D-Q2_K.gguf"])
    theirs = cache.target("org/T:Q8_0")
    assert cache.drafter("org/D:Q4_0", theirs).path == "dflash-T-Q4_0.gguf"
    assert cache.drafter("org/D", theirs).path == "dflash-T-Q8_0.gguf"
    near = cache.drafter("org/D:Q4_K_M", theirs)
    assert near.path == "dflash-T-Q4_0.gguf"
    assert near.notes == ("`org/D` has no drafter of type Q4_K_M: took the nearest, `dflash-T-Q4_0.gguf`",)


def test_without_a_sidecar_any_model_of_the_type(cache):
    """`-hf T -hfd D:TAG`. llama.cpp loads it and never drafts without `--spec-type`; here its header tells."""
    cache.add("org/T", TARGETS)
    cache.add("incoai/D-GGUF", ["Qwen3.8-27B-DFlash2-BF16.gguf", "Qwen3.8-27B-DFlash2-Q4_K_M.gguf"])
    for name in ("incoai/D-GGUF:Q4_K_M", "incoai/D-GGUF"):
        assert cache.drafter(name, cache.target("org/T")).path == "Qwen3.8-27B-DFlash2-Q4_K_M.gguf"
    refusal(lambda: cache.drafter("incoai/D-GGUF:Q8_0"), "no GGUF of type `Q8_0`", "DFlash2-BF16.gguf")


def test_a_file_of_the_drafters_repository(cache):
    """`-hf T -hfd D -md FILE`."""
    cache.add("org/D", ["dflash-T-Q8_0.gguf", "old/T-Q4_0.gguf"])
    assert cache.drafter("org/D", None, "old/T-Q4_0.gguf").path == "old/T-Q4_0.gguf"
    refusal(lambda: cache.drafter("org/D", None, "T-Q4_0.gguf"), "for `-md`", "`old/T-Q4_0.gguf`")


def test_a_file_with_a_drafter_of_the_hub(cache, tmp_path, target, drafter):
    """`-m FILE -hfd D`. llama.cpp looks at the hub only with `-hf`, and fails."""
    (tmp_path / "mine-Q8_0.gguf").write_bytes(target)
    cache.add("org/D", ["dflash-T-F16.gguf", "dflash-T-Q8_0.gguf"], drafter)
    assert cache.drafter("org/D", LocalModel(tmp_path / "mine-Q8_0.gguf")).path == "dflash-T-Q8_0.gguf"


def test_what_the_files_are_settles_what_their_names_leave_open(cache, target, drafter, stranger):
    files = {"T-Q4_K_M.gguf": target, "T-DFlash2-Q4_K_M.gguf": drafter, "U-DFlash2-Q4_K_M.gguf": stranger}
    cache.add("org/T", files)
    cache.add("org/D", files)
    assert cache.drafter("org/D:Q4_K_M", cache.target("org/T", "T-Q4_K_M.gguf")).path == "T-DFlash2-Q4_K_M.gguf"
    # Of a repository that is the target's own too, the target itself is no drafter.
    assert cache.drafter("org/T:Q4_K_M", cache.target("org/T", "T-Q4_K_M.gguf")).path == "T-DFlash2-Q4_K_M.gguf"
    both = ("`T-DFlash2-Q4_K_M.gguf`, `U-DFlash2-Q4_K_M.gguf`", "`-md` next to `-hfd`")
    assert "T-Q4_K_M" not in refusal(lambda: cache.drafter("org/D:Q4_K_M"), *both)


def test_folders_count_only_beside_the_target(cache):
    files = ["a/T-Q8_0.gguf", "a/dflash-T-F16.gguf", "dflash-T-Q8_0.gguf"]
    cache.add("org/T", files)
    cache.add("org/D", files)
    theirs = cache.target("org/T")
    assert find_sidecar(theirs).path == cache.drafter("org/T", theirs).path == "a/dflash-T-F16.gguf"
    assert cache.drafter("org/D", theirs).path == "dflash-T-Q8_0.gguf"


# ---------------------------------------------------------------- what is found


def test_the_same_bytes_have_the_same_identity_by_any_name(cache, tmp_path, target):
    snapshot = cache.add("org/T", {"T-Q8_0.gguf": target, "T-F16.gguf": target[:-1]})
    found = cache.target("org/T:Q8_0")
    assert found.identity == LocalModel(snapshot / "T-Q8_0.gguf").identity
    assert found.identity != cache.target("org/T:F16").identity
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(target)
    first = LocalModel(copy).identity
    assert first == LocalModel(Path(re.sub("copy", "./copy", str(copy)))).identity
    copy.write_bytes(target + b"\0")
    assert LocalModel(copy).identity != first


def test_a_file_that_is_here_is_read_from_here(cache, target):
    snapshot = cache.add("org/T", ["T-Q8_0.gguf"], target)
    assert cache.target("org/T").source() == snapshot / "T-Q8_0.gguf"
    assert not isinstance(cache.target("org/T").source(), GGUFHeader)
