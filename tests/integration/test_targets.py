"""Targets that are not plain attention: a hybrid one, whose recurrent state is wound back, and what is refused."""

import pytest
import tiny
import tiny_targets
from scripted import agreeing_with
from test_session import TAPS, ScriptedBeside, generate, random_prompts

from dflash_gguf import DflashError, Session, _core
from dflash_gguf.runner.models import ContextSizes, Model, ModelContext


@pytest.fixture(scope="module")
def lfm2(tmp_path_factory):
    return tiny_targets.write_lfm2(tmp_path_factory.mktemp("lfm2") / "lfm2.gguf")


@pytest.mark.parametrize("accepted", range(8))
def test_a_hybrid_target_is_wound_back_after_accepts_of_every_length(lfm2, accepted):
    model = Model(lfm2)
    plain_context = ModelContext(model, ContextSizes(512, 48, 1, 1, "on"))
    context = ModelContext(model, ContextSizes(512, 48, 8, 1, "on"))
    context.check_rollback(model, 7)
    plain = _core.Loop(_core.LlamaTarget(plain_context.address, 1 << 20, [], 1), None, 0)
    tapped = _core.LlamaTarget(context.address, 1 << 20, TAPS, 8)
    for prompt in random_prompts(2, 60):
        expected = generate(plain, prompt, 40)
        drafter = ScriptedBeside(prompt + expected, [accepted])
        loop = _core.Loop(tapped, _core.ScriptedDrafter(drafter), 7)
        assert generate(loop, prompt, 40) == expected
        assert loop.stats.draft_n_accepted >= accepted
        assert (loop.stats.draft_n_accepted < loop.stats.draft_n) == (accepted < 7)
    del loop, plain, tapped
    for each in (plain_context, context):
        each.close()
    model.close()


def test_a_hybrid_target_alone_stops_at_an_end_token(lfm2):
    with Session(lfm2, n_ctx=256, n_threads=1) as session:
        session._vocabulary.is_end = lambda token: True
        *_, last = session.generate([8, 9, 10], max_tokens=5, temperature=0)
        assert (last.reason, last.stats.predicted_n) == ("stop", 0)
        session._vocabulary.is_end = lambda token: False
        assert len(list(session.generate([8, 9, 10], max_tokens=5, temperature=0))) > 5


def test_a_state_that_cannot_be_wound_back_far_enough_is_refused(lfm2):
    model = Model(lfm2)
    context = ModelContext(model, ContextSizes(256, 48, 3, 1))
    context.check_rollback(model, 2)
    with pytest.raises(DflashError, match=r"wind back over 7 tokens; run it without a drafter"):
        context.check_rollback(model, 7)
    context.close()
    model.close()


def test_an_encoder_is_refused(tmp_path):
    with pytest.raises(DflashError, match=r"does not expose the layer inputs .* \(target `bert`\)"):
        Session(tiny_targets.write_bert(tmp_path / "bert.gguf"), n_ctx=256, n_threads=1)


def test_agreeing_with_is_right_for_as_many_as_asked():
    propose = agreeing_with(list(range(10, 40)), [3])
    assert propose(4, 5)[:3] == [15, 16, 17]
    assert propose(4, 5)[3] != 18


def test_the_smallest_context_holds_a_block(tiny_target, tiny_drafter):
    with Session(tiny_target, tiny_drafter, n_ctx=4, n_ubatch=1, n_threads=1) as session:
        *_, last = session.generate([7, 8], max_tokens=20, temperature=0)
        assert (last.reason, last.stats.predicted_n) == ("length", 3)


def test_a_context_that_no_machine_holds_is_refused_before_it_is_made(tiny_target, monkeypatch):
    from dflash_gguf.runner import machine

    monkeypatch.setattr(machine, "total", lambda: 10_000_000)
    with pytest.raises(DflashError, match=r"a context of 16777216 tokens needs about .* GB for its cache.*`-c`"):
        Session(tiny_target, n_ctx=1 << 24)


@pytest.mark.parametrize("block", [0, 1, 1025, 2**31])
def test_a_block_size_out_of_bounds_is_refused(block, tiny_target, tmp_path):
    draft = tiny.write_drafter(tmp_path / "d.gguf", extra_keys={"dflash.block_size": block})
    with pytest.raises(DflashError, match=r"block"):
        Session(tiny_target, draft)
