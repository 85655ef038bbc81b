"""Prompts of `bench` from files: what is taken, and that a bad line is named."""

import gzip
import json

import pytest

from dflash_gguf.bench.measure import conversation
from dflash_gguf.bench.prompts import NO_KIND, BenchPrompt, built_in, from_file, limited
from dflash_gguf.errors import BenchError
from dflash_gguf.runner.prompts import PROMPTS


def written(tmp_path, text, name="prompts.jsonl"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_the_built_in_ones_are_those_of_the_runner():
    assert [(p.kind, p.turns) for p in built_in()] == [(p.kind, (p.text,)) for p in PROMPTS]


def test_each_shape_of_a_row(tmp_path):
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    text = lines(
        {"prompt": "one"},
        {"prompt": ["first", "second"], "category": "writing"},
        {"turns": ["a", "b"], "kind": "chat"},
        {"messages": messages, "kind": "system", "other": 1},
    )
    found = from_file(written(tmp_path, f"\ufeff{text}\n\n"))
    assert found == (
        BenchPrompt(NO_KIND, ("one",)),
        BenchPrompt("writing", ("first", "second")),
        BenchPrompt("chat", ("a", "b")),
        BenchPrompt("system", ("hello",), (("system", "be brief"),)),
    )
    assert conversation(found[3], ()) == messages
    assert conversation(found[1], ("answer",)) == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "second"},
    ]


def test_text_is_a_prompt_a_line_and_gzip_is_unpacked(tmp_path):
    plain = written(tmp_path, "  one \r\n\n two {x}\n", "prompts.txt")
    assert [p.turns for p in from_file(plain)] == [("one",), ("two {x}",)]
    packed = written(tmp_path, gzip.compress(lines({"prompt": "p"}).encode()), "p.jsonl.gz")
    assert from_file(packed) == (BenchPrompt(NO_KIND, ("p",)),)
    unnamed = written(tmp_path, lines({"prompt": "p"}), "prompts")
    assert from_file(unnamed) == (BenchPrompt(NO_KIND, ("p",)),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON: got '{'"),
        ("[1]", "line 2: got 'list', expected a JSON object"),
        ("{}", "line 2 has none of `prompt`, `turns` and `messages`"),
        ('{"prompt": "a", "turns": ["b"]}', "line 2 has more than one of"),
        ('{"prompt": 7}', "line 2: `prompt`: got 7, expected a text"),
        ('{"prompt": " "}', "line 2: `prompt`: got ' ', expected a text"),
        ('{"turns": []}', "line 2: `turns`: got"),
        ('{"turns": ["a", null]}', "line 2: `turns`: got"),
        ('{"prompt": "a", "kind": 3}', "line 2: the kind: got 3"),
        ('{"messages": {}}', "line 2: `messages`: got"),
        ('{"messages": [{"role": "user"}]}', "expected messages with a `role` and a `content`"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "expected a user's message at the end"),
        (r'{"prompt": "\ud800"}', "line 2: `prompt` holds half of a UTF-16 pair"),
        ("[" * 100_000, "line 2 is not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = written(tmp_path, f'{{"prompt": "fine"}}\n{line}\n')
    with pytest.raises(BenchError) as caught:
        from_file(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"`{path}`, line 2")


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"\n \n", "p.txt", "holds no prompt"),
        (b"fine\n\xff\n", "p.txt", "line 2 is not UTF-8"),
        (gzip.compress(b"hello", mtime=0)[:-4], "p.jsonl.gz", "no whole gzip file"),
        (b"not gzip", "p.jsonl.gz", "no whole gzip file"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, data, name, message):
    with pytest.raises(BenchError, match=message):
        from_file(written(tmp_path, data, name))


def test_no_file_is_one_sentence(tmp_path):
    with pytest.raises(BenchError, match="cannot be read: no such file"):
        from_file(tmp_path / "none.txt")
    with pytest.raises(BenchError, match="it is no regular file"):
        from_file(tmp_path)


def test_a_limit_takes_from_each_kind_in_turn():
    prompts = [BenchPrompt(kind, (str(i),)) for i, kind in enumerate("aaabbc")]
    assert [p.turns[0] for p in limited(prompts, 4)] == ["0", "1", "3", "5"]
    assert limited(prompts, None) == limited(prompts, 99) == tuple(prompts)


def test_a_label_is_one_short_printable_line():
    label = BenchPrompt("a", ("x\ny\x1b[31m" + "z" * 100,)).label
    assert label.startswith("x y\\x1b[31mzz")
    assert len(label) == 48
