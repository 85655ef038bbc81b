"""Request after request on every kind of target: what two prompts share is kept, and the answer is a fresh run's.

Q8_0 targets, flash attention on, passes below 64 rows: there the CPU's results do not depend on the width of a pass.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tiny
import tiny_targets
from test_session import TAPS, ScriptedBeside, ids_of

from dflash_gguf import DflashError, Session, _core
from dflash_gguf.runner.generation import Generation
from dflash_gguf.runner.models import ContextSizes, Model, ModelContext

N_UBATCH = 48
WINDOW = 32

TARGETS = {
    "plain": lambda path: tiny.write_target(path, "qwen3", "Q8_0"),
    "hybrid": tiny_targets.write_lfm2,
    "delta net": tiny_targets.write_qwen35,
    "window and experts": lambda path: tiny_targets.write_gpt_oss(path, WINDOW),
    "one way": tiny_targets.write_qwen3next,
}
RECURRENT = {"hybrid", "delta net", "one way"}


@pytest.fixture(scope="module", params=TARGETS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def target(kind, tmp_path_factory):
    return TARGETS[kind](tmp_path_factory.mktemp("target") / "target.gguf")


@pytest.fixture(scope="module")
def contexts(target):
    model = Model(target)
    pair = [ModelContext(model, ContextSizes(512, N_UBATCH, n, 1, "on")) for n in (1, 8)]
    yield pair
    for context in pair:
        context.close()
    model.close()


def prompt_of(length, seed):
    return np.random.default_rng(seed).integers(6, 500, length).tolist()


def fresh(context, prompt, n):
    """What the target alone writes after ``prompt``, read from scratch and decoded token by token; its last logits."""
    loop = _core.Loop(_core.LlamaTarget(context.address, 512, [], 1), None, 0)
    answer = [t for step in Generation(loop, lambda _: False, n).rounds(prompt) for t in step.tokens]
    return answer, loop.last_logits()


class Requests:
    """One loop that takes request after request; the drafter is right for as many tokens as ``counts`` say."""

    def __init__(self, contexts):
        self.plain, context = contexts
        self.drafter = ScriptedBeside([], [0])
        tapped = _core.LlamaTarget(context.address, 512, TAPS, 8)
        self.loop = _core.Loop(tapped, _core.ScriptedDrafter(self.drafter), 7)
        self.cached = []

    def ask(self, prompt, n, counts):
        """(answer, statistics); checked against a fresh run, and against the drafter's rows."""
        expected, logits = fresh(self.plain, prompt, n)
        self.drafter.propose = ScriptedBeside(prompt + expected, counts).propose
        generation = Generation(self.loop, lambda _: False, n, cached=self.cached)
        answer = [t for step in generation.rounds(prompt) for t in step.tokens]
        assert answer == expected
        # The state after all these trims is that of single steps, bit by bit.
        assert np.array_equal(self.loop.last_logits(), logits)
        assert self.cached == [*prompt, *answer][:-1]
        assert len(self.drafter.rows) == self.loop.n_past == len(self.cached)
        stats = generation.summary()
        assert stats.cache_n + stats.prompt_n == len(prompt)
        return answer, stats


@pytest.mark.parametrize("accepted", range(8))
def test_accepts_of_every_length_and_rejections_at_every_position(contexts, accepted):
    requests = Requests(contexts)
    for seed in (1, 2):
        _, stats = requests.ask(prompt_of(30, seed), 40, [accepted])
        assert stats.draft_n_accepted >= accepted
        assert (stats.draft_n_accepted < stats.draft_n) == (accepted < 7)


@pytest.mark.parametrize("length", [1, 2, N_UBATCH - 1, N_UBATCH, N_UBATCH + 1, WINDOW, WINDOW + 1, 3 * N_UBATCH])
def test_prompt_lengths_around_the_pass_and_the_window(contexts, length):
    _, stats = Requests(contexts).ask(prompt_of(length, 3), 24, [3, 0, 7])
    assert 0 < stats.draft_n_accepted < stats.draft_n


def test_the_second_turn_of_a_chat_does_not_start_over(contexts):
    requests = Requests(contexts)
    first = prompt_of(60, 4)
    answer, _ = requests.ask(first, 20, [2, 5])
    second = [*first, *answer, *prompt_of(9, 5)]
    _, stats = requests.ask(second, 20, [2, 5])
    assert stats.cache_n == len(first) + len(answer) - 1
    assert 0 < stats.draft_n_accepted < stats.draft_n


def test_a_changed_answer_goes_back_to_the_end_of_the_prompt(contexts, kind):
    requests = Requests(contexts)
    first = prompt_of(60, 6)
    answer, _ = requests.ask(first, 20, [2, 5])
    # The template left out all but three tokens of the answer.
    second = [*first, *answer[:3], *prompt_of(9, 7)]
    _, stats = requests.ask(second, 20, [2, 5])
    assert stats.cache_n == (len(first) - 1 if kind in RECURRENT else len(first) + 3)
    assert 0 < stats.draft_n_accepted < stats.draft_n


def test_the_same_prompt_again_and_another_opening_of_the_answer(contexts, kind):
    requests = Requests(contexts)
    first = prompt_of(60, 16)
    requests.ask(first, 20, [2, 5])
    _, stats = requests.ask(first, 20, [2, 5])
    assert stats.cache_n == len(first) - 1
    # A thinking template opens the answer by tokens that it leaves out of the history.
    _, stats = requests.ask([*first[:-4], *prompt_of(9, 17)], 20, [2, 5])
    assert stats.cache_n == (len(first) - 17 if kind in RECURRENT else len(first) - 4)


@pytest.mark.parametrize("accepted", [0, 1, 4, 7])
def test_an_interrupt_in_a_round_leaves_the_next_request_right(contexts, accepted, monkeypatch):
    """Of the state before a pass a recurrent memory keeps no copy: the next request goes back to a mark."""
    requests = Requests(contexts)
    first = prompt_of(60, 18)
    expected, _ = fresh(requests.plain, first, 20)
    requests.drafter.propose = ScriptedBeside(first + expected, [accepted]).propose
    generation = Generation(requests.loop, lambda _: False, 20, cached=requests.cached)
    rounds = generation.rounds(first)
    next(rounds)
    monkeypatch.setattr(Generation, "_decide", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        next(rounds)
    monkeypatch.undo()
    _, stats = requests.ask([*first, *expected[:1], *prompt_of(3, 19)], 20, [2, 5])
    assert stats.cache_n >= len(first) - 1


def test_what_is_too_far_back_is_read_again(contexts, kind):
    requests = Requests(contexts)
    # A window's cache has room for 256 positions.
    first = prompt_of(400, 8)
    requests.ask(first, 4, [1])
    _, stats = requests.ask([*first[:100], *prompt_of(9, 9)], 20, [2, 5])
    assert stats.cache_n == (100 if kind == "plain" else 0)
    assert 0 < stats.draft_n_accepted < stats.draft_n


def test_long_short_long_again(contexts):
    requests = Requests(contexts)
    long, short = prompt_of(150, 10), prompt_of(5, 11)
    answers = [requests.ask(prompt, 20, [4, 1])[0] for prompt in (long, short, long)]
    assert answers[0] == answers[2]


@pytest.mark.parametrize("length", [470, 495, 505, 511, 512])
def test_the_end_of_the_context(contexts, length):
    requests = Requests(contexts)
    prompt = prompt_of(length, 12)
    expected, _ = fresh(contexts[0], prompt, 60)
    assert len(expected) == min(60, 512 - length + 1)
    answer, _ = requests.ask(prompt, 60, [3])
    assert answer == expected


def test_each_kind_runs_with_a_drafter_of_its_shape(target, tiny_drafter):
    with (
        Session(target, n_ctx=512, n_ubatch=N_UBATCH, n_threads=1, flash_attention="on") as plain,
        Session(
            target, tiny_drafter, n_ctx=512, n_ubatch=N_UBATCH, n_threads=1, flash_attention="on", depth="fixed"
        ) as drafted,
    ):
        for seed in (1, 2):
            prompt = prompt_of(70, seed)
            ids, stats = ids_of(drafted, prompt, 24)
            assert ids == ids_of(plain, prompt, 24)[0]
            assert (stats.drafter, stats.draft_calls > 0) == ("DFlash 2", True)


def test_messages_and_stop_strings(tiny_target, tiny_drafter):
    with Session(tiny_target, tiny_drafter, n_ctx=256, n_threads=1) as session:
        messages = [{"role": "user", "content": [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]}]
        assert session.tokenize(messages) == session.tokenize("hello")
        text = "".join(e.text for e in session.generate(messages, max_tokens=20, temperature=0) if hasattr(e, "text"))
        stop = text[5:8]
        *events, last = session.generate(messages, max_tokens=20, stop=stop, temperature=0)
        assert last.reason == "stop"
        assert "".join(e.text for e in events if hasattr(e, "text")) == text[: text.find(stop)]
        ids, _ = ids_of(session, messages, 20)
        *_, last = session.generate(messages, max_tokens=20, stop_token_ids=[ids[3]], temperature=0)
        assert (last.reason, last.stats.predicted_n) == ("stop", ids.index(ids[3]))


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "user", "content": [{"type": "image_url"}]}], "message 0 holds more than text: got \"'image_url'\""),
        ([{"role": "user", "content": 3}], "the content of message 0: got 'int', expected text"),
        ([{"content": "x"}], "message 0"),
    ],
)
def test_what_is_no_text_is_refused(tiny_target, messages, message):
    with Session(tiny_target, n_ctx=256, n_threads=1) as session, pytest.raises(DflashError) as caught:
        next(session.generate(messages))
    assert message in str(caught.value)


@pytest.mark.parametrize("stop", ["", ["a", ""], [3]])
def test_a_stop_string_is_a_text(tiny_target, stop):
    with Session(tiny_target, n_ctx=256, n_threads=1) as session, pytest.raises(DflashError, match="a stop string"):
        next(session.generate("x", raw=True, stop=stop))


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "system", "content": None}])
def test_a_message_without_content(tiny_target, message):
    with Session(tiny_target, n_ctx=256, n_threads=1) as session, pytest.raises(DflashError, match="of message 1: got"):
        session.tokenize([{"role": "user", "content": "hi"}, message])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stop": 5}, "`stop`: got 5, expected a text, or several"),
        ({"stop_token_ids": 5}, "one of `stop_token_ids`: got 5, expected token ids"),
        ({"stop_token_ids": ["a"]}, "expected token ids"),
    ],
)
def test_stops_that_are_none(tiny_target, given, message):
    with Session(tiny_target, n_ctx=256, n_threads=1) as session, pytest.raises(DflashError, match=message):
        session.generate("x", raw=True, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type_k": "q3_k"}, "`type_k` of a cache: got 'q3_k', expected one of f32"),
        ({"type_v_draft": "int8"}, "`type_v` of a cache: got 'int8'"),
        ({"type_v": "q8_0", "flash_attention": "off"}, "a quantized cache of values"),
        ({"split_mode": "tensor"}, "split mode `tensor` ends the process"),
        ({"split_mode": "rows"}, "`split_mode`: got 'rows'"),
        ({"use_mmap": "x"}, "`use_mmap`: got 'x', expected true, false or None"),
        ({"device": [None]}, "a device: got None, expected a name"),
        ({"tensor_split": ["a"]}, "`tensor_split`"),
        ({"tensor_split": [10**400]}, "`tensor_split`"),
        ({"n_ubatch": 1.5}, "`n_ubatch`: got 1.5, expected a whole number from 1 to"),
        ({"n_gpu_layers": [64]}, "`n_gpu_layers`: got '[64]'"),
        ({"split_mode": [64]}, "`split_mode`"),
        ({"rpc": "x:y"}, "an RPC server: got 'x:y'"),
        ({"device": ["CUDA9"]}, "a device: got 'CUDA9'; `dflash-gguf doctor` lists"),
        ({"device_draft": ["CUDA9"]}, "shares the target's embeddings and head"),
        ({"tensor_split": [0.0]}, "`tensor_split`"),
        ({"main_gpu": -1}, "`main_gpu` is out of range: got -1"),
        ({"n_batch": 0}, "`n_batch` is out of range: got 0"),
        ({"n_ctx_draft": 0}, "`n_ctx_draft` is out of range: got 0"),
        ({"n_threads_draft": 0}, "`n_threads_draft` is out of range: got 0"),
        ({"flash_attention": "maybe"}, "`flash_attention`: got 'maybe'"),
    ],
)
def test_settings_that_are_wrong(tiny_target, tiny_drafter, options, message):
    with pytest.raises(DflashError) as caught:
        Session(tiny_target, tiny_drafter, n_ctx=256, n_threads=1, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("token", [-1, 512, 10**30, None, 1.5, "x"])
def test_what_is_no_token_is_refused(tiny_target, token):
    with Session(tiny_target, n_ctx=256, n_threads=1) as session:
        with pytest.raises(DflashError, match="a token"):
            session.token_text(token)
        with pytest.raises(DflashError, match="one of `stop_token_ids`"):
            session.generate([8], stop_token_ids=[token])
        with pytest.raises(DflashError, match="prompt"):
            session.generate([token])


@pytest.mark.parametrize("path", [3, b"t.gguf", True, [], "a\0b"])
def test_what_is_no_path_is_refused(tiny_target, path):
    with pytest.raises(DflashError, match="`target`"):
        Session(path)
    with pytest.raises(DflashError, match="`draft`"):
        Session(tiny_target, path)


def test_a_session_needs_a_target():
    with pytest.raises(DflashError, match="`target`: got None, expected the path of a GGUF"):
        Session(None)


def test_numbers_of_numpy_are_numbers(tiny_target):
    with Session(tiny_target, n_ctx=np.int32(256), n_threads=np.int64(1)) as session:
        assert session.n_ctx == 256
        assert len(ids_of(session, [8, 9], np.int64(4))[0]) == 4


def test_a_fork_is_told_to_open_its_own(tiny_target, tiny_drafter):
    """The threads of libllama stay behind: a pass would wait for them for ever."""
    code = (
        "import os, sys; import dflash_gguf as dg;"
        "s = dg.Session(*sys.argv[1:], n_ctx=256, n_threads=2); list(s.generate([8, 9], max_tokens=3));"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        list(s.generate([8, 9], max_tokens=3))\n"
        "    except dg.DflashError as error:\n"
        "        print(error, flush=True)\n"
        "else:\n"
        "    print(os.waitpid(pid, 0)[1], flush=True)\n"
    )
    words = [sys.executable, "-c", code, str(tiny_target), str(tiny_drafter)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    said = [line for line in done.stdout.splitlines() if line]
    assert said[-2:] == ["the session was opened in another process; open one in this process", "0"]


def test_the_drafters_context_is_a_cap(tiny_target, tiny_drafter):
    with Session(tiny_target, tiny_drafter, n_ctx=512, n_ctx_draft=64, n_threads=1, depth="fixed") as session:
        _, stats = ids_of(session, prompt_of(50, 1), 40)
        assert 0 < stats.draft_calls < stats.verify_calls
        assert stats.injected_n == 64
        _, stats = ids_of(session, prompt_of(200, 2), 8)
        assert (stats.draft_calls, stats.injected_n) == (0, 64)


@pytest.mark.parametrize("n_ctx_draft", [1, 4, 15, 16, 17])
def test_a_small_context_of_the_drafter_under_depth_control(tiny_target, tiny_drafter, n_ctx_draft):
    with (
        Session(tiny_target, tiny_drafter, n_ctx=64, n_ctx_draft=n_ctx_draft, n_threads=1) as session,
        Session(tiny_target, n_ctx=64, n_threads=1) as plain,
    ):
        assert ids_of(session, prompt_of(9, 1), 20)[0] == ids_of(plain, prompt_of(9, 1), 20)[0]


@pytest.mark.parametrize("n_max", [None, 100, 7])
def test_drafts_that_could_never_be_long_enough_are_refused(tiny_target, tiny_drafter, n_max):
    with pytest.raises(DflashError, match=r"`spec_draft_n_min`: got 50, expected at most the 7 that are drafted"):
        Session(tiny_target, tiny_drafter, n_ctx=64, n_threads=1, spec_draft_n_max=n_max, spec_draft_n_min=50)


def test_a_forgetful_session_reads_the_prompt_again(tiny_target):
    with Session(tiny_target, n_ctx=256, n_threads=1) as session:
        answers = [ids_of(session, prompt_of(9, 1), 4) for _ in range(2)]
        session.forget()
        answers.append(ids_of(session, prompt_of(9, 1), 4))
    assert [stats.cache_n for _, stats in answers] == [0, 8, 0]
    assert len({tuple(ids) for ids, _ in answers}) == 1


def test_ids_may_be_an_array(tiny_target):
    with Session(tiny_target, n_ctx=256, n_threads=1) as session:
        assert ids_of(session, np.array([8, 9, 10]), 4)[0] == ids_of(session, [8, 9, 10], 4)[0]
        assert ids_of(session, range(8, 11), 4)[0] == ids_of(session, [8, 9, 10], 4)[0]


@pytest.mark.parametrize(
    "options",
    [
        {"type_k": "q8_0", "type_v": "q8_0", "flash_attention": "on"},
        {"type_k_draft": "q8_0", "type_v_draft": "q8_0", "flash_attention": "on"},
        {"use_mmap": False},
        {"device": ["none"]},
        {"device": "CPU"},
        {"n_batch": 16, "n_threads_draft": 2},
        {"n_ctx_draft": 300},
    ],
)
def test_settings_that_are_right(tiny_target, tiny_drafter, options):
    with Session(tiny_target, tiny_drafter, n_ctx=512, n_threads=1, depth="fixed", **options) as session:
        ids, stats = ids_of(session, prompt_of(40, 1), 8)
        assert len(ids) == 8
        assert stats.draft_calls > 0


@pytest.mark.parametrize(("length", "kept"), [(250, 100), (280, 100), (320, 100), (330, 0), (380, 0)])
def test_what_is_left_of_a_window_is_used_or_read_again(length, kept, tmp_path):
    """The window's cache is a ring of 256 positions: of what lies before place 100, all, some or nothing is left.

    Once it has gone round, sums run in another order than in a fresh run; a target in F32 keeps that small.
    """
    model = Model(tiny_targets.write_gpt_oss(tmp_path / "target.gguf", WINDOW, type="F32"))
    context = ModelContext(model, ContextSizes(512, N_UBATCH, 1, 1, "off", type_k="f32", type_v="f32"))
    first = prompt_of(length, 14)
    second = [*first[:100], *prompt_of(9, 15)]
    cached, logits = [], []
    loop = _core.Loop(_core.LlamaTarget(context.address, 512, [], 1), None, 0)
    for prompt in (first, second):
        generation = Generation(loop, lambda _: False, 1, cached=cached)
        list(generation.rounds(prompt))
        logits.append(loop.last_logits())
    assert generation.summary().cache_n == kept
    list(Generation(loop, lambda _: False, 1).rounds(second))
    assert np.abs(loop.last_logits() - logits[1]).max() < 1e-4
    del loop
    context.close()
    model.close()
