"""The flags of a choice: what is out of bounds is one message and exit code 2; what is given arrives."""

from __future__ import annotations

import json
import re

import click
import pytest
from click.testing import CliRunner
from test_commands import dflash, one_line_error

from dflash_gguf.cli import root
from dflash_gguf.cli.options import Number
from dflash_gguf.cli.sampling_options import TABLE, sampling_arguments, sampling_options
from dflash_gguf.runner.bounds import LONGEST_GRAMMAR
from dflash_gguf.runner.sampling import Sampling


@click.command()
@sampling_options()
@click.pass_context
def probe(ctx, **options):
    ctx.obj.update(sampling_arguments(ctx, options))


def parsed(*words):
    """What the flags make of ``words``."""
    found = {}
    done = CliRunner().invoke(probe, [str(word) for word in words], obj=found, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return found


def refused(*words):
    done = CliRunner().invoke(root, ["run", "-m", "x.gguf", "--no-draft", "-p", "x", *map(str, words)])
    assert done.exit_code == 2, done.output
    (line,) = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    return line


def test_defaults_are_the_librarys_and_so_llama_cpps():
    found = parsed()
    assert Sampling(**found) == Sampling()
    assert {row.argument: row.default for row in TABLE} == {
        row.argument: getattr(Sampling(), row.argument) for row in TABLE
    }


def test_below_0_all_are_kept():
    assert parsed("--top-k", -7)["top_k"] == -7


def test_every_flag_arrives():
    for i, row in enumerate(TABLE):
        value = 1 if isinstance(row.default, int) else 0.25 + i / 1000
        for flag in row.usage:
            assert parsed(flag, value)[row.argument] == value
            assert Sampling(**parsed(flag, value))
    found = parsed("-s", 2**64 - 1, "-l", "5+1.5", "-l", "7-inf", "--logit-bias", "9-2", "--dry-sequence-breaker", "x")
    assert found["seed"] == 2**64 - 1
    assert found["logit_bias"] == {5: 1.5, 7: -float("inf"), 9: -2.0}
    assert tuple(found["dry_sequence_breakers"]) == ("x",)
    assert parsed("--seed", -1)["seed"] is None


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.usage[0])
def test_values_out_of_bounds(row):
    whole = ("x", "1.5", str(-(1 << 32)), str(1 << 31))
    for word in ("x", "nan", "inf", "-1e9", "1e9", "") if isinstance(row.default, float) else whole:
        line = refused(row.usage[0], word)
        assert row.usage[-1] in line or row.usage[0] in line
        assert "Invalid value" in line


@pytest.mark.parametrize("word", ["x", "nan", "inf", "-0.5", "1.5"])
def test_a_share_of_a_session_is_checked_as_those_of_a_choice_are(word):
    line = refused("--spec-draft-p-min", word)
    assert "Invalid value for '--spec-draft-p-min'" in line


def test_a_range_with_an_open_end_takes_finite_numbers_alone():
    number = Number(min=0.0)
    assert number.convert("1e308", None, None) == 1e308
    for word, message in (("inf", "'inf' is no finite number"), ("nan", "'nan' is no finite number"), ("-1", "range")):
        with pytest.raises(click.BadParameter, match=message):
            number.convert(word, None, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-s", "-2"), "'-s' / '--seed'"),
        (("-s", str(2**64)), "-1<=x<=18446744073709551615"),
        (("-s", "1.0"), "not a valid integer"),
        (("-l", "5"), "'5' is no token id with a bias, such as 15043\\+1 or 15043-inf"),
        (("-l", "5+nan"), "is no token id"),
        (("-l", "-5+1"), "is no token id"),
        (("-l", "5+1e3"), "is no token id"),
        (("-l", "5+"), "is no token id"),
        (("--grammar-file", "no/such/file"), "'--grammar-file'.*No such file"),
        (("--json-schema-file", "no/such/file"), "'--json-schema-file'.*No such file"),
        (("--grammar", "a", "-j", "{}"), "give a grammar or a JSON schema, not both"),
    ],
    ids=str,
)
def test_other_values_that_are_none(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(*words)
    assert re.search(message, line), line


def test_files_that_hold_no_grammar(tmp_path):
    (tmp_path / "long").write_bytes(b"a" * (LONGEST_GRAMMAR + 1))
    (tmp_path / "bytes").write_bytes(b"root ::= \xff")
    for flag in ("grammar", "json-schema"):
        assert f"--{flag}-file is longer than {LONGEST_GRAMMAR} bytes" in refused(f"--{flag}-file", tmp_path / "long")
        assert f"--{flag}-file is not UTF-8 text" in refused(f"--{flag}-file", tmp_path / "bytes")
        both = refused(f"--{flag}", "x", f"--{flag}-file", tmp_path / "bytes")
        assert f"give --{flag} or --{flag}-file, not both" in both


@pytest.fixture
def run_words(tiny_target):
    return ["run", "-m", tiny_target, "--no-draft", "-c", 128, "-t", 1, "-n", 8, "-p", "x", "--raw"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-l", "512+1"), "a token of `logit_bias`: got 512, expected 0 to 511"),
        (("-l", "3-inf", "-l", "99999999999+1"), "a token of `logit_bias`: got 99999999999, expected 0 to "),
        (("-l", "1+inf"), "`logit_bias[1]`: got inf"),
    ],
    ids=str,
)
def test_tokens_that_are_none_are_wrong_usage(words, message, run_words):
    assert message in one_line_error(dflash(*run_words, *words), 2)


@pytest.mark.parametrize("command", ["run", "verify", "bench", "serve"])
def test_every_command_knows_the_targets_tokens_before_it_loads_it(command, tiny_target, tiny_drafter):
    words = [command, "-m", tiny_target, "-md", tiny_drafter, "-c", 128, "-t", 1, "-l", "512+1"]
    words += ["-p", "x"] if command in ("run", "verify") else ["--port", 0] if command == "serve" else []
    with pytest.raises(click.UsageError, match="a token of `logit_bias`: got 512, expected 0 to 511"):
        CliRunner().invoke(root, list(map(str, words)), standalone_mode=False, catch_exceptions=False)


def test_a_grammar_that_does_not_parse(run_words):
    done = dflash(*run_words, "--grammar", "root ::= (")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "error: libllama refuses the `grammar`: got 'root ::= ('" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_seed_is_told_and_repeats_the_text(run_words, tmp_path):
    (tmp_path / "g").write_text("root ::= [a-f]{4}", encoding="utf-8")
    words = [*run_words, "--temp", 1.5, "--top-k", 0, "--grammar-file", tmp_path / "g", "--json"]
    first = json.loads(dflash(*words).stdout)
    seed = first["stats"]["seed"]
    again = json.loads(dflash(*words, "-s", seed).stdout)
    assert (again["ids"], again["text"]) == (first["ids"], first["text"])
    assert len(first["text"]) == 4
    assert set(first["text"]) <= set("abcdef")
    assert first["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-r", ""], "-r needs a text that is not empty"),
        (
            ["--dry-sequence-breaker", ""],
            "a text of `dry_sequence_breakers`: got '', expected a text that is not empty",
        ),
        (["--grammar", ""], "`grammar`: got '', expected a grammar in GBNF"),
        (["-j", '{"type":'], "`json_schema` is no JSON"),
        (["-j", "[]"], "`json_schema`: got '[]', expected a JSON object"),
        (["-j", '{"enum": []}'], "`enum` in `json_schema`"),
        (["-j", '{"type": "string", "maxLength": 999999999}'], "`maxLength` in `json_schema`: got 999999999"),
    ],
)
def test_what_is_wrong_of_itself_is_wrong_usage(words, message):
    assert message in refused(*words)


def test_a_schema_that_is_not_enforced_is_worth_a_warning(run_words):
    done = dflash(*run_words, "-j", '{"type": "integer", "minimum": 5}')
    assert done.returncode == 0, done.stderr
    assert "warning: the JSON schema's 'minimum' will not be enforced: check the answer" in done.stderr
