"""``dflash-gguf serve``."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf import environment
from dflash_gguf.cli import web_names
from dflash_gguf.cli.hub_options import Models, models_options
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import Number, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.sampling_options import check_tokens, sampling_arguments, sampling_options
from dflash_gguf.cli.session_options import (
    check_fit,
    fit_option,
    session_arguments,
    session_options,
    show_remarks,
)
from dflash_gguf.errors import MissingDependencyError, SessionError
from dflash_gguf.serve.settings import (
    DEFAULT_BODY,
    DEFAULT_BODY_TIMEOUT,
    DEFAULT_GRACE,
    DEFAULT_QUEUE,
    DEFAULT_TIMEOUT,
    ServerSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dflash_gguf.runner.sampling import SamplingOptions
    from dflash_gguf.runner.session import Session
    from dflash_gguf.serve.job import Job

_OPEN: Final = (
    "anybody who can reach {} may use the model: --api-key asks for a key. Without one it answers to addresses, to "
    "localhost and to this machine's name; --allow-host adds a name"
)
_SECONDS: Final = Number(0.001, 1e6)


def _named(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter(f"`{value}`; expected a name that is not blank")
    return value


_OPTIONS: Final = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any."),
    click.option(
        "-a",
        "--alias",
        metavar="NAME",
        callback=_named,
        help="What the model is called. Default: its file's name.",
    ),
    click.option(
        "--api-key",
        "api_keys",
        multiple=True,
        metavar="KEY",
        envvar=environment.LLAMA_API_KEY,
        help="Who sends it may ask; repeatable. Better given by LLAMA_API_KEY: others see a command line.",
    ),
    click.option(
        "--queue",
        type=click.IntRange(0, 10000),
        default=DEFAULT_QUEUE,
        show_default=True,
        help="Requests that may wait.",
    ),
    click.option(
        "-to",
        "--timeout",
        type=_SECONDS,
        default=DEFAULT_TIMEOUT,
        show_default=True,
        help="Seconds that a request may take, waiting included.",
    ),
    click.option(
        "--max-body",
        "body_limit",
        type=click.IntRange(1024, 1 << 30),
        default=DEFAULT_BODY,
        show_default=True,
        metavar="BYTES",
        help="Largest body of a request.",
    ),
    click.option(
        "--body-timeout",
        type=_SECONDS,
        default=DEFAULT_BODY_TIMEOUT,
        show_default=True,
        help="Seconds in which it must have come.",
    ),
    click.option(
        "--grace",
        type=_SECONDS,
        default=DEFAULT_GRACE,
        show_default=True,
        help="Seconds that a running answer has when the server is told to end.",
    ),
    click.option(
        "--cors-origin",
        "origins",
        multiple=True,
        metavar="ORIGIN",
        callback=web_names.origins,
        help="Web pages of this origin may ask, as https://example.org; repeatable; *: all.",
    ),
    click.option(
        "--allow-host",
        "hosts",
        multiple=True,
        metavar="NAME",
        callback=web_names.hosts,
        help="Without a key: another name by which the server may be called; repeatable; *: any.",
    ),
)
"""Of the server itself; names are llama-server's where it has them."""


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of the server itself."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("serve", short_help="Answer OpenAI's API with a target and its drafter.")
@models_options(required=True)
@server_options
@click.option("--no-draft", is_flag=True, help="Let the target decode alone.")
@sampling_options()
@session_options
@fit_option
@verbose_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, models: Models, no_draft: bool, verbose: bool, **options: Any) -> None:
    """Answers OpenAI's API over HTTP, one request at a time, until it is interrupted.

    The sampling flags are the defaults of requests that leave theirs out. `dflash-gguf recipe` shows engines that
    answer many at once.

    \b
    dflash-gguf serve -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-Q4_K_M.gguf
    """
    if not all(key.strip() for key in options["api_keys"]):
        raise click.UsageError("--api-key needs a key that is not empty", ctx)
    _need_extra()
    from dflash_gguf.cli.answer import describe
    from dflash_gguf.runner.session import Session
    from dflash_gguf.serve.run import listening_socket, server_of, url_of

    native_log(ctx, verbose=verbose)
    output: Output = ctx.obj
    arguments = session_arguments(options)
    sampling = sampling_arguments(ctx, options)
    host, port = options.pop("host"), options.pop("port")
    with listening_socket(host, port) as bound:
        target, draft = (models.target_file(ctx), None) if no_draft else models.pair_files(ctx)
        check_tokens(ctx, target, sampling["logit_bias"])
        if options.pop("fit_check"):
            check_fit(output, target, draft, arguments)
        settings = _settings(target, options, sampling)
        if not settings.api_keys and not _is_loopback(bound.getsockname()[0]):
            output.warning(_OPEN.format(url_of(bound)))
        with Session(target, draft, **arguments) as session:
            show_remarks(output, session)
            _check_defaults(ctx, session, sampling)

            def ready() -> None:
                output.line(f"{settings.model} listens on {url_of(bound)}; Ctrl-C ends it")
                output.result({"url": url_of(bound), "model": settings.model})

            def tell(job: Job) -> None:
                if job.stats is not None:
                    with suppress(OSError):  # nobody reads stderr any more: that ends no server
                        output.note(describe(job.stats, job.reason))

            server_of(session, settings, ready, tell if verbose else None).run(sockets=[bound])


def _settings(target: Path, options: dict[str, Any], sampling: Any) -> ServerSettings:
    alias = options.pop("alias")
    keys = tuple(key.strip() for key in options.pop("api_keys"))  # a header has no blanks at its ends
    return ServerSettings(model=alias or target.stem, api_keys=keys, defaults=dict(sampling), **options)


def _check_defaults(ctx: click.Context, session: Session, sampling: SamplingOptions) -> None:
    """Wrong usage for what libllama refuses: else each client would be told of it."""
    try:
        session.check_sampling(**sampling)
    except SessionError as error:
        flags = {option.name: max(option.opts, key=len) for option in ctx.command.params}
        flag = next((f"{flags[name]}: " for name in sampling if f"`{name}" in error.what), "")
        raise click.UsageError(f"{flag}{error}", ctx) from error


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback


def _need_extra() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("starlette", "uvicorn", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"the server needs {' and '.join(missing)}", remedy="install them: pip install 'dflash-gguf[serve]'"
        )
