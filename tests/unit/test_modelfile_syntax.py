"""How texts and parameters are spelt: what the reader of ollama's grammar gives back, for anything."""

from __future__ import annotations

from itertools import pairwise

import modelfile_reader
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from modelfile_reader import ModelfileError

from dflash_gguf.errors import TemplateError
from dflash_gguf.modelfile import parameters
from dflash_gguf.modelfile.syntax import line_value, model_name, quoted_value, text_value
from dflash_gguf.modelfile.versions import SEMVER, needed, required, version_key

READER_TABLE = [
    ("FROM ./t.gguf # x\n", [("from", "./t.gguf # x")]),
    ("FROM a\r\nDRAFT b\r\n", [("from", "a"), ("draft", "b")]),
    ("from a", [("from", "a")]),
    ("  \tFROM a\n", [("from", "a")]),
    ("DRAFT b\nFROM a", [("draft", "b"), ("from", "a")]),
    ("\ufeffFROM a\n", [("from", "a")]),
    ("FROM 'a'\n", [("from", "'a'")]),
    ("FROM  a  b \t\n", [("from", "a  b")]),
    ("FROM \n", [("from", "")]),
    ("# x\n  # y\nFROM a\n", [("from", "a")]),
    ("FROM a\nPARAMETER num_ctx  4\n", [("from", "a"), ("parameter:num_ctx", "4")]),
    ('FROM a\nPARAMETER num_ctx "4"\n', [("from", "a"), ("parameter:num_ctx", "4")]),
    ('FROM a\nSYSTEM say "hi"\n', [("from", "a"), ("system", 'say "hi"')]),
    ('FROM a\nSYSTEM "x\ny"\nDRAFT b\n', [("from", "a"), ("system", "x\ny"), ("draft", "b")]),
    ('FROM a\nSYSTEM """x\ny"""\n', [("from", "a"), ("system", "x\ny")]),
    ('FROM a\nSYSTEM """x\r\ny"""\n', [("from", "a"), ("system", "x\r\ny")]),
    ('FROM a\nSYSTEM """"x""""\n', [("from", "a"), ("system", '"x"')]),
    ('FROM a\nSYSTEM """x"""\ny"""\n', None),
    ("FROM a\u00a0b\n", [("from", "ab")]),
    ("FROM a\u3000b\u200d\n", [("from", "ab")]),
    ("FROM a\nMESSAGE user hi there\n", [("from", "a"), ("message", "user: hi there")]),
    ("FROM a\nMESSAGE  user hi\n", None),
    ("FROM a\nMESSAGE robot hi\n", None),
    ("FROM\n", None),
    ("FROM a\nDRAFT\n", None),
    ("FROM a\nDRAFT", None),
    ("FROM a\nPARAMETER  num_ctx 4\n", [("from", "a"), ("parameter:", "num_ctx 4")]),
    ("FROM a\nPARAMETER num_ctx\n", None),
    ("FROM a\nPARAMETER num-ctx 4\n", None),
    ('FROM a\nSYSTEM "a" b\nREQUIRES 1.0.0\n', None),
    ('FROM a\nSYSTEM "a\n', None),
    ("FROMM a\n", None),
    ("REQUIRES 1.0.0\n", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "expected"), READER_TABLE)
def test_the_reader_follows_ollama(text: str, expected: list[tuple[str, str]] | None) -> None:
    if expected is None:
        with pytest.raises(ModelfileError):
            modelfile_reader.read(text)
    else:
        assert modelfile_reader.read(text) == expected


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("PARAMETER draft_num_predict 7", {"draft_num_predict": 7}),
        ("PARAMETER draft_num_predict 7.0", None),
        ("PARAMETER temperature 0.5", {"temperature": 0.5}),
        ("PARAMETER  num_ctx 4", None),
        ("PARAMETER mirrors 4", None),
        ("REQUIRES v0.32", {}),
        ("REQUIRES new", None),
    ],
)
def test_the_reader_types_parameters_as_ollama_does(line: str, value: dict[str, object] | None) -> None:
    text = f"FROM a\n{line}\n"
    if value is None:
        with pytest.raises(ModelfileError):
            modelfile_reader.request(text)
    else:
        assert modelfile_reader.request(text)["parameters"] == value


TEXTS = st.text(st.characters(codec="utf-8"), max_size=40) | st.text('a" \n\t#\r', max_size=16)
BEFORE_AND_AFTER = "FROM /t\n", "REQUIRES 0.32.7\n"


def round_trip(spelt: str, name: str) -> str:
    before, after = BEFORE_AND_AFTER
    commands = modelfile_reader.read(f"{before}{spelt}\n{after}")
    assert [command for command, _ in commands] == ["from", name, "requires"]
    return commands[1][1]


@given(TEXTS)
@example('"a" b')
@example('""')
@example('say "hi"')
@example('"\n')
@example('""\n"')
@example("\n\na\n\n")
@example(" edge ")
@example("{{ if .System }}<|im_start|>{{ end }}\n# not a comment\nFROM x")
@pytest.mark.parametrize("command", ["SYSTEM", "TEMPLATE", "LICENSE"])
def test_a_text_comes_back_or_is_refused(command: str, text: str) -> None:
    try:
        spelt = text_value(text)
    except TemplateError:
        return
    assert round_trip(f"{command} {spelt}", command.lower()) == text.replace("\r\n", "\n")


@given(TEXTS)
@example('"')
@example(" ")
@example("")
@example("a\r\nb")
def test_a_stop_text_comes_back_or_is_refused(text: str) -> None:
    try:
        spelt = quoted_value(text)
    except TemplateError:
        return
    assert spelt.startswith('"')
    assert round_trip(f"PARAMETER stop {spelt}", "parameter:stop") == text


def test_plain_texts_are_not_refused() -> None:
    for text in ("You are terse.", "line\nline", 'ends in a quote "', '"""'[:2], "\ttab", "größe 模型 🦙"):
        assert round_trip(f"SYSTEM {text_value(text)}", "system") == text
    for text in ('a """ b', "zero\u200dwidth", "nbsp\u00a0", "a\rb", "\udcff", "\x1b[31m"):
        with pytest.raises(TemplateError):
            text_value(text)


@given(st.text(st.characters(codec="utf-8"), max_size=24), st.sampled_from(["/", "/a ", '"', " ", ""]))
def test_a_path_comes_back_or_is_refused(text: str, start: str) -> None:
    value = start + text
    try:
        line = line_value(value)
    except TemplateError:
        return
    assert modelfile_reader.read(f"FROM {line}\nREQUIRES 0.32.7\n") == [("from", value), ("requires", "0.32.7")]


NUMBERS = {
    int: st.integers(-(1 << 63) + 1, (1 << 63) - 1),
    float: st.floats(allow_nan=False, allow_infinity=False, width=32),
    bool: st.booleans(),
    str: st.text("ab<|> \n", max_size=8),
}


@given(st.data())
def test_parameters_come_back(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(parameters.TYPES.keys() - {"draft_num_predict"})), unique=True))
    values = {name: data.draw(NUMBERS[parameters.TYPES[name]]) for name in names}
    text = f"FROM /t\n{parameters.lines(parameters.given(values))}"
    expected = {name: [value] if name == "stop" else value for name, value in values.items()}
    assert modelfile_reader.request(text)["parameters"] == expected
    assert parameters.as_options(parameters.given(values)) == expected


def test_parameters_as_texts() -> None:
    found = parameters.parsed(["num_ctx=8192", "temperature=1e-3", "use_mmap=false", "stop=a=b", "stop=<|im_end|>"])
    assert parameters.lines(found) == (
        "PARAMETER num_ctx 8192\nPARAMETER temperature 0.001\nPARAMETER use_mmap false\n"
        'PARAMETER stop "a=b"\nPARAMETER stop "<|im_end|>"\n'
    )
    assert parameters.given({"stop": ["a", "b"], "top_p": 1}) == (("stop", "a"), ("stop", "b"), ("top_p", 1.0))


@pytest.mark.parametrize(
    "text",
    [
        *("num_ctx=7.0", "num_ctx=", "num_ctx", "num_ctx= 4", "num_ctx=0x10", "num_ctx=99999999999999999999"),
        *("temperature=hot", "temperature=nan", "temperature=1e39", "use_mmap=1", "use_mmap=True"),
        *("mirostat=2", "=4", "draft_num_predict=7", "stop=a\u200db", 'stop=a """ b', "num_ctx=٣"),
    ],
)
def test_parameters_that_ollama_refuses(text: str) -> None:
    with pytest.raises(TemplateError):
        parameters.parsed([text])


@pytest.mark.parametrize(
    "values", [{"num_ctx": 7.0}, {"num_ctx": True}, {"temperature": "0.5"}, {"use_mmap": 1}, {"stop": [1]}]
)
def test_parameters_of_another_type(values: dict[str, object]) -> None:
    with pytest.raises(TemplateError, match=next(iter(values))):
        parameters.given(values)


def test_a_parameter_is_given_once() -> None:
    with pytest.raises(TemplateError, match="`num_ctx` is given twice"):
        parameters.parsed(["num_ctx=1", "num_ctx=2"])


@pytest.mark.parametrize("name", ["qwen3:8b", "hf.co/unsloth/Qwen3.8-27B-GGUF:Q4_K_M", "a", "host:5000/ns/m:tag", "_a"])
def test_names_of_models(name: str) -> None:
    assert model_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "./a", "/a", "~/a", "a b", "a.gguf", "a:b:c", "a//b", "ä", "a/b/c/d", "-a", "a\n"]
)
def test_what_is_no_name_of_a_model(name: str) -> None:
    with pytest.raises(TemplateError, match="name of an ollama model"):
        model_name(name)


@given(st.from_regex(SEMVER, fullmatch=True) | st.text("v0123.-+ab", max_size=12))
def test_versions_are_those_that_ollama_takes(text: str) -> None:
    try:
        value, _ = required(text, "0.19.0", None)
    except TemplateError:
        return
    assert modelfile_reader.request(f"FROM a\nREQUIRES {value}\n")["requires"] == text.removeprefix("v")


def test_a_version_of_no_sensible_length_is_none() -> None:
    endless = f"{'9' * 5000}.0.0"
    assert version_key(endless) is None
    assert needed("dflash2", endless) == ""
    with pytest.raises(TemplateError, match="expected a version such as") as caught:
        required(endless, "0.32.7", None)
    assert len(str(caught.value)) < 400


def test_versions_sort_as_releases_do() -> None:
    names = ["0.32.7-rc1", "0.32.7", "0.33.0-rc2", "0.33.0-rc10", "0.33", "0.33.1", "1.0.0"]
    assert all(version_key(old) < version_key(new) for old, new in pairwise(names))


@pytest.mark.parametrize("text", ["1", "v1", "01.2.3", "0.32-rc1", "0.1.2-", "0.1.2-01", "0.1.2+", "٣.1.2", "0.1.2\n"])
def test_what_is_no_version(text: str) -> None:
    assert version_key(text) is None


@pytest.mark.parametrize(
    ("kind", "version", "enough"),
    [
        *(("dflash", "0.32.6", False), ("dflash", "0.32.7", True), ("dflash2", "0.32.7", False)),
        *(("dflash2", "0.33.0-rc2", False), ("dflash2", "0.33.0", True), ("dflash2", "0.0.0", True)),
        ("dflash", "main", True),
    ],
)
def test_which_ollama_runs_which_drafter(kind: str, version: str, enough: bool) -> None:
    assert (needed(kind, version) == "") is enough
