"""The hub's client: listings, downloads, ranges and errors, with the real huggingface_hub and a local server."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import hub_server
import pytest
from hub_server import OTHER_TOKEN, TOKEN, git_id
from huggingface_hub import constants

from dflash_gguf.errors import HubError, HubUnreachableError
from dflash_gguf.hub.client import hub as the_hub
from dflash_gguf.hub.ranges import RemoteFile
from dflash_gguf.hub.spec import HubSpec, on_hub, parse_spec

WEIGHTS = bytes(range(256)) * 4096
FILES = {"config.json": b'{"a": 1}', "model.safetensors": WEIGHTS, "sub/folder/x.gguf": WEIGHTS[:1000]}


@pytest.fixture
def repo(hub):
    return hub.add("org/model", FILES)


def remote(path, **how):
    client = the_hub(**how)
    listing = client.listing("org/model")
    return RemoteFile(client, listing, listing.files[path])


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("org/model", HubSpec("org/model")),
        ("incoai/Qwen3.8-27B-DFlash2", HubSpec("incoai/Qwen3.8-27B-DFlash2")),
        ("org/model@v1.0", HubSpec("org/model", "v1.0")),
        ("org/model@refs/pr/3", HubSpec("org/model", "refs/pr/3")),
        ("org/model:Q4_K_M", HubSpec("org/model", None, "Q4_K_M")),
        ("org/model@main:UD-Q4_K_XL", HubSpec("org/model", "main", "UD-Q4_K_XL")),
    ],
)
def test_names(text, spec):
    assert parse_spec(text) == spec
    assert str(spec) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "model", "a/b/c", "/a/b", "a/b/", "./a/b", "../b", "a//b", "a/.b", "a/b.", "a/b..c", "a/b--c", "a b/c",
        "a/b:", "a/b@", "a/b@:Q4", "a/b@x y", "a/b@a..b", "a/b:Q4:Q8", "a/b:x/y", "~/b", "a/" + "b" * 300, "a/b@-x",
        "\u00e9/b",
    ],
)  # fmt: skip
def test_what_is_no_name(text):
    with pytest.raises(HubError, match="ORG/REPO"):
        parse_spec(text)
    assert on_hub(text) is None


def test_a_folder_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert on_hub("org/model") == HubSpec("org/model")
    assert on_hub(Path("org/model")) == HubSpec("org/model")
    (tmp_path / "org" / "model").mkdir(parents=True)
    assert on_hub("org/model") is None
    assert on_hub("org/other") == HubSpec("org/other")
    assert on_hub("org/target.gguf") is None


# ---------------------------------------------------------------- listings and downloads


def test_a_listing_is_of_one_commit(hub, repo):
    listing = the_hub().listing("org/model")
    assert (listing.repo, listing.revision, listing.commit) == ("org/model", "main", repo.commit)
    assert list(listing.files) == sorted(FILES)
    small, large = listing.files["config.json"], listing.files["model.safetensors"]
    assert (small.size, small.oid, small.large) == (8, git_id(FILES["config.json"]), False)
    assert (large.size, large.oid, large.large) == (len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest(), True)
    assert all(repo.commit in row.path for row in hub.asked("GET", "/tree/"))


def test_a_listing_has_every_page(hub):
    hub.add("org/many", {f"file-{i:03}.json": b"{}" for i in range(120)})
    assert len(the_hub().listing("org/many").files) == 120
    assert len(hub.asked("GET", "/tree/")) == 3


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_download_is_a_file_of_the_snapshot(hub, repo, tmp_path, path):
    client = the_hub()
    listing = client.listing("org/model")
    assert client.cached(listing, path) is None
    found = client.download(listing, path)
    assert found == tmp_path / "hub" / "models--org--model" / "snapshots" / repo.commit / path
    assert found.read_bytes() == FILES[path]
    assert hub.bytes_of(path) == len(FILES[path])
    assert (tmp_path / "hub" / "models--org--model" / "refs" / "main").read_text() == repo.commit
    hub.forget()
    assert client.download(listing, path) == found
    assert not hub.requests


def test_the_cache_serves_when_offline(hub, repo):
    client = the_hub()
    client.download(client.listing("org/model"), "config.json")
    hub.forget()
    away = the_hub(offline=True)
    listing = away.listing("org/model")
    assert (listing.commit, list(listing.files), listing.cached) == (repo.commit, ["config.json"], True)
    assert away.listing("org/model", repo.commit).files == listing.files
    assert away.download(listing, "config.json").read_bytes() == FILES["config.json"]
    with pytest.raises(
        HubUnreachableError, match=r"`model.safetensors` of `org/model` is not in the cache.*hf download"
    ):
        away.download(listing, "model.safetensors")
    with pytest.raises(HubUnreachableError, match="`org/other` is not in the cache"):
        away.listing("org/other")
    assert not hub.requests


def test_the_variable_for_offline_counts(hub, repo, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnreachableError, match="unset HF_HUB_OFFLINE"):
        the_hub().listing("org/model")
    assert not hub.requests


def test_a_hub_that_is_down_leaves_the_cache(hub, repo, monkeypatch):
    client = the_hub()
    client.download(client.listing("org/model"), "config.json")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    listing = the_hub().listing("org/model")
    assert listing.cached
    assert "cannot be reached" in listing.note
    assert the_hub().download(listing, "config.json").read_bytes() == FILES["config.json"]
    with pytest.raises(HubUnreachableError, match=r"http://127.0.0.1:9 cannot be reached.*check the connection"):
        the_hub().listing("org/other")


def test_llama_cpps_variables_come_first(hub, repo, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("MODEL_ENDPOINT", f"{hub.endpoint}/")
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama"))
    client = the_hub()
    assert client.endpoint == hub.endpoint
    assert client.download(client.listing("org/model"), "config.json").is_relative_to(tmp_path / "llama")


def test_a_name_that_leads_elsewhere_is_not_listed(hub):
    hub.add("org/model", {"../x.gguf": b"", "a/../../x": b"", "a\\b": b"", "fine.gguf": b"x"})
    assert list(the_hub().listing("org/model").files) == ["fine.gguf"]


def test_an_id_that_leads_elsewhere_is_not_listed(hub, repo, monkeypatch, tmp_path):
    """A file's place in the cache is named by its id."""
    row = hub_server._tree_row
    monkeypatch.setattr(hub_server, "_tree_row", lambda path, data: _with_id(row(path, data), "../../../../stray"))
    assert list(the_hub().listing("org/model").files) == ["config.json"]


def _with_id(row, oid):
    return {**row, "lfs": {**row["lfs"], "oid": oid}} if "lfs" in row else row


def test_a_download_that_breaks_off_goes_on(hub, repo):
    hub.cuts["model.safetensors"] = [300_000, 200_000]
    client = the_hub()
    assert client.download(client.listing("org/model"), "model.safetensors").read_bytes() == WEIGHTS
    assert hub.bytes_of("model.safetensors") == len(WEIGHTS)
    assert [row.range.partition("-")[0] for row in hub.asked("GET", "/cdn/")] == [
        "bytes=0",
        "bytes=300000",
        "bytes=500000",
    ]


def test_another_run_goes_on_where_one_was_stopped(hub, repo, tmp_path):
    client = the_hub()
    listing = client.listing("org/model")
    hub.cuts["model.safetensors"] = [300_000] + [0] * 4
    with pytest.raises(HubUnreachableError, match="cannot be reached"):
        client.download(listing, "model.safetensors")
    blobs = tmp_path / "hub" / "models--org--model" / "blobs"
    (partial,) = blobs.iterdir()
    assert partial.read_bytes() == WEIGHTS[:300_000]
    found = client.download(listing, "model.safetensors")
    assert found.read_bytes() == WEIGHTS
    assert hub.bytes_of("model.safetensors") == len(WEIGHTS)
    assert [path.name for path in blobs.iterdir()] == [hashlib.sha256(WEIGHTS).hexdigest()]
    assert found.is_symlink()


def test_what_came_damaged_is_not_kept(hub, repo, tmp_path):
    client = the_hub()
    listing = client.listing("org/model")
    blobs = tmp_path / "hub" / "models--org--model" / "blobs"
    blobs.mkdir(parents=True)
    partial = blobs / f"{hashlib.sha256(WEIGHTS).hexdigest()}.dflash-gguf.partial"
    partial.write_bytes(b"x" * 1000)
    with pytest.raises(HubError, match="came damaged"):
        client.download(listing, "model.safetensors")
    partial.write_bytes(b"x" * (len(WEIGHTS) + 1))
    assert client.download(listing, "model.safetensors").read_bytes() == WEIGHTS


def test_a_file_that_cannot_fit_is_not_begun(hub, repo, monkeypatch):
    client = the_hub()
    listing = client.listing("org/model")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(HubError, match=r"does not fit on the disk.*HF_HUB_CACHE or LLAMA_CACHE"):
        client.download(listing, "model.safetensors")
    assert hub.bytes_of("model.safetensors") == 0


def test_xet_storage_is_left_to_huggingface_hub(hub, repo, monkeypatch):
    """Without a server for Xet, what is seen is that its package is asked, and the sentence when that fails."""
    client = the_hub()
    listing = client.listing("org/model")
    hub.xet = True
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    with pytest.raises(HubError, match=r"`org/model`.*HF_HUB_DISABLE_XET=1"):
        client.download(listing, "model.safetensors")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    assert client.download(listing, "model.safetensors").read_bytes() == WEIGHTS


# ---------------------------------------------------------------- ranges


def test_a_range_is_all_that_is_sent(hub, repo):
    file = remote("model.safetensors")
    hub.forget()
    assert file.read(1000, 3000) == WEIGHTS[1000:4000]
    assert file.read(len(WEIGHTS) - 10, 1000) == WEIGHTS[-10:]
    assert file.read(len(WEIGHTS), 10) == b""
    assert hub.bytes_of("model.safetensors") == 3010
    assert (file.size, file.name, str(file)) == (len(WEIGHTS), "model.safetensors", "org/model/model.safetensors")


def test_a_range_that_breaks_off_goes_on(hub, repo):
    file = remote("model.safetensors")
    hub.cuts["model.safetensors"] = [1000, 0, 500]
    assert file.read(0, 5000) == WEIGHTS[:5000]
    assert hub.bytes_of("model.safetensors") == 5000
    assert hub.asked("GET", "/cdn/")[-1].range == "bytes=1500-4999"


def test_a_connection_that_breaks_off_often_brings_it_all(hub, repo):
    """Tries are counted anew when something came: a long download loses its connection more than once."""
    hub.cuts["model.safetensors"] = [50_000] * 20
    client = the_hub()
    assert client.download(client.listing("org/model"), "model.safetensors").read_bytes() == WEIGHTS
    assert hub.bytes_of("model.safetensors") == len(WEIGHTS)
    assert hub.naps == [0.0] * 21


def test_a_range_that_always_breaks_off(hub, repo):
    file = remote("model.safetensors")
    hub.cuts["model.safetensors"] = [0] * 9
    with pytest.raises(HubUnreachableError, match=r"cannot be reached"):
        file.read(0, 5000)


def test_a_server_without_ranges_is_not_read_whole(hub, repo):
    file = remote("model.safetensors")
    hub.ranges = False
    with pytest.raises(HubError, match="does not serve parts"):
        file.read(0, 5000)


def test_the_token_stays_with_the_hub(hub, repo, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    file = remote("model.safetensors")
    file.read(0, 100)
    file.hub.download(file.listing, "model.safetensors")
    assert {row.token for row in hub.requests if row.host == "127.0.0.1"} == {TOKEN}
    assert {row.token for row in hub.requests if row.host == "localhost"} == {None}


# ---------------------------------------------------------------- errors


def failing(path="config.json", revision=None, **how):
    """The error of a download."""
    client = the_hub(**how)
    with pytest.raises(HubError) as caught:
        client.download(client.listing("org/model", revision), path)
    return str(caught.value)


def test_a_gated_repository(hub):
    hub.add("org/model", FILES, gated=True)
    text = failing()
    assert (
        f"`org/model` is gated: its owners decide who may download it; accept its terms at {hub.endpoint}/org/model"
        in text
    )
    assert "hf auth login" in text
    assert "ask for access" in failing(token=OTHER_TOKEN)
    client = the_hub(token=TOKEN)
    assert client.download(client.listing("org/model"), "config.json").read_bytes() == FILES["config.json"]


@pytest.mark.parametrize("private", [True, False])
def test_a_missing_or_private_repository(hub, private):
    if private:
        hub.add("org/model", FILES, private=True)
    assert "there is no repository `org/model`" in failing()
    assert "for a private one run `hf auth login`" in failing()
    assert "your token may not see it" in failing(token=OTHER_TOKEN)
    assert "search=model" in failing()


def test_a_missing_revision_and_a_missing_file(hub, repo):
    assert "`org/model` has no revision `v9`" in failing(revision="v9")
    assert f"{hub.endpoint}/org/model/tree/main" in failing(revision="v9")
    assert "`org/model` has no file `other.json`" in failing("other.json")


def test_a_token_that_is_refused(hub, repo):
    assert "does not take the token" in failing(token="hf_" + "x" * 34)


@pytest.mark.parametrize("token", ["hf_\u00e9", "hf_x\ny"])
def test_a_token_that_is_none_is_told_and_not_shown(hub, repo, token):
    text = failing(token=token)
    assert "the token of `-hft` or HF_TOKEN holds characters that no token has" in text
    assert f"{hub.endpoint}/settings/tokens" in text
    assert "hf_x" not in text


@pytest.mark.parametrize("blank", ["", " "])
def test_an_empty_token_is_none(hub, repo, blank):
    client = the_hub(token=blank)
    assert client.download(client.listing("org/model"), "config.json").read_bytes() == FILES["config.json"]
    assert {row.token for row in hub.requests} == {None}


def test_too_many_requests(hub, repo):
    rows = [("", 429, {"Retry-After": "37"})]
    hub.statuses = rows * 20
    text = failing()
    assert "status 429" in text
    assert "wait 37 seconds and try again" in text
    assert "hf auth login" in text
    client = the_hub()
    hub.statuses = []
    listing = client.listing("org/model")
    hub.statuses = [("/resolve/", 429, {"Retry-After": "7"})] * 2
    assert client.download(listing, "config.json").read_bytes() == FILES["config.json"]
    assert hub.naps


def test_a_hub_with_a_fault(hub, repo):
    hub.statuses = [("", 503, {})] * 20
    assert "fails with status 503; try again later" in failing()


def test_something_that_is_no_hub(hub, repo):
    hub.statuses = [("/api/", 200, {"Content-Type": "text/html"})]
    assert "does not answer as a model hub does" in failing()


def test_a_cache_that_only_others_may_write_to(hub, repo, monkeypatch):
    def refused(*_, **__):
        raise OSError(30, "Read-only file system", "/cache/x")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", refused)
    text = failing()
    assert "the cache cannot be written to ([Errno 30] Read-only file system: '/cache/x'); choose another" in text
    assert "HF_HUB_CACHE or LLAMA_CACHE" in text


def test_a_full_disk(hub, repo, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", full)
    assert "the disk is full while downloading from `org/model`; free some space" in failing()
