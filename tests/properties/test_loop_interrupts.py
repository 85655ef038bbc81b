"""The native loop when something is raised in it, or its consumer leaves: the next request is right."""

import pytest
from scripted import N_VOCAB, Drafter, Target, agreeing, continuation, loop_of
from test_loop import check_state, never

from dflash_gguf.runner.generation import Generation
from dflash_gguf.runner.vocabulary import TextStream


class Interrupting:
    """Raises in the k-th call of any method of the target or the drafter, once."""

    def __init__(self, k, error):
        self.left, self.error = k, error

    def around(self, script, names):
        for name in names:
            setattr(script, name, self._counted(getattr(script, name)))

    def _counted(self, method):
        def call(*arguments):
            self.left -= 1
            if self.left == 0:
                raise self.error
            return method(*arguments)

        return call


@pytest.mark.parametrize("recurrent", [False, True], ids=["plain", "recurrent"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_whatever_is_raised_anywhere_in_a_request_leaves_the_next_one_right(error, recurrent):
    reached = 0
    for k in range(1, 80):
        target = Target(n_batch=8, recurrent=recurrent)
        drafter = Drafter(target, agreeing([2, 0, 7]))
        drafter.n_batch = 4
        loop, cached = loop_of(target, drafter), []
        list(Generation(loop, never, 6, cached=cached).rounds([1, 2, 3]))
        interrupting = Interrupting(k, error)
        interrupting.around(target, ["decode", "features", "trim", "rewind", "mark"])
        interrupting.around(drafter, ["inject", "draft", "rewind"])
        generation = Generation(loop, never, 20, cached=cached)
        try:
            for _ in generation.rounds([1, 2, 3, 4] + [5] * 12):
                pass
        except error:
            reached += 1
        interrupting.left = 0
        prompt = [1, 2, 3, 4] + [5] * 8
        generation = Generation(loop, never, 20, cached=cached)
        tokens = [t for step in generation.rounds(prompt) for t in step.tokens]
        assert tokens == continuation(prompt, 20), k
        check_state(loop, target, drafter, prompt + tokens)
    assert reached > 30


@pytest.mark.parametrize("recurrent", [False, True], ids=["plain", "recurrent"])
@pytest.mark.parametrize("how", ["close", "raise"])
def test_a_consumer_may_leave_after_any_event(how, recurrent):
    letters = [chr(97 + t).encode() for t in range(N_VOCAB)]
    for n_events in range(25):
        target = Target(recurrent=recurrent)
        drafter = Drafter(target, agreeing([2, 0, 7]))
        loop, cached = loop_of(target, drafter), []
        generation = Generation(loop, never, 40, cached=cached, text=TextStream(letters.__getitem__))
        events = generation.events([1, 2, 3])
        for _, _event in zip(range(n_events), events, strict=False):
            pass
        if how == "close":
            events.close()
        else:
            with pytest.raises(ZeroDivisionError):
                events.throw(ZeroDivisionError())
        generation = Generation(loop, never, 20, cached=cached)
        tokens = [t for step in generation.rounds([1, 2, 3, 4]) for t in step.tokens]
        assert tokens == continuation([1, 2, 3, 4], 20)
        check_state(loop, target, drafter, [1, 2, 3, 4, *tokens])
