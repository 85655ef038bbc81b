"""``convert --upload``: a private repository, asked for first, with the file and a card that says how to run it."""

from __future__ import annotations

import json
from textwrap import indent

import pytest
from click import ClickException
from click.testing import CliRunner
from golden.generate import PRE_TOKENIZER
from hub_repos import publish, write_pair
from hub_server import OTHER_TOKEN, TOKEN
from test_commands import dflash, one_line_error

import dflash_gguf
from dflash_gguf.cli import root
from dflash_gguf.convert.card import card_values
from dflash_gguf.convert.vocab import keys as vocabulary
from dflash_gguf.errors import BenchError, HubError
from dflash_gguf.gguf_header import read_header

# huggingface_hub hands its HTTP library a file in a way that this deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

DRAFTER = "incoai/Qwen3.8-27B-DFlash2"
TARGET = "Qwen/Qwen3.6-27B"
SHELF = "me/Qwen3.8-27B-DFlash2-GGUF"
BENCH = {
    "facts": {"target": "/home/me/secret/t.gguf", "draft": "d.gguf", "cpu": "a CPU"},
    "best": None,
    "settings": [
        {
            "name": "auto",
            "kinds": [{"kind": "code", "drafts": {"acceptance_length": 3.456}, "speed": {"ratio": 1.5}}],
            "all": {"kind": "all", "drafts": {"acceptance_length": 3.0}, "speed": None},
        }
    ],
}


@pytest.fixture(autouse=True)
def published(hub, tmp_path, monkeypatch):
    """A drafter and its target on the hub; the user is known."""
    monkeypatch.setattr(vocabulary, "recognise", lambda *_: PRE_TOKENIZER)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)
    drafter, target = write_pair("incoai-2", tmp_path / "files", base_model=TARGET)
    publish(hub, DRAFTER, drafter)
    publish(hub, TARGET, target)


def run(*words, answer=None):
    return convert(DRAFTER, SHELF, *words, answer=answer)


def convert(drafter, shelf, *words, answer=None):
    words = ["convert", drafter, "--upload", shelf, *words]
    return CliRunner().invoke(root, list(map(str, words)), input=answer, standalone_mode=False, catch_exceptions=False)


def test_a_private_repository_with_the_file_and_a_card(hub, tmp_path):
    done = run("--quant", "BF16", "--yes")
    assert hub.created == [{"name": SHELF[3:], "organization": "me", "visibility": "private"}]
    held = hub.repos[SHELF].files
    name = "dflash-Qwen3.6-27B-BF16.gguf"
    assert sorted(held) == ["README.md", name]
    assert held[name] == (tmp_path / name).read_bytes()
    assert f"uploaded: {hub.endpoint}/{SHELF}/commit/" in done.stdout
    card = held["README.md"].decode()
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "README.md").write_text(card)
    assert card_values(tmp_path / "card") == {
        "license": "apache-2.0",
        "base_model": [DRAFTER],
        "base_model_relation": "quantized",
        "tags": ["gguf", "dflash", "speculative-decoding", "llama.cpp"],
    }
    commit = hub.repos[DRAFTER].commit
    assert f"[{DRAFTER}]({hub.endpoint}/{DRAFTER}/tree/{commit}) (DFlash 2, blocks of 8)" in card
    assert f"for [{TARGET}]({hub.endpoint}/{TARGET}/tree/" in card
    assert f"| {name} | BF16 | {len(held[name]) / 1e6:.1f} MB |" in card
    assert f"-hfd {SHELF}:BF16 --spec-type draft-dflash --spec-draft-n-max 7" in card
    assert f'"model": "{DRAFTER}", "num_speculative_tokens": 7' in card
    for engine in ("vllm", "sglang"):
        made = dflash_gguf.recipe(engine, target=TARGET, draft=DRAFTER)
        launch = next(step for step in made.steps if step.title == "launch")
        assert f"{made.title}, the safetensors:\n\n{indent(launch.text, '    ')}\n" in card
    assert "ollama create" in card
    assert str(tmp_path) not in card
    assert "What it gains" not in card


def test_llama_cpp_is_told_what_it_reads_right(hub, tmp_path):
    """It looks at `-hfd` only beside `-hf`; a drafter that proposes from the anchor's row on it reads as DSpark."""
    run("--quant", "BF16", "--yes")
    card = hub.repos[SHELF].files["README.md"].decode()
    assert f"    llama-server -hf ORG/TARGET-GGUF -hfd {SHELF}:BF16 --spec-type draft-dflash " in card
    assert f"    dflash-gguf run -m TARGET.gguf -hfd {SHELF}:BF16\n" in card
    drafter, target = write_pair("deepspec-v1", tmp_path / "anchored", base_model="org/target")
    publish(hub, "org/anchored", drafter)
    publish(hub, "org/target", target)
    convert("org/anchored", "me/anchored-GGUF", "--quant", "BF16", "--yes")
    card = hub.repos["me/anchored-GGUF"].files["README.md"].decode()
    block = read_header(next(tmp_path.glob("dflash-*target-BF16.gguf"))).integer("dflash.block_size")
    assert f"(DFlash, blocks of {block})" in card
    assert f"--spec-type draft-dspark --spec-draft-n-max {block}\n" in card
    assert "the safetensors" not in card


def test_a_second_type_joins_the_first(hub):
    run("--quant", "BF16", "--yes")
    card = hub.repos[SHELF].files["README.md"].decode()
    hub.repos[SHELF].files["README.md"] = card.replace("## How to run it", "My own words.\n\n## How to run it").encode()
    run("--quant", "Q8_0", "--yes", "--public")
    assert len(hub.created) == 1
    card = hub.repos[SHELF].files["README.md"].decode()
    assert "My own words." in card
    assert [line.split(" | ")[1] for line in card.splitlines() if line.startswith("| dflash-")] == ["BF16", "Q8_0"]


def test_the_card_of_another_is_left(hub):
    hub.add(SHELF, {"README.md": b"# Mine\n"}, private=True)
    done = run("--quant", "BF16", "--yes")
    assert hub.repos[SHELF].files["README.md"] == b"# Mine\n"
    assert "is not of dflash-gguf's making, and was left as it is" in done.stderr
    assert "dflash-Qwen3.6-27B-BF16.gguf" in hub.repos[SHELF].files


def test_public_when_it_is_said(hub):
    run("--yes", "--public")
    assert hub.created[0]["visibility"] == "public"


def test_what_was_measured_is_on_the_card(hub, tmp_path):
    (tmp_path / "bench.json").write_text(json.dumps(BENCH))
    run("--yes", "--bench-results", "bench.json")
    card = hub.repos[SHELF].files["README.md"].decode()
    assert "| code | 3.46 | 1.50 |" in card
    assert "| all | 3.00 | not known |" in card
    assert "cpu: a CPU" in card
    assert "secret" not in card


@pytest.mark.parametrize("text", ["{}", "[]", "x", '{"settings": [{}]}', '{"settings": []}'])
def test_a_measurement_that_is_none(hub, tmp_path, text):
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(BenchError, match="bench --json"):
        run("--yes", "--bench-results", "bench.json")
    assert not hub.commits


def test_it_asks_first(hub, tmp_path):
    done = dflash("convert", DRAFTER, "--upload", SHELF)
    assert "nobody is there to answer: add --yes" in one_line_error(done, 2)
    done = dflash("convert", DRAFTER, "--yes")
    assert "belong to --upload" in one_line_error(done, 2)
    assert not hub.requests


@pytest.mark.parametrize(("answer", "commits"), [("y\n", 1), ("n\n", 0), ("\n", 0)])
def test_the_answer_counts(hub, tmp_path, monkeypatch, answer, commits):
    monkeypatch.setattr("dflash_gguf.cli.convert_upload._someone_is_there", lambda: True)
    if commits:
        done = run("--json", answer=answer)
        assert json.loads(done.stdout)["upload"]
        assert "into the new private repository `me/" in done.stderr
    else:
        with pytest.raises(ClickException, match="nothing was converted"):
            run("--json", answer=answer)
    assert len(hub.commits) == commits
    assert len(list(tmp_path.glob("*.gguf"))) == commits


def test_a_dry_run_uploads_nothing(hub):
    done = run("--dry-run", "--yes")
    assert f"would put the file and a model card into the new private repository `{SHELF}`" in done.stderr
    assert not hub.created
    assert not hub.commits


@pytest.mark.parametrize("name", ["me", "me/x:Q4_K_M", "me/x@main", "a/b/c"])
def test_a_place_that_is_none(hub, name):
    with pytest.raises(HubError, match="ORG/REPO"):
        CliRunner().invoke(
            root, ["convert", DRAFTER, "--upload", name, "--yes"], standalone_mode=False, catch_exceptions=False
        )
    assert not hub.requests


def test_who_may_not_write_is_told_before_and_after(hub, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match=r"must know who puts files.*hf auth login"):
        run("--yes")
    assert not hub.requests
    monkeypatch.setenv("HF_TOKEN", OTHER_TOKEN)
    with pytest.raises(HubError, match=r"the token may not write to.*use a token that may.*hf upload me/") as caught:
        run("--yes", "--quant", "BF16")
    assert str(tmp_path / "dflash-Qwen3.6-27B-BF16.gguf") in str(caught.value)


def test_json_says_where_it_went(hub):
    result = json.loads(run("--yes", "--json").stdout)
    assert result["upload"].startswith(f"{hub.endpoint}/{SHELF}/commit/")
