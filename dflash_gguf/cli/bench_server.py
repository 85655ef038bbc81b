"""``dflash-gguf bench --server``.

Comes in: prompts and a command's options. Goes out: lines, files, an object, and an exit code.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from dflash_gguf.cli.bench_output import show, until_interrupted, write_outputs
from dflash_gguf.cli.errors import FAILED
from dflash_gguf.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dflash_gguf.bench.load import Asked
    from dflash_gguf.bench.measure import Plan
    from dflash_gguf.bench.prompts import BenchPrompt
    from dflash_gguf.bench.server import Server
    from dflash_gguf.cli.output import Output


def measure_server(
    output: Output,
    prompts: Sequence[BenchPrompt],
    plan: Plan,
    asked: Mapping[str, str],
    options: Mapping[str, Any],
) -> int:
    """Asks for all prompts and says what came of it; 1 when a request failed."""
    from dflash_gguf.bench.load import load, summarize
    from dflash_gguf.bench.report import of_load

    server = _server(prompts[0], plan, options)
    answered: list[Asked] = []

    def told(each: Asked) -> None:
        answered.append(each)
        _told(output, each)

    started = time.perf_counter()
    with until_interrupted() as ending:
        found, seconds = load(server, prompts, plan, options["concurrency"], told)
    if ending.code:
        found, seconds = answered, time.perf_counter() - started
    if not found:
        return ending.code
    summary = summarize(found, seconds)
    facts = {
        "server": server.shown,
        "model": server.model,
        **asked,
        "concurrency": str(options["concurrency"]),
        "stream": "yes" if server.stream else "no",
        **ending.facts,
    }
    report = of_load(summary, facts, options["price"])
    show(output, report)
    for each in found:
        if each.reply is None:
            output.warning(f"{each.label}: {each.error}")
    write_outputs(output, report, options)
    output.result(
        {
            "facts": facts,
            **asdict(summary),
            "verdicts": report.verdicts,
            "requests": [_request(each) for each in found],
        }
    )
    return ending.code or (FAILED if summary.all.n_failed else 0)


def _server(prompt: BenchPrompt, plan: Plan, options: Mapping[str, Any]) -> Server:
    """The server, once it has answered a warm-up."""
    from dflash_gguf.bench.measure import WARM_UP, conversation
    from dflash_gguf.bench.server import first_model, server_at, tried
    from dflash_gguf.environment import api_key

    name = options["api_key_env"]
    key = api_key(name) if name else ""
    if not (key.isascii() and key.isprintable()):
        raise BenchError(f"the key in `{name}`", expected="printable ASCII, as a header takes", remedy="set it anew")
    server = replace(server_at(options["server"]), api_key=key, stream=not options["no_stream"])
    server = replace(server, model=options["model_name"] or first_model(server))
    return tried(server, conversation(prompt, ()), min(WARM_UP, plan.n_predict), plan.of_run(0))


def _told(output: Output, each: Asked) -> None:
    reply = each.reply
    speed = "failed" if reply is None else f"{reply.n_tokens} tokens in {reply.total_ms / 1e3:.1f} s"
    output.note(f"run {each.run + 1} {each.kind}: {each.label}: {speed}")


def _request(each: Asked) -> dict[str, Any]:
    """A request without its text."""
    found = asdict(each)
    if each.reply is not None:
        del found["reply"]["text"]
        found["reply"]["per_second"] = each.reply.per_second
    return found
