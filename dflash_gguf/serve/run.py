"""The application on a socket, until it is told to end.

Comes in: a session, settings and a bound socket. Goes out: nothing. Knows nothing of the command line.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn

from dflash_gguf.errors import DflashError
from dflash_gguf.runner.interrupts import ENDING
from dflash_gguf.serve.app import application
from dflash_gguf.serve.protocol import PatientProtocol
from dflash_gguf.serve.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from dflash_gguf.runner.session import Session
    from dflash_gguf.serve.job import Job
    from dflash_gguf.serve.settings import ServerSettings

BACKLOG: Final = 128
KEEP_ALIVE: Final = 60
"""Seconds without a request behind which a connection is closed: longer than clients keep theirs, who would otherwise
send into one that is being closed."""
_LAST_WORDS: Final = 5.0
"""Seconds in which clients take what they are told at the end."""


class ServeError(DflashError):
    """An address that cannot be listened on."""


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket bound to ``host`` and ``port``, 0 being any that is free. Raises ServeError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ServeError(
            f"the address `{host}`", value=str(error), expected="a name or number of this machine"
        ) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        what = f"cannot listen on `{host}` at port {port}: {error.strerror}"
        raise ServeError(what, remedy="choose another with --port; 0 takes any that is free") from None
    return bound


def url_of(bound: socket.socket) -> str:
    """Where the socket's server is asked."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(
    session: Session,
    settings: ServerSettings,
    ready: Callable[[], None],
    tell: Callable[[Job], None] | None = None,
) -> uvicorn.Server:
    """A server whose ``run(sockets=[...])`` answers requests until a signal asks to end.

    ``ready`` is called once it answers, ``tell`` behind each answer, in the session's thread. At the end the running
    answer has ``grace`` seconds, those that wait are refused; a second signal ends that answer after its pass.
    """
    service = Service(session, settings, tell)
    config = uvicorn.Config(
        application(service),
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=round(settings.grace + _LAST_WORDS),
    )
    return _Server(config, service, ready)


class _Server(uvicorn.Server):
    """uvicorn's, which refuses what waits before it waits for what runs."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.service = service
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        engine = self.service.engine
        engine.refuse()
        asyncio.get_running_loop().call_later(self.service.settings.grace, engine.cut)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal lets the running answer finish, another one does not."""
        del sig, frame
        if self.should_exit:
            self.service.engine.cut()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The one of uvicorn raises the signal again behind the end; here the end is what was asked for."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
