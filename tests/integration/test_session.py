"""Sessions in real libllama. On a Q8_0 target with flash attention on and passes below 64 rows the CPU's logits do not
depend on the width of a pass, so that ids with the drafter must equal ids without."""

import gc
import threading
import tracemalloc

import numpy as np
import pytest
import tiny
from scripted import agreeing_with

from dflash_gguf import DflashError, Session, _core
from dflash_gguf.demo.pair import checkpoint_folder, target_file
from dflash_gguf.runner.generation import Finished, Generation, Round, Text
from dflash_gguf.runner.models import ContextSizes, Model, ModelContext
from dflash_gguf.runner.prompts import PROMPTS

N_UBATCH = 48
TAPS = [1, 2, 3]


def ids_of(session, prompt, n):
    """(ids, stats) of one request."""
    ids = []
    for event in session.generate(prompt, max_tokens=n, temperature=0):
        match event:
            case Round(tokens):
                ids += tokens
            case Finished(_, stats):
                return ids, stats
    raise AssertionError("no last event")


def random_prompts(n, longest=150):
    rng = np.random.default_rng(3)
    return [rng.integers(6, 500, rng.integers(1, longest)).tolist() for _ in range(n)]


class ScriptedBeside:
    """A Python drafter beside a real target: right for counts[0] tokens, then wrong; it keeps the rows it is given."""

    n_max = 7
    n_ctx = 1 << 20
    n_batch = 16
    n_features = len(TAPS) * tiny.TARGET.hidden

    def __init__(self, expected, counts):
        self.propose = agreeing_with(expected, counts)
        self.rows = np.zeros((0, self.n_features), np.float32)

    def inject(self, features, pos):
        assert pos == len(self.rows)
        self.rows = np.concatenate([self.rows, features])

    def draft(self, last, pos, n):
        assert pos == len(self.rows)
        return self.propose(pos, n)

    def rewind(self, pos):
        self.rows = self.rows[:pos]
        return len(self.rows)


@pytest.fixture(scope="module")
def target_context(tiny_target):
    model = Model(tiny_target)
    context = ModelContext(model, ContextSizes(512, N_UBATCH, 8, 1, "on"))
    yield context
    context.close()
    model.close()


def generate(loop, prompt, n):
    generation = Generation(loop, lambda _: False, n)
    return [t for step in generation.rounds(prompt) for t in step.tokens]


@pytest.mark.parametrize("arch", ["qwen3", "llama"])
def test_greedy_ids_equal_the_target_alone_and_the_right_rows_are_injected(arch, tmp_path):
    path = tiny.write_target(tmp_path / "target.gguf", arch, "Q8_0")
    model = Model(path)
    contexts = [ModelContext(model, ContextSizes(512, N_UBATCH, 8, 1, "on")) for _ in range(2)]
    plain = _core.Loop(_core.LlamaTarget(contexts[0].address, 1 << 20, [], 8), None, 0)
    tapped = _core.LlamaTarget(contexts[1].address, 1 << 20, TAPS, 8)
    for prompt in random_prompts(6):
        expected = generate(plain, prompt, 60)
        drafter = ScriptedBeside(prompt + expected, [3, 0, 7, 1, 5, 2, 6, 4])
        loop = _core.Loop(tapped, _core.ScriptedDrafter(drafter), 7)
        assert generate(loop, prompt, 60) == expected
        stats = loop.stats
        assert 0 < stats.draft_n_accepted < stats.draft_n
        assert all(n > 0 for n in stats.accepted_at)
        check_injected_rows(tapped, drafter, (prompt + expected)[:-1])
        assert stats.n_injected == len(prompt) + 59
    del loop, plain, tapped
    for context in contexts:
        context.close()
    model.close()


def check_injected_rows(tapped, drafter, history):
    """The drafter was given the layer inputs of exactly prompt + accepted tokens: those of a decode from scratch."""
    fresh = _core.Loop(tapped, _core.ScriptedDrafter(ScriptedBeside([], [0])), 7)
    fresh.begin()
    rows = []
    for start in range(0, len(history), N_UBATCH):
        piece = history[start : start + N_UBATCH]
        tapped.decode(piece, start, 0)
        rows.append(tapped.features(0, len(piece)))
    np.testing.assert_array_equal(drafter.rows, np.concatenate(rows))


@pytest.mark.parametrize(("kind", "title", "n_max"), [("dflash", "DFlash", 7), ("dspark", "DSpark", 8)])
def test_the_other_kinds_draft_and_leave_the_text_alone(kind, title, n_max, tiny_target, tmp_path):
    draft = tiny.write_drafter(tmp_path / "draft.gguf", kind=kind)
    settings = {"n_ctx": 256, "n_ubatch": N_UBATCH, "n_threads": 1, "flash_attention": "on"}
    with Session(tiny_target, **settings) as plain, Session(tiny_target, draft, **settings, depth="fixed") as drafted:
        assert drafted.n_max == n_max
        prompt = random_prompts(1)[0]
        ids, stats = ids_of(drafted, prompt, 24)
        assert ids == ids_of(plain, prompt, 24)[0]
        assert stats.drafter == title
        assert stats.draft_n > 0


def test_a_session_runs_to_the_end_of_its_context(tiny_target, tiny_drafter):
    with Session(tiny_target, tiny_drafter, n_ctx=256, n_ubatch=N_UBATCH, n_threads=1, depth="fixed") as session:
        *_, last = session.generate([7] * 200, max_tokens=-1, temperature=0)
        assert (last.reason, last.stats.predicted_n) == ("length", 57)
        with pytest.raises(DflashError, match=r"257 tokens.*at most 256"):
            next(session.generate([7] * 257))


@pytest.fixture(scope="module")
def demo_drafter(tmp_path_factory):
    from dflash_gguf.convert.api import convert

    return convert(checkpoint_folder(), target_file(), "Q4_K_M", tmp_path_factory.mktemp("demo") / "d.gguf").path


@pytest.fixture(scope="module")
def demo_sessions(demo_drafter):
    settings = {"n_ctx": 512, "n_ubatch": N_UBATCH, "n_threads": 1, "flash_attention": "on"}
    with (
        Session(target_file(), **settings) as plain,
        Session(target_file(), demo_drafter, **settings, depth="fixed") as drafted,
    ):
        yield plain, drafted


def test_the_demo_pair_as_it_is_writes_the_same_text_and_accepts(demo_sessions):
    plain, drafted = demo_sessions
    passes = accepted = 0
    for prompt in PROMPTS:
        ids = plain.tokenize(prompt.text)
        written, stats = ids_of(drafted, ids, 48)
        assert written == ids_of(plain, ids, 48)[0], prompt.text
        assert 0 < stats.draft_n_accepted < stats.draft_n
        if prompt.kind == "structured":
            passes += stats.verify_calls
            accepted += stats.draft_n_accepted
    assert 1 + accepted / passes > 3


def test_long_prompts_and_later_requests_equal_fresh_ones(demo_sessions):
    plain, drafted = demo_sessions
    long = "Repeat this list: " + ", ".join(str(n) for n in range(40))
    assert len(plain.tokenize(long)) > 2 * N_UBATCH
    for text in (long, "Count from 15 to 60.", long):
        ids = plain.tokenize(text)
        written, stats = ids_of(drafted, ids, 40)
        assert written == ids_of(plain, ids, 40)[0]
        assert 0 < stats.draft_n_accepted < stats.draft_n
        assert stats.cache_n + stats.prompt_n == len(ids)
        assert stats.injected_n == stats.prompt_n + 39


def test_the_text_is_what_the_ids_mean(demo_sessions):
    _, drafted = demo_sessions
    events = list(drafted.generate("Count from 15 to 60.", max_tokens=40, temperature=0))
    ids = [token for event in events if isinstance(event, Round) for token in event.tokens]
    text = "".join(event.text for event in events if isinstance(event, Text))
    assert text == b"".join(map(drafted._vocabulary.piece, ids)).decode()


def test_an_abandoned_generator_may_be_collected_during_another_request(demo_sessions, monkeypatch):
    _, drafted = demo_sessions

    class Cycle:
        pass

    abandoned = Cycle()
    abandoned.events = drafted.generate("Hello", max_tokens=32, temperature=0)
    abandoned.itself = abandoned
    next(abandoned.events)
    del abandoned
    is_end = drafted._vocabulary.is_end
    monkeypatch.setattr(drafted._vocabulary, "is_end", lambda token: gc.collect() < 0 or is_end(token))
    assert ids_of(drafted, [1, 2, 3], 4)[0]


def test_a_consumer_that_stops_early_leaves_the_next_request_right(demo_sessions):
    plain, drafted = demo_sessions
    ids = plain.tokenize(PROMPTS[0].text)
    expected = ids_of(plain, ids, 32)[0]
    for stop_at in range(1, 9):
        events = drafted.generate(ids, max_tokens=32, temperature=0)
        for _ in range(stop_at):
            next(events)
        events.close()
        assert drafted.stats.predicted_n > 0
        assert ids_of(drafted, ids, 32)[0] == expected


def test_an_interrupt_in_a_round_leaves_the_next_request_right(demo_sessions, monkeypatch):
    plain, drafted = demo_sessions
    ids = plain.tokenize(PROMPTS[0].text)
    expected = ids_of(plain, ids, 32)[0]
    decide = Generation._decide

    def interrupted(self, tokens):
        if len(tokens) > 2:
            raise KeyboardInterrupt
        return decide(self, tokens)

    monkeypatch.setattr(Generation, "_decide", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(drafted.generate(ids, max_tokens=32, temperature=0))
    assert drafted.stats.predicted_n > 0
    with pytest.raises(DflashError, match="no newest token"):
        drafted.newest_logits()
    monkeypatch.undo()
    assert ids_of(drafted, ids, 32)[0] == expected


def test_a_new_request_ends_the_one_before(demo_sessions):
    _, drafted = demo_sessions
    first = drafted.generate("Hello", max_tokens=32, temperature=0)
    next(first)
    assert ids_of(drafted, [1, 2, 3], 4)[0]
    with pytest.raises(DflashError, match="the request is over"):
        next(first)


def test_a_closed_session_says_so(tiny_target):
    session = Session(tiny_target, n_ctx=256, n_threads=1)
    running = session.generate([8, 9], max_tokens=9, temperature=0)
    next(running)
    session.close()
    session.close()
    with pytest.raises(DflashError, match="the request is over"):
        next(running)
    with pytest.raises(DflashError, match="session is closed"):
        next(session.generate([8, 9]))


def test_what_cannot_run_is_refused_before_anything_is_loaded(tiny_target, tiny_drafter, tmp_path, monkeypatch):
    monkeypatch.setattr(Model, "__init__", lambda *_: pytest.fail("a model was loaded"))
    other = tiny.write_target(tmp_path / "small.gguf", hidden=256, type="F16")
    with pytest.raises(DflashError, match=r"is a drafter.*-md"):
        Session(tiny_drafter)
    with pytest.raises(DflashError, match="does not fit"):
        Session(other, tiny_drafter)
    for name in ("n_ubatch", "spec_draft_n_max"):
        with pytest.raises(DflashError, match=rf"`{name}` is out of range: got 0"):
            Session(tiny_target, tiny_drafter, **{name: 0})


def test_a_pass_does_not_hold_the_gil(tiny_target):
    """One call of many rows; Python code that starts after it began is over before it ends."""
    model = Model(tiny_target)
    context = ModelContext(model, ContextSizes(2048, 2048, 1, 1))
    loop = _core.Loop(_core.LlamaTarget(context.address, 1 << 20, [], 1), None, 0)
    loop.begin()
    began, seen = threading.Event(), []
    turns = [0]

    def work():
        began.set()
        loop.prefill([9] * 2048, final=False)
        seen.append(turns[0])

    worker = threading.Thread(target=work)
    worker.start()
    began.wait()
    for _ in range(200_000):
        turns[0] += 1
    worker.join()
    assert seen == [200_000]
    context.close()
    model.close()


def test_a_session_that_nobody_closes_frees_its_models(tiny_target, tiny_drafter, monkeypatch):
    closed = []
    close = Model.close
    monkeypatch.setattr(Model, "close", lambda self: (closed.append(self.path), close(self)))
    session = Session(tiny_target, tiny_drafter, n_ctx=256, n_threads=1)
    del session
    gc.collect()
    assert closed == [tiny_drafter, tiny_target]


def test_many_requests_leave_no_python_objects_behind(tiny_target, tiny_drafter):
    with Session(tiny_target, tiny_drafter, n_ctx=256, n_ubatch=N_UBATCH, n_threads=1, depth="fixed") as session:
        ids_of(session, [5, 6], 8)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            ids_of(session, [5, 6], 8)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert after - before < 20_000
