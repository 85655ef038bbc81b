"""Work in several threads, its results in order.

Comes in: items and what to do with one. Goes out: results, each as soon as it and all before it are there.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Future

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Iterable[T], n_threads: int) -> Generator[R]:
    """``work(item)`` of every item; at most ``2 * n_threads`` items are taken before their result is asked for.

    The first failure in the items' order is raised. When the generator ends or is closed, no work is left running.
    """
    pending: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(n_threads)
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) == 2 * n_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        try:
            pool.shutdown(cancel_futures=True)
        finally:  # a second interrupt breaks the wait off, but what runs may still write
            pool.shutdown()
