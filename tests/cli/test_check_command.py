"""`check` and `verify` as a user types them."""

from __future__ import annotations

import json

import pytest
import tiny
from certain import WRONG_MASK, write_certain_drafter, write_certain_target
from test_commands import dflash, one_line_error


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    return write_certain_target(folder / "target.gguf"), write_certain_drafter(folder / "draft.gguf")


def test_a_good_pair(pair):
    done = dflash("check", "-m", pair[0], "-md", pair[1])
    assert done.returncode == 0
    assert done.stdout == "no errors, no warnings: the drafter fits the target\n"
    assert done.stderr == ""


def test_each_finding_has_both_values_and_what_to_do(pair, tmp_path):
    draft = tiny.write_drafter(
        tmp_path / "d.gguf", kind="dflash", hidden=96, ffn=64, layers=1, heads=1, kv_heads=1, vocab=300, taps=(0, 9)
    )
    done = dflash("check", "-m", pair[0], "-md", draft)
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        "error: hidden sizes differ",
        "  target:  64",
        "  drafter: 96",
        "  do:      use the drafter that was trained for this target",
        "error: the drafter reads layers that the target does not have",
        "  target:  4 layers",
        "  drafter: tap 10",
        "  do:      use the drafter that was trained for this target",
        "2 errors, no warnings: the drafter does not fit the target",
    ]


def test_json_holds_the_same(pair, tmp_path):
    draft = write_certain_drafter(tmp_path / "d.gguf", drop_keys=["dflash.attention.causal"])
    done = dflash("check", "-m", pair[0], "-md", draft, "--json", "-ctkd", "q8_0", "--runtime", "b10000")
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert (report["ok"], report["kind"]) == (False, "dflash")
    assert [finding["level"] for finding in report["findings"]] == ["warning", "error", "warning"]
    assert set(report["findings"][0]) == {"level", "what", "target", "draft", "remedy"}
    assert report["findings"][1]["draft"] == "dflash"
    assert "needs b10242" in report["findings"][1]["what"]


def test_a_broken_file_cannot_be_checked(pair, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(pair[1].read_bytes()[:-100])
    assert "truncated" in one_line_error(dflash("check", "-m", pair[0], "-md", broken), 1)


@pytest.mark.parametrize("build", ["new", "b", "b-1", "0.33"])
def test_a_build_is_a_number(build, pair):
    assert "no build of llama.cpp" in one_line_error(
        dflash("check", "-m", pair[0], "-md", pair[1], "--runtime", build), 2
    )


def test_run_proves_that_it_drafts(pair):
    done = dflash("check", "-m", pair[0], "-md", pair[1], "--run", "-t", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("DFlash: drafted ")


def test_run_fails_when_nothing_is_accepted(pair, tmp_path):
    draft = write_certain_drafter(tmp_path / "d.gguf", mask=WRONG_MASK)
    done = dflash("check", "-m", pair[0], "-md", draft, "--run", "-t", 1)
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert lines[1].endswith("accepted 0, mean acceptance length 1.00")
    assert lines[2] == "nothing was accepted; likely causes, the likeliest first:"
    assert lines[4].split() == [
        "do:",
        "mend",
        "the",
        "file",
        "with",
        "`dflash-gguf",
        "rekey`",
        "and",
        "`--mask-token-id",
        "3`",
    ]
    as_json = json.loads(dflash("check", "-m", pair[0], "-md", draft, "--run", "-t", 1, "--json").stdout)
    assert as_json["ok"] is False
    assert as_json["findings"] == []
    assert as_json["run"]["ok"] is False
    assert len(as_json["run"]["causes"]) == 6


def test_verify_finds_the_same_tokens(tiny_target, tiny_drafter):
    words = ["verify", "-m", tiny_target, "-md", tiny_drafter, "-n", 12, "-t", 1, "-c", 256]
    done = dflash(*words, "-p", "hello", "--raw")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "same         12 tokens  hello\n1 of 1 prompts: the same tokens\n"
    found = json.loads(dflash(*words, "--json").stdout)
    assert found["same"] is True
    assert len(found["prompts"]) == 9
    assert all(row["drafted"]["draft_n"] > 0 for row in found["prompts"])


def test_what_a_file_says_does_not_reach_the_terminal_as_it_is(pair, tmp_path):
    hostile = tiny.write_gguf(tmp_path / "d.gguf", "\x1b[31mred\x07", {}, {})
    done = dflash("check", "-m", pair[0], "-md", hostile)
    assert done.returncode == 3
    assert not {char for char in done.stdout + done.stderr if not char.isprintable()} - {"\n"}
    assert "`\\x1b[31mred\\x07`" in done.stdout
    done = dflash("modelfile", "-m", pair[0], "-md", hostile)
    assert one_line_error(done, 1).isprintable()


def test_verify_tells_where_two_answers_part(tiny_target, tiny_drafter, monkeypatch, capsys):
    """The drafted answer is changed on its way: no real pair of this size parts."""
    from dflash_gguf.cli import root
    from dflash_gguf.runner import comparison

    answer = comparison.answer

    def changed(session, prompt, n_predict, sampling):
        found = answer(session, prompt, n_predict, sampling)
        return comparison.Answer((*found.ids[:3], 9, *found.ids[4:]), found.stats) if session.drafter else found

    monkeypatch.setattr(comparison, "answer", changed)
    words = ["verify", "-m", tiny_target, "-md", tiny_drafter, "-n", 12, "-t", 1, "-c", 256, "-p", "hello", "--raw"]
    assert root.main(list(map(str, words)), standalone_mode=False) == 3
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("different  at token 3: ")
    assert "9 '" in first
    assert "two best logits are " in first
    assert last == "0 of 1 prompts: the same tokens"


def test_the_logits_are_those_behind_what_both_wrote(tiny_target):
    """Whatever this session would write there by itself, and whatever of it is kept."""
    from dflash_gguf import Session
    from dflash_gguf.runner.comparison import answer, parting

    prompt, both = [5, 6, 7, 8], [9, 300, 41]
    with Session(tiny_target, n_ctx=256, n_threads=1, flash_attention="on") as session:
        assert list(answer(session, prompt, 3).ids) != both
        found = parting(session, prompt, [*both, 11, 12], [*both, 13])
        session.forget()
        answer(session, [*prompt, *both], 1)
        logits = session.newest_logits()
    assert (found.index, found.plain_id, found.drafted_id) == (3, 11, 13)
    assert (found.plain_logit, found.drafted_logit) == (float(logits[11]), float(logits[13]))
    second, best = sorted(logits.tolist())[-2:]
    assert found.margin == best - second


@pytest.mark.parametrize(
    ("plain", "drafted", "place"), [((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1, 2), (1,), 1), ((1,), (1, 2), 1)]
)
def test_a_shorter_answer_is_another(plain, drafted, place):
    from dflash_gguf.runner.comparison import place_of_parting

    assert place_of_parting(plain, drafted) == place
