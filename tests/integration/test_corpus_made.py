"""A corpus of tiny targets: their own answers and features, and caches that outlive whatever stops a run."""

import errno
import fcntl
import json
import os

import numpy as np
import pytest
import tiny
import tiny_architectures
import tiny_targets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_gguf import _core
from dflash_gguf.errors import DflashError, OutputError, SessionError, TrainError
from dflash_gguf.runner.session import Session
from dflash_gguf.runner.settings import Settings
from dflash_gguf.train import answers, features
from dflash_gguf.train.bf16 import narrowed, widened
from dflash_gguf.train.cache import appending
from dflash_gguf.train.corpus import build_corpus
from dflash_gguf.train.prompts import Prompt
from dflash_gguf.train.settings import CorpusSettings

TEXTS = ("the tides", "hills and the sea", "a", "of the land and the sand", "rain", "on the road to the inn")
PROMPTS = tuple(Prompt.of(text, f"line {n}") for n, text in enumerate(TEXTS, 1))
TAPS = (0, 2)
SESSION = {"n_threads": 1, "flash_attention": "on"}
"""With which Q8_0 gives the same bits at any width."""


def settings_of(**changes):
    return CorpusSettings(
        **{"max_tokens": 20, "sampled": 0.5, "seed": 3, "parallel": 3, "n_ctx": 256, "session": Settings(**SESSION)}
        | changes
    )


def values_of(corpus):
    return [(list(e.ids), e.n_prompt, e.features.tobytes()) for e in corpus]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tiny_target):
    return build_corpus(tiny_target, PROMPTS, tmp_path_factory.mktemp("corpus"), TAPS, settings_of())


def written_by_a_session(target, number, options):
    with Session(target, n_ctx=256, **SESSION) as session:
        prompt = session.tokenize(TEXTS[number])
        drawn = _core.uniform(options.seed, number, 0) < options.sampled
        chosen = {"temperature": options.temperature, "seed": options.seed + number} if drawn else {"temperature": 0}
        events = session.generate(prompt, max_tokens=options.max_tokens, **chosen)
        answer = [token for event in events for token in getattr(event, "tokens", ())]
        return drawn, prompt, answer


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_an_answer_is_what_a_session_writes(corpus, tiny_target, number):
    drawn, prompt, answer = written_by_a_session(tiny_target, number, settings_of())
    example = corpus[number]
    assert list(example.ids[: example.n_prompt]) == prompt
    assert list(example.ids[example.n_prompt :])[: len(answer)] == answer
    assert len(answer) <= len(example.ids) - example.n_prompt <= min(20, len(answer) + 1)
    assert drawn == (_core.uniform(3, number, 0) < 0.5)


def test_some_are_sampled_and_some_are_not():
    drawn = [_core.uniform(3, number, 0) < 0.5 for number in range(len(TEXTS))]
    assert True in drawn
    assert False in drawn


@pytest.mark.parametrize("parallel", [1, 2, 6, 200])
def test_how_many_are_written_at_once_changes_nothing(tmp_path, tiny_target, corpus, parallel):
    session = Settings(**SESSION, n_ubatch=7)
    found = build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of(parallel=parallel, session=session))
    assert [list(example.ids) for example in found] == [list(example.ids) for example in corpus]


def test_a_recurrent_target_answers_too(tmp_path):
    target = tiny_targets.write_lfm2(tmp_path / "lfm2.gguf")
    options = settings_of(sampled=0.0, max_tokens=16)
    found = build_corpus(target, PROMPTS, tmp_path / "corpus", TAPS, options)
    for number in (0, 3, 5):
        _, prompt, answer = written_by_a_session(target, number, options)
        assert list(found[number].ids)[: len(prompt) + len(answer)] == prompt + answer


@pytest.mark.parametrize(
    "arch", ["qwen35", "gpt-oss", "gemma4", "mimo2", "nemotron_h", "deepseek4", "bailingmoe3", "minimax-01"]
)
def test_targets_with_windows_states_and_experts(tmp_path, monkeypatch, arch):
    """minimax-01's passes take one sequence: of several, libllama would end the process."""
    monkeypatch.setattr("dflash_gguf.runner.chat.render", lambda _header, _vocabulary, messages: messages[0]["content"])
    target = tiny_architectures.write(tmp_path / "target.gguf", arch)
    found = build_corpus(target, PROMPTS[:4], tmp_path, TAPS, settings_of(sampled=0.0, max_tokens=16))
    with Session(target, n_ctx=256, **SESSION) as session:
        for example in found:
            prompt, answer = np.split(example.ids, [example.n_prompt])
            events = session.generate(prompt.tolist(), max_tokens=16, temperature=0)
            written = [token for event in events for token in getattr(event, "tokens", ())]
            assert written == answer.tolist()[: len(written)]
            assert len(answer) - len(written) <= 1


def test_features_are_the_rows_that_the_core_reads(corpus, tiny_target):
    from contextlib import ExitStack

    from dflash_gguf.runner.assembly import opened, target_sizes
    from dflash_gguf.runner.drafting import Drafting
    from dflash_gguf.runner.models import Model, ModelContext

    example = corpus[3]
    ids, drafting = example.ids.tolist(), Drafting(n_max=7, layers=(1, 3))
    with ExitStack() as stack:
        model = opened(stack, Model(tiny_target))
        context = opened(stack, ModelContext(model, target_sizes(drafting, Settings(n_ctx=256, **SESSION))))
        core = _core.LlamaTarget(context.address, 256, drafting.layers, 8)
        core.decode(ids[: example.n_prompt], 0, 1)
        rows = [core.features(0, example.n_prompt)]
        for at in range(example.n_prompt, len(ids), 5):  # as verifying reads them
            piece = ids[at : at + 5]
            core.decode(piece, at, len(piece))
            rows.append(core.features(0, len(piece)))
    expected = np.concatenate(rows)
    assert corpus.n_features == expected.shape[1] == 2 * tiny.TARGET.hidden
    assert example.features.tobytes() == narrowed(expected).tobytes()
    assert np.abs(widened(example.features) / expected - 1).max() <= 2**-8


def test_the_features_are_mapped(corpus):
    assert isinstance(corpus.features, np.memmap)
    assert corpus.features.offset % 4096 == 0
    assert not corpus.features.flags.writeable


# ---------------------------------------------------------------- going on


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_target):
    """A folder with both caches, and what is in them."""
    folder = tmp_path_factory.mktemp("made")
    found = build_corpus(tiny_target, PROMPTS, folder, TAPS, settings_of())
    return folder, values_of(found)


def files_of(folder):
    return (folder / answers.NAME).read_bytes(), (folder / features.NAME).read_bytes()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_kill_at_any_byte_costs_what_was_not_whole(tmp_path_factory, made, tiny_target, data):
    text, rows = files_of(made[0])
    folder = tmp_path_factory.mktemp("killed")
    at = data.draw(st.integers(0, len(text)))
    (folder / answers.NAME).write_bytes(text[:at])
    if at == len(text):
        cut = data.draw(st.integers(0, len(rows)))
        (folder / f"{features.NAME}.partial").write_bytes(rows[:cut])
    told = []
    found = build_corpus(tiny_target, PROMPTS, folder, TAPS, settings_of(), lambda *news: told.append(news))
    assert values_of(found) == made[1]
    assert not (folder / f"{features.NAME}.partial").exists()
    whole = max(0, text[:at].count(b"\n") - 1)
    assert [news for news in told if news[0] == "answers"] == [
        ("answers", n, len(PROMPTS)) for n in range(whole, len(PROMPTS) + 1) if whole < len(PROMPTS)
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_prompts_that_are_added_cost_their_own_answers_alone(tmp_path_factory, made, tiny_target, data):
    """Wherever the run before them, or theirs, was killed."""
    n = data.draw(st.integers(1, len(PROMPTS) - 1))
    folder = tmp_path_factory.mktemp("grown")
    build_corpus(tiny_target, PROMPTS[:n], folder, TAPS, settings_of())
    rows = (folder / features.NAME).read_bytes()
    cut = data.draw(st.none() | st.integers(0, len(rows)) | st.integers(0, 4096))
    if cut is not None:
        (folder / features.NAME).unlink()
        (folder / features.PARTIAL).write_bytes(rows[:cut])
    told = []
    found = build_corpus(tiny_target, PROMPTS, folder, TAPS, settings_of(), lambda *news: told.append(news))
    assert values_of(found) == made[1]
    assert sum(stage == "answers" for stage, _, _ in told) == 1 + len(PROMPTS) - n
    ends = 4096 + found.starts[1 : n + 1] * found.n_features * 2
    kept = sum(end <= (len(rows) if cut is None else cut) for end in ends)
    assert sum(stage == "features" for stage, _, _ in told) == 1 + len(PROMPTS) - kept
    assert files_of(folder)[1] == files_of(made[0])[1]


def grown(folder, target, n):
    """A folder of the first ``n`` prompts, and what is in it."""
    build_corpus(target, PROMPTS[:n], folder, TAPS, settings_of())
    return files_of(folder)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_cache_of_more_prompts_serves_the_first_of_them(tmp_path_factory, made, tiny_target, data):
    """Of a whole one nothing is made or changed; of a run that was killed as it grew, what it had is kept."""
    n = data.draw(st.integers(1, len(PROMPTS)))
    text, rows = files_of(made[0])
    folder = tmp_path_factory.mktemp("longer")
    (folder / answers.NAME).write_bytes(text)
    cut = data.draw(st.none() | st.integers(4097, len(rows)))
    name = features.NAME if cut is None else features.PARTIAL
    (folder / name).write_bytes(rows[:cut])
    found = build_corpus(tiny_target, PROMPTS[:n], folder, TAPS, settings_of())
    assert values_of(found) == made[1][:n]
    assert (folder / answers.NAME).read_bytes() == text
    if cut is None:
        assert files_of(folder) == (text, rows)
    assert values_of(build_corpus(tiny_target, PROMPTS, folder, TAPS, settings_of())) == made[1]
    assert files_of(folder) == (text, rows)


def test_prompts_that_are_added_with_something_else_touch_nothing(tmp_path, tiny_target):
    other = tiny.write_target(tmp_path / "other.gguf", type="Q8_0", seed=8)
    before = grown(tmp_path, tiny_target, 4)
    for taps, source, name in (((1, 2), None, "taps"), (TAPS, other, "target")):
        with pytest.raises(TrainError, match=f"features.bf16` was made with another `{name}`"):
            build_corpus(tiny_target, PROMPTS, tmp_path, taps, settings_of(), features_from=source)
    assert files_of(tmp_path) == before


def test_a_file_that_cannot_grow_stays_whole(tmp_path, tiny_target, monkeypatch):
    """For want of room, behind a link, beside a part of another, or in another run's hands."""
    before = grown(tmp_path, tiny_target, 4)
    whole, partial = tmp_path / features.NAME, tmp_path / features.PARTIAL

    def refused(error, match):
        with pytest.raises(error, match=match):
            build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())
        assert whole.read_bytes() == before[1]
        return True

    with monkeypatch.context() as patched:
        patched.setattr("dflash_gguf.train.features.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
        assert refused(TrainError, r"features need .*give fewer prompts$")
    assert not partial.exists()
    partial.write_bytes(b"")
    assert refused(TrainError, r"features.bf16.partial` lies beside a whole `features.bf16`; remove one")
    partial.unlink()
    with whole.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert refused(OutputError, "is being written by another run")
    whole.rename(tmp_path / "elsewhere")
    whole.symlink_to(tmp_path / "elsewhere")
    assert refused(OutputError, "symbolic links")
    assert whole.is_symlink()
    assert len(build_corpus(tiny_target, PROMPTS[:4], tmp_path, TAPS, settings_of())) == 4


def test_what_is_there_is_not_made_again(made, tiny_target, monkeypatch):
    before = files_of(made[0])
    monkeypatch.setattr("dflash_gguf.train.corpus.respond", None)
    monkeypatch.setattr("dflash_gguf.train.features._make", None)
    assert values_of(build_corpus(tiny_target, PROMPTS, made[0], TAPS, settings_of())) == made[1]
    assert files_of(made[0]) == before


def test_a_full_disk_costs_nothing_that_was_written(tmp_path, tiny_target, made, monkeypatch):
    write, room = os.write, [2000]

    def some(fd, data):
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(fd, data[: room[0]])
        room[0] -= done
        return done

    for space in (2000, 500, 5000, 60_000):
        room[0] = space
        with monkeypatch.context() as patched:
            patched.setattr("dflash_gguf.atomic.os.write", some)
            with pytest.raises(OutputError, match="no space left"):
                build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())
    assert (tmp_path / f"{features.NAME}.partial").stat().st_size > 4096
    assert values_of(build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())) == made[1]


def test_too_little_room_is_told_before(tmp_path, tiny_target, monkeypatch):
    """And fewer taps, as is advised, are then taken: nothing of the others is there."""
    usage = type("Usage", (), {"free": 1000})
    with monkeypatch.context() as patched:
        patched.setattr("dflash_gguf.train.features.shutil.disk_usage", lambda _: usage)
        with pytest.raises(TrainError, match=r"features need 0\.\d GB in .*free some"):
            build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())
    assert build_corpus(tiny_target, PROMPTS, tmp_path, TAPS[:1], settings_of()).taps == TAPS[:1]


# ---------------------------------------------------------------- something else


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"max_tokens": 21}, "max_tokens"),
        ({"sampled": 0.25}, "sampled"),
        ({"temperature": 1.0}, "temperature"),
        ({"seed": 4}, "seed"),
        ({"n_ctx": 300}, "n_ctx"),
    ],
)
def test_answers_made_with_other_settings(made, tiny_target, changes, name):
    before = files_of(made[0])
    with pytest.raises(TrainError, match=f"answers.jsonl` was made with another `{name}`"):
        build_corpus(tiny_target, PROMPTS, made[0], TAPS, settings_of(**changes))
    assert files_of(made[0]) == before


def number_of(prompt, folder):
    """The line of a prompt's answer."""
    lines = files_of(folder)[0].splitlines()
    return 1 + next(n for n, line in enumerate(lines) if json.loads(line).get("prompt") == prompt)


def test_another_target_other_prompts_other_taps(made, tmp_path, tiny_target):
    before = files_of(made[0])
    other = tiny.write_target(tmp_path / "other.gguf", type="Q8_0", seed=8)
    with pytest.raises(TrainError, match="another `target`"):
        build_corpus(other, PROMPTS, made[0], TAPS, settings_of())
    swapped = (*PROMPTS[:4], Prompt.of("b"), PROMPTS[5])
    what = rf"line {number_of(4, made[0])} answers another prompt 5: its digest: got '{PROMPTS[4].digest}', expected"
    with pytest.raises(TrainError, match=rf"answers.jsonl`, {what} {swapped[4].digest}; put new prompts behind"):
        build_corpus(tiny_target, swapped, made[0], TAPS, settings_of())
    with pytest.raises(
        TrainError, match=r"features.bf16` was made with another `taps`: got '\[0, 2\]', expected \[1, 2\]"
    ):
        build_corpus(tiny_target, PROMPTS, made[0], (1, 2), settings_of())
    with pytest.raises(TrainError, match=r"features.bf16` was made with another `target`"):
        build_corpus(tiny_target, PROMPTS, made[0], TAPS, settings_of(), features_from=other)
    assert files_of(made[0]) == before


def test_features_of_another_quantization(made, tmp_path, tiny_target):
    wide = tiny.write_target(tmp_path / "wide.gguf", type="F32")
    (tmp_path / answers.NAME).write_bytes((made[0] / answers.NAME).read_bytes())
    found = build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of(), features_from=wide)
    assert [list(example.ids) for example in found] == [ids for ids, _, _ in made[1]]
    ours, theirs = (widened(np.frombuffer(rows, np.uint16)) for rows in (found[0].features.tobytes(), made[1][0][2]))
    assert not np.array_equal(ours, theirs)
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    small = tiny.write_target(tmp_path / "small.gguf", layers=3)
    with pytest.raises(TrainError, match="another model than the target: its `n_layers`: got 3, expected 4"):
        build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of(), features_from=small)


@pytest.mark.parametrize("taps", [(), (2, 0), (1, 1), (-2, 0), (0, 3), (0, 99)], ids=str)
def test_taps_that_the_target_lacks(tmp_path, tiny_target, taps):
    with pytest.raises(TrainError, match=r"`taps`.*ascending numbers of layers from -1 to 2"):
        build_corpus(tiny_target, PROMPTS, tmp_path / "none", taps, settings_of())
    assert not (tmp_path / "none").exists()


def test_a_target_that_hands_nothing_out(tmp_path, tiny_target):
    changed = bytearray(tiny_target.read_bytes())
    other = tmp_path / "other.gguf"
    other.write_bytes(changed.replace(b"qwen3", b"qwen2"))
    with pytest.raises(DflashError, match="qwen2"):
        build_corpus(other, PROMPTS, tmp_path / "none", TAPS, settings_of())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"hello\n", "is no cache of answers"),
        (b"hello", "is no cache of answers"),
        (b'{"kind": "features"}\n', "is no cache of answers"),
        (b"\x00" * 100, "is no cache of answers"),
    ],
)
def test_a_file_of_someone_else_is_left_alone(tmp_path, tiny_target, text, message):
    (tmp_path / answers.NAME).write_bytes(text)
    with pytest.raises(TrainError, match=message):
        build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())
    assert (tmp_path / answers.NAME).read_bytes() == text


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"\x00\x00",
        b'{"prompt": 0, "asked": "", "n_prompt": 1, "ids": [1, 2]',
        b'{"prompt": 0, "n_prompt": 1, "ids": [1, 2]}',
        b'{"prompt": -1, "asked": "ASKED", "n_prompt": 1, "ids": [1, 2]}',
        b'{"prompt": false, "asked": "ASKED", "n_prompt": 1, "ids": [1, 2]}',
        b'{"prompt": 0, "asked": "ASKED", "n_prompt": 2, "ids": [1, 2]}',
        b'{"prompt": 0, "asked": "ASKED", "n_prompt": 0, "ids": [1, 2]}',
        b'{"prompt": 0, "asked": "ASKED", "n_prompt": 1, "ids": [1, 512]}',
        b'{"prompt": 0, "asked": "ASKED", "n_prompt": true, "ids": [1, 2]}',
        b'{"prompt": 0, "asked": "ASKED", "n_prompt": 1, "ids": "ab"}',
    ],
    ids=range(11),
)
def test_a_broken_line_is_told(tmp_path, made, tiny_target, line):
    first = files_of(made[0])[0].split(b"\n")[0]
    text = [first, line.replace(b"ASKED", PROMPTS[0].digest.encode()), b""]
    (tmp_path / answers.NAME).write_bytes(b"\n".join(text))
    with pytest.raises(TrainError, match=r"answers.jsonl`, line 2: got .*; remove the line"):
        build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())


def test_the_same_answer_twice_is_told(tmp_path, made, tiny_target):
    text = files_of(made[0])[0].split(b"\n")
    (tmp_path / answers.NAME).write_bytes(b"\n".join([*text[:3], text[2], b""]))
    with pytest.raises(TrainError, match=r"answers.jsonl`, line 4"):
        build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())


@pytest.mark.parametrize("cut", [4096, -2, -4096])
def test_features_that_lost_their_end_are_told(tmp_path, made, tiny_target, cut):
    text, rows = files_of(made[0])
    (tmp_path / answers.NAME).write_bytes(text)
    (tmp_path / features.NAME).write_bytes(rows[:cut])
    with pytest.raises(TrainError, match=r"bytes of `.*features.bf16`"):
        build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())


def test_two_runs_at_once(tmp_path, tiny_target):
    with (tmp_path / answers.NAME).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="is being written by another run"):
            build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())


def test_a_prompt_that_is_too_long_is_told_by_its_line(tmp_path, tiny_target, made):
    """And the corrected prompts are then taken in the same folder, which holds no answer yet."""
    prompts = (*PROMPTS, Prompt.of("sea " * 300, "line 7"))
    with pytest.raises(TrainError, match=r"line 7: tokens of the prompt: got .* expected at most 240"):
        build_corpus(tiny_target, prompts, tmp_path, TAPS, settings_of())
    assert values_of(build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())) == made[1]


def test_a_file_of_something_else_is_kept(tmp_path, tiny_target):
    """However short it is."""
    (tmp_path / answers.NAME).write_text('{"mine": 1}\n')
    with pytest.raises(TrainError, match="is no cache of answers"):
        build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())
    assert (tmp_path / answers.NAME).read_text() == '{"mine": 1}\n'


@pytest.mark.parametrize("n_bytes", [0, 1, 9, 40, -1])
def test_half_a_header_is_begun_anew_whatever_it_was_to_say(n_bytes, tmp_path, tiny_target, made):
    """A run was killed as it wrote it, or found the disk full, and the next one is told something else."""
    others = json.dumps({"kind": "answers", "version": 0, "target": "another", "max_tokens": 7})
    (tmp_path / answers.NAME).write_text(others[:n_bytes])
    assert values_of(build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())) == made[1]


def test_a_file_that_was_seen_and_is_gone_is_not_made_anew(tmp_path):
    """Another run gave it another name in between."""
    with pytest.raises(OutputError, match="no such file"), appending(tmp_path / "features.bf16", there=True):
        pass
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", [features.NAME, features.PARTIAL])
@pytest.mark.parametrize("data", [b"hi", b"hi" * 4000])
def test_features_of_something_else_are_told_before_anything_is_answered(name, data, tmp_path, tiny_target):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TrainError, match="is no cache of features"):
        build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_progress_begins_when_the_work_does(tmp_path, tiny_target):
    """The first answer may take long."""
    told = []
    build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of(), lambda *row: told.append(row))
    n, tokens = len(PROMPTS), told[-1][2]
    assert told[0] == ("answers", 0, n)
    assert told[n + 1] == ("features", 0, tokens)
    assert told[-1] == ("features", tokens, tokens)
    told.clear()
    build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of(), lambda *row: told.append(row))
    assert not told


def test_a_target_without_a_chat_template_is_told(tmp_path):
    """With what helps here: the options of other commands do not."""
    target = tiny_architectures.write(tmp_path / "target.gguf", "qwen35")
    with pytest.raises(TrainError, match=r"line 1 cannot be asked: .*chat_template`; leave it out, or give the file"):
        build_corpus(target, PROMPTS, tmp_path, TAPS, settings_of())


def test_a_drafter_is_no_target(tmp_path, tiny_drafter):
    from dflash_gguf.errors import PairError

    with pytest.raises(PairError, match="is a drafter"):
        build_corpus(tiny_drafter, PROMPTS, tmp_path, TAPS, settings_of())


def test_libllama_that_refuses_is_told(tmp_path, tiny_target, monkeypatch):
    import llama_cpp

    monkeypatch.setattr(llama_cpp, "llama_decode", lambda *_: 1)
    with pytest.raises(SessionError, match="libllama failed in a pass of"):
        build_corpus(tiny_target, PROMPTS, tmp_path, TAPS, settings_of())
