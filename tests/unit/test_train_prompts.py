"""Files of prompts to train on: what is read, and what is refused by line."""

import gzip
import json

import pytest

from dflash_gguf.errors import BenchError, SessionError, TrainError
from dflash_gguf.train.prompts import Prompt, distinct, read_prompts
from dflash_gguf.train.settings import CorpusSettings


def written(tmp_path, *lines, name="prompts.jsonl"):
    path = tmp_path / name
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Count."},
]


@pytest.mark.parametrize("name", ["prompts.jsonl", "prompts.jsonl.gz"])
def test_prompts_and_messages(tmp_path, name):
    path = written(tmp_path, {"prompt": "Hello"}, "", {"messages": TALK, "source": "mine"}, name=name)
    first, second = read_prompts(path)
    assert first.messages == (("user", "Hello"),)
    assert [role for role, _ in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[-1] == ("user", "Count.")
    assert second.where == f"`{path}`, line 3"


def test_a_prompt_that_comes_again_is_left_out(tmp_path):
    same = {"messages": [{"role": "user", "content": "a"}]}
    found = read_prompts(written(tmp_path, {"prompt": "a"}, {"prompt": "b"}, same, {"prompt": "b"}))
    assert [prompt.messages[0][1] for prompt in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ("plain text", "line 2 is not JSON"),
        ([1], "line 2: got 'list', expected a JSON object"),
        ({"text": "a"}, "line 2 has none of `prompt`, `turns` and `messages`"),
        ({"prompt": "a", "messages": TALK}, "line 2 has more than one of"),
        ({"prompt": ""}, "line 2: `prompt`"),
        ({"prompt": 7}, "line 2: `prompt`: got 7"),
        ({"prompt": "a\ud800"}, "line 2: `prompt` holds half of a UTF-16 pair"),
        ({"turns": ["a", "b"]}, "line 2: prompts in one line: got 2, expected one; write a conversation as `messages`"),
        ({"messages": []}, "line 2: `messages`"),
        ({"messages": TALK[:3]}, "line 2: `messages`: got 'assistant', expected a user's message at the end"),
        ({"messages": [{"role": "user"}]}, "line 2: `messages`"),
    ],
    ids=range(12),
)
def test_faults_are_told_by_line(tmp_path, line, message):
    path = written(tmp_path, {"prompt": "fine"}, line)
    with pytest.raises((BenchError, TrainError), match=r"prompts\.jsonl") as caught:
        read_prompts(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("lines", [[], [{"prompt": "a"}], [{"prompt": "a"}, {"prompt": "a"}]])
def test_too_few(tmp_path, lines):
    path = written(tmp_path, *lines)
    with pytest.raises(TrainError) as caught:
        read_prompts(path)
    assert str(caught.value) == f"`{path}`: different prompts: got {min(1, len(lines))}, expected at least 2"


def test_a_missing_file(tmp_path):
    with pytest.raises(BenchError, match="cannot be read"):
        read_prompts(tmp_path / "none.jsonl")


def test_texts_alone():
    assert [p.messages for p in distinct(map(Prompt.of, "aba"), "texts")] == [(("user", "a"),), (("user", "b"),)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("n_ctx", 8),
        ("n_ctx", 1 << 40),
        ("parallel", 0),
        ("parallel", 257),
        ("sampled", 1.5),
        ("sampled", float("nan")),
        ("temperature", -1.0),
        ("seed", -1),
        ("seed", 1 << 64),
        ("seed", None),
    ],
)
def test_settings_out_of_bounds(name, value):
    with pytest.raises(SessionError, match=f"`{name}`") as caught:
        CorpusSettings(**{name: value})
    assert "None" not in str(caught.value).partition("expected")[2]
