"""A call that may need a stack as deep as its text is long.

Comes in: a length and a call. Goes out: what the call returns or raises. For many models libllama splits text by
libstdc++'s ``std::regex``, which recurses once for each character of an unbroken run: near 30,000 of them overflow the
usual 8 MiB (llama.cpp src/unicode.cpp, 0.5.0; measured).
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar

from dflash_gguf.errors import SessionError
from dflash_gguf.runner.interrupts import held_back

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

SHALLOW: Final = 4096
"""Bytes of text for which any thread's stack does."""
BASE: Final = 16 << 20
A_BYTE: Final = 1024
"""Stack for a byte of text: three times what was measured. Only what is touched takes memory."""
LONGEST: Final = 4 << 20

_one_at_a_time: Final = threading.Lock()
"""``threading.stack_size`` is the process's."""


def with_deep_stack(n_bytes: int, call: Callable[[], _T]) -> _T:
    """Runs ``call`` on a stack that is deep enough for a text of ``n_bytes``; raises SessionError for a longer one."""
    if n_bytes <= SHALLOW:
        return call()
    if n_bytes > LONGEST:
        raise SessionError(f"a text of {n_bytes} bytes", expected=f"at most {LONGEST}", remedy="shorten the prompt")
    future: Future[_T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  handed to the caller
            future.set_exception(error)

    with _one_at_a_time:
        before = threading.stack_size(BASE + A_BYTE * n_bytes)
        try:
            thread = threading.Thread(target=work, name="tokenize", daemon=True)
            thread.start()
        except RuntimeError:
            raise SessionError(
                f"a text of {n_bytes} bytes needs a deeper stack than this process may have",
                remedy="shorten the prompt, or raise the process's limit of memory",
            ) from None
        finally:
            threading.stack_size(before)
    # libllama is not to be left running on a model that the caller frees.
    with held_back():
        thread.join()
    return future.result()
