"""`dflash_gguf.Llama` beside `llama_cpp.Llama` on the same target: the same text, the same keys, the same types.

A Q8_0 target, flash attention on, passes below 64 rows: there the CPU's results do not depend on the width of a pass.
Its head cannot choose control bytes or half characters, of which the two packages write different things.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import llama_cpp
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_cpp.llama_grammar import LlamaGrammar
from tiny_vocab import BOS_ID, EOS_ID, SPECIALS

import dflash_gguf
from dflash_gguf import DflashError
from dflash_gguf.llama_arguments import RequestError

DIMS = {"hidden": 128, "ffn": 256, "heads": 4, "kv_heads": 2, "head_dim": 32}
OPTIONS = {
    "n_ctx": 256,
    "n_batch": 48,
    "n_ubatch": 48,
    "n_threads": 1,
    "n_threads_batch": 1,
    "flash_attn": True,
    "verbose": False,
}
N_SPECIAL = len(SPECIALS)
PROMPTS = ["hello there", [20, 300, 71, 72, 73], "<|im_start|>user\nwhat is this"]
CHAT = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]


def ascii_head():
    """The head's rows, those of unprintable bytes zero as those of the special tokens are."""
    head = tiny.target_arrays(dims=replace(tiny.TARGET, **DIMS))["output.weight"]
    head[N_SPECIAL : N_SPECIAL + 32] = 0.0
    head[N_SPECIAL + 127 : N_SPECIAL + 256] = 0.0
    return head


def ending_head():
    """One that ends the text where it would have written an ``n``."""
    head = ascii_head()
    head[EOS_ID] = 1.1 * head[N_SPECIAL + ord("n")]
    return head


def broken_head():
    """One that writes half a character where it would have written an ``n``."""
    head = ascii_head()
    head[N_SPECIAL + 0xE2] = 1.1 * head[N_SPECIAL + ord("n")]
    return head


@pytest.fixture(scope="module")
def drafter(tmp_path_factory):
    return tiny.write_drafter(tmp_path_factory.mktemp("drafter") / "drafter.gguf", top_k=8, **DIMS)


@pytest.fixture(scope="module", params=[ascii_head, ending_head], ids=["endless", "ending"])
def pair(request, tmp_path_factory, drafter):
    """(ours, llama_cpp's)"""
    path = tmp_path_factory.mktemp("target") / "target.gguf"
    tiny.write_target(path, type="Q8_0", tensors={"output.weight": request.param()}, **DIMS)
    theirs = llama_cpp.Llama(str(path), **OPTIONS)
    with dflash_gguf.Llama(str(path), draft_model_path=drafter, depth="fixed", **OPTIONS) as ours:
        yield ours, theirs
    theirs.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory, drafter):
    path = tmp_path_factory.mktemp("target") / "target.gguf"
    tiny.write_target(path, type="Q8_0", tensors={"output.weight": ascii_head()}, **DIMS)
    with dflash_gguf.Llama(path, draft_model_path=drafter, depth="fixed", **OPTIONS) as llama:
        yield llama


def shape(value):
    """Keys in their order and types, down to the leaves."""
    if isinstance(value, dict):
        return [(key, shape(inner)) for key, inner in value.items()]
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value)


def without_timings(response):
    timings = response.pop("timings")
    assert timings["drafter"] == "DFlash 2"
    assert timings["cache_n"] + timings["prompt_n"] > 0
    assert json.loads(json.dumps(timings)).keys() == timings.keys()
    return response


def same_but_for_the_id(ours, theirs):
    assert shape(ours) == shape(theirs)
    for one in (ours, theirs):
        assert re.fullmatch(r"(chat)?cmpl-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", one.pop("id"))
    assert abs(ours.pop("created") - theirs.pop("created")) < 60
    assert ours == theirs


CALLS = [
    {"max_tokens": 24},
    {"max_tokens": 1},
    {"max_tokens": 12, "stop": "e"},
    {"max_tokens": 12, "stop": ["~~~", "a"]},
    {"max_tokens": 12, "stop": None, "model": "a name", "seed": 3, "top_p": 0.1, "min_p": 0.9, "typical_p": 0.3},
]


GRAMMAR = LlamaGrammar.from_string("root ::= [a-f]+ [0-9] [x-z]+", verbose=False)
CONSTRAINED = [
    {"max_tokens": 12, "temperature": 0, "grammar": GRAMMAR},
    {"max_tokens": 12, "temperature": 0.7, "top_k": 1, "grammar": GRAMMAR},
    {"max_tokens": 12, "temperature": 0, "logit_bias": {N_SPECIAL + ord("e"): -100, N_SPECIAL + ord("o"): 3.5}},
    {"max_tokens": 12, "top_k": 1},
    {"max_tokens": 12, "temperature": 5.0, "top_p": 0.0, "min_p": 0.0},
]
"""Whose answers leave nothing to chance."""

LONG = [*range(20, 250), 20, 21]


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("prompt", PROMPTS, ids=["text", "ids", "special"])
def test_a_whole_completion(pair, prompt, call):
    ours, theirs = (llama(prompt, temperature=0, **call) for llama in pair)
    same_but_for_the_id(without_timings(ours), theirs)


@pytest.mark.parametrize("call", CONSTRAINED, ids=["grammar", "grammar, warm", "biases", "top_k", "top_p"])
def test_answers_that_are_constrained_to_one(pair, call):
    ours, theirs = (llama("hello there", **call) for llama in pair)
    same_but_for_the_id(without_timings(ours), theirs)


@pytest.mark.parametrize("form", [{"type": "json_object"}, {"type": "json_object", "schema": {"type": "integer"}}])
def test_chats_constrained_to_json(pair, form):
    ours, theirs = (
        llama.create_chat_completion(CHAT, temperature=0, max_tokens=12, response_format=form) for llama in pair
    )
    same_but_for_the_id(without_timings(ours), theirs)


def test_a_seed_fixes_the_text_with_a_drafter_and_without(pair, ours):
    (with_drafter, _) = pair
    with dflash_gguf.Llama(with_drafter.model_path, seed=7, **OPTIONS) as plain:
        for given in ({}, {"temperature": -1.0}, {"repeat_penalty": 1.5, "temperature": 1.2}):
            texts = [
                llama("hello", max_tokens=24, seed=seed, **given)["choices"][0]["text"]
                for llama in (with_drafter, plain)
                for seed in (3, 4)
            ]
            assert texts[:2] == texts[2:]
            assert texts[0] != texts[1]
        first, second = (plain("hello")["choices"][0]["text"] for _ in range(2))
        plain.set_seed(7)
        assert first != second
        assert [plain("hello")["choices"][0]["text"] for _ in range(2)] == [first, second]


def test_penalties_look_back_as_far_as_they_are_told(pair):
    with dflash_gguf.Llama(pair[0].model_path, last_n_tokens_size=0, **OPTIONS) as llama:
        free, blind = (llama("hello", temperature=0, **given) for given in ({}, {"repeat_penalty": 3.0}))
        assert free["choices"] == blind["choices"]
    assert pair[0]("hello", temperature=0, repeat_penalty=3.0)["choices"] != free["choices"]


def test_a_bias_beyond_the_vocabulary(ours):
    with pytest.raises(RequestError, match=r"a token of `logit_bias`: got 9999, expected 0 to \d+"):
        ours("hello", logit_bias={"9999": 1})


def test_the_default_of_a_completion_is_sixteen_tokens(pair):
    ours, theirs = (llama("hello", temperature=0) for llama in pair)
    same_but_for_the_id(without_timings(ours), theirs)


@pytest.mark.parametrize("max_tokens", [None, -1, 0, 400])
def test_the_end_of_the_context(pair, max_tokens):
    ours, theirs = (llama(LONG, temperature=0, max_tokens=max_tokens) for llama in pair)
    same_but_for_the_id(without_timings(ours), theirs)
    messages = [{"role": "user", "content": "\u20ac" * 75}]
    ours, theirs = (
        llama.create_chat_completion(messages, temperature=0, max_tokens=max_tokens, stream=True) for llama in pair
    )
    streamed_alike(ours, theirs, lambda chunk: chunk["choices"][0]["delta"].get("content", ""))


@pytest.mark.parametrize("pair", [broken_head], indirect=True)
def test_bytes_that_are_no_character(pair):
    """llama_cpp leaves them out, and goes beyond the limit while a character seems unfinished."""
    ours, theirs = (llama(PROMPTS[0], temperature=0, max_tokens=30) for llama in pair)
    text = ours["choices"][0]["text"]
    assert "\ufffd" in text
    assert theirs["choices"][0]["text"].startswith(text.replace("\ufffd", ""))
    assert ours["usage"]["completion_tokens"] == 30


@pytest.mark.parametrize("pair", [ending_head], indirect=True)
def test_a_text_that_ends_by_itself(pair):
    ours, theirs = (llama.create_chat_completion(CHAT, temperature=0) for llama in pair)
    assert ours["timings"]["draft_calls"] > 0
    same_but_for_the_id(without_timings(ours), theirs)
    assert ours["choices"][0]["finish_reason"] == "stop"
    assert ours["usage"]["total_tokens"] < OPTIONS["n_ctx"]


def test_the_echo_of_a_prompt(pair):
    ours, theirs = (llama("hello", temperature=0, echo=True) for llama in pair)
    same_but_for_the_id(without_timings(ours), theirs)
    assert ours["choices"][0]["text"].startswith("hello")
    ids = pair[0].tokenize(b"hello")
    assert pair[0](ids, temperature=0, echo=True)["choices"] == ours["choices"]


def streamed_alike(ours, theirs, text_of):
    """The first chunk, those in between, and the last are alike; how much a chunk brings is not."""
    *ours, last = ours
    *theirs, their_last = theirs
    same_but_for_the_id(without_timings(last), their_last)
    said = [chunk for chunk in theirs if text_of(chunk) or "role" in str(chunk["choices"])]  # some of theirs are empty
    assert {str(shape(chunk)) for chunk in ours} == {str(shape(chunk)) for chunk in said}
    assert len({chunk["id"] for chunk in ours}) <= 1
    assert "".join(map(text_of, ours)) == "".join(map(text_of, theirs))
    if ours:
        same_but_for_the_id({**ours[0], "choices": []}, {**theirs[0], "choices": []})


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_streamed_completion(pair, call):
    ours, theirs = (llama.create_completion("one two", temperature=0, stream=True, **call) for llama in pair)
    streamed_alike(ours, theirs, lambda chunk: chunk["choices"][0]["text"])


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_whole_chat_completion(pair, call):
    ours, theirs = (llama.create_chat_completion(CHAT, temperature=0, **call) for llama in pair)
    same_but_for_the_id(without_timings(ours), theirs)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_streamed_chat_completion(pair, call):
    ours, theirs = (list(llama.create_chat_completion(CHAT, temperature=0, stream=True, **call)) for llama in pair)
    assert ours[0]["choices"] == theirs[0]["choices"]
    streamed_alike(ours, theirs, lambda chunk: chunk["choices"][0]["delta"].get("content", ""))


def test_the_best_of_one_candidate_is_the_greedy_choice(pair):
    ours, theirs = (llama("hello", top_k=1) for llama in pair)
    same_but_for_the_id(without_timings(ours), theirs)


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_stop_strings_at_any_place(pair, data):
    ours, theirs = pair
    prompt = data.draw(st.sampled_from(PROMPTS))
    text = theirs(prompt, temperature=0, max_tokens=16)["choices"][0]["text"] or "~"
    start = data.draw(st.integers(0, len(text) - 1))
    stop = text[start : start + data.draw(st.integers(1, 6))]
    stops = [stop, data.draw(st.text("~en", min_size=1, max_size=3))]
    same_but_for_the_id(
        without_timings(ours(prompt, temperature=0, max_tokens=16, stop=stop)),
        theirs(prompt, temperature=0, max_tokens=16, stop=stop),
    )
    # Of several that one token completes, llama_cpp's whole answers end at the first of the list, its streams at the
    # first in the text, as both do here.
    both = [
        "".join(c["choices"][0]["text"] for c in llama(prompt, temperature=0, max_tokens=16, stop=stops, stream=True))
        for llama in pair
    ]
    assert both[0] == both[1]


def test_the_second_turn_of_a_chat_reads_only_what_is_new(ours):
    first = ours.create_chat_completion(CHAT, temperature=0, max_tokens=12)
    answer = first["choices"][0]["message"]
    again = [*CHAT, answer, {"role": "user", "content": "and then?"}]
    second = ours.create_chat_completion(again, temperature=0, max_tokens=12)
    assert second["timings"]["cache_n"] >= first["usage"]["prompt_tokens"]
    assert second["timings"]["cache_n"] + second["timings"]["prompt_n"] == second["usage"]["prompt_tokens"]


def test_a_consumer_that_leaves_a_stream_early(ours):
    chunks = ours.create_chat_completion(CHAT, temperature=0, stream=True)
    assert next(chunks)["choices"][0]["delta"] == {"role": "assistant"}
    next(chunks)
    chunks.close()
    assert ours.session.stats.predicted_n > 0
    again = ours.create_chat_completion(CHAT, temperature=0, max_tokens=3)
    assert again["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("text", [b"", b"hello <|im_end|> you", "\u20ac \u00e9".encode()])
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("add_bos", [False, True])
def test_tokens_of_a_text_and_back(pair, text, special, add_bos):
    ours, theirs = pair
    ids = ours.tokenize(text, add_bos, special)
    assert ids == theirs.tokenize(text, add_bos, special)
    for tokens in (ids, [BOS_ID, N_SPECIAL + ord(" "), *ids]):
        assert ours.detokenize(tokens, special=special) == theirs.detokenize(tokens, special=special)


def test_what_a_model_says_of_itself(pair):
    for name in ("n_ctx", "n_vocab", "token_bos", "token_eos"):
        ours, theirs = (getattr(llama, name)() for llama in pair)
        assert (type(ours), ours) == (type(theirs), theirs)
    assert pair[0].model_path == pair[1].model_path


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda llama: llama("x" * 600, temperature=0), "Requested tokens (600) exceed context window of 256; give"),
        (lambda llama: llama([7] * 256, temperature=0), "Requested tokens (256) exceed context window of 256"),
        (lambda llama: llama("", temperature=0), "the prompt is empty"),
        (lambda llama: llama(b"x", temperature=0), "the prompt: got 'bytes', expected text, or token ids"),
        (lambda llama: llama(["x"], temperature=0), "the prompt: got 'list', expected text, or token ids"),
        (lambda llama: llama([512], temperature=0), "a prompt id: got 512, expected 0 to 511"),
        (lambda llama: llama("x", temperature=0, stop=""), "a stop string: got ''"),
        (lambda llama: llama("x", temperature=0, stop=[""]), "a stop string: got ''"),
        (lambda llama: llama("x", temperature=0, max_tokens=1.5), "`max_tokens`: got 1.5"),
        (lambda llama: llama.create_chat_completion("x", temperature=0), "`messages`: got 'str'"),
        (lambda llama: llama.create_chat_completion([{"content": "x"}], temperature=0), "message 0"),
        (lambda llama: llama.tokenize("x"), "`text`: got \"'x'\", expected UTF-8 in bytes"),
        (lambda llama: llama.tokenize(b"\xff"), "expected UTF-8 in bytes"),
        (lambda llama: llama.detokenize([512]), "a token: got 512, expected 0 to 511"),
        (lambda llama: llama.detokenize([-1]), "a token: got -1, expected 0 to 511"),
    ],
)
def test_what_is_refused_before_it_reaches_the_model(ours, call, message):
    with pytest.raises(DflashError) as caught:
        call(ours)
    assert message in str(caught.value)


def test_a_file_without_a_template(tmp_path):
    path = tiny.write_target(tmp_path / "target.gguf", drop_keys=["tokenizer.chat_template"], **DIMS)
    with dflash_gguf.Llama(path, **OPTIONS) as llama:
        with pytest.raises(DflashError, match=r"`tokenizer.chat_template`; write the prompt yourself and call create"):
            llama.create_chat_completion(CHAT, temperature=0)
        assert llama("x", temperature=0)["timings"]["drafter"] is None


def test_numbers_of_ggml(tmp_path, drafter):
    path = tiny.write_target(tmp_path / "target.gguf", type="Q8_0", **DIMS)
    given = {"type_k": llama_cpp.GGML_TYPE_Q8_0, "type_v": llama_cpp.GGML_TYPE_Q8_0, "n_gpu_layers": -1}
    given |= {"split_mode": llama_cpp.LLAMA_SPLIT_MODE_NONE, "tensor_split": [1.0], "use_mmap": False}
    with dflash_gguf.Llama(path, draft_model_path=drafter, spec_draft_n_max=3, **given, **OPTIONS) as llama:
        assert llama.session.n_max == 3
        assert llama("x", temperature=0)["usage"]["completion_tokens"] == 16
    with pytest.raises(DflashError, match="split mode `tensor` ends the process"):
        dflash_gguf.Llama(path, draft_model_path=drafter, split_mode=llama_cpp.LLAMA_SPLIT_MODE_TENSOR)


@pytest.mark.parametrize(
    "use",
    [
        lambda llama: llama("x", temperature=0),
        lambda llama: llama.create_chat_completion(CHAT, temperature=0),
        lambda llama: llama.tokenize(b"x"),
        lambda llama: llama.detokenize([7]),
        lambda llama: llama.n_ctx(),
        lambda llama: llama.n_vocab(),
        lambda llama: llama.token_eos(),
    ],
)
def test_a_closed_model_says_so(tmp_path, use):
    llama = dflash_gguf.Llama(tiny.write_target(tmp_path / "target.gguf", **DIMS), **OPTIONS)
    llama.close()
    llama.close()
    with pytest.raises(DflashError, match="the session is closed"):
        use(llama)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "options"),
    [("hello", {"stop": [""]}), ("hello", {"stop": [3]}), ([99999], {}), ("hello", {"max_tokens": 2.0})],
)
def test_errors_about_arguments_come_from_the_call(tiny_target, prompt, options, stream):
    with dflash_gguf.Llama(str(tiny_target), n_ctx=256, n_threads=1) as llm, pytest.raises(ValueError) as caught:
        llm(prompt, temperature=0, stream=stream, **options)
    assert isinstance(caught.value, DflashError)


@pytest.mark.parametrize("options", [{"n_ctx": -1}, {"n_batch": 0}, {"use_mmap": "x"}, {"tensor_split": ["a"]}])
def test_errors_about_settings_are_value_errors(tiny_target, options):
    with pytest.raises(ValueError) as caught:
        dflash_gguf.Llama(str(tiny_target), n_threads=1, **options)
    assert isinstance(caught.value, DflashError)
    assert next(iter(options)) in str(caught.value)


@pytest.mark.parametrize("messages", [[], [{}], [{"role": "user", "content": 3}], "hello"])
def test_errors_about_messages_are_value_errors(tiny_target, messages):
    with dflash_gguf.Llama(str(tiny_target), n_ctx=256, n_threads=1) as llm, pytest.raises(ValueError):
        llm.create_chat_completion(messages, temperature=0)
