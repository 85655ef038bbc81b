"""Work in several threads: results in order, the first failure, nothing left running."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from dflash_gguf.convert.in_order import in_order


def test_results_keep_the_order_of_the_items():
    first = threading.Event()

    def work(item):
        # The first item ends after the second one has.
        if item == 0:
            assert first.wait(10)
        if item == 1:
            first.set()
        return item * item

    assert list(in_order(work, range(50), 3)) == [item * item for item in range(50)]


def test_the_first_failure_in_the_items_order_is_raised():
    later = threading.Event()

    def work(item):
        if item == 2:
            assert later.wait(10)
            raise ValueError("two")
        if item == 3:
            later.set()
            raise ValueError("three")
        return item

    results = in_order(work, range(100), 2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(results)


def test_items_are_taken_as_they_are_needed():
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    with closing(in_order(lambda item: item, items(), 2)) as results:
        assert next(results) == 0
        assert len(taken) == 4


def test_nothing_runs_once_it_is_closed():
    begun, go, ended = threading.Event(), threading.Event(), []

    def work(item):
        if item:
            begun.set()
            assert go.wait(10)
            ended.append(item)
        return item

    with closing(in_order(work, range(100), 2)) as results:
        assert next(results) == 0
        assert begun.wait(10)
        threading.Timer(0.05, go.set).start()
    assert 1 <= len(ended) <= 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]
