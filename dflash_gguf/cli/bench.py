"""``dflash-gguf bench``."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from dflash_gguf.cli import bench_quants
from dflash_gguf.cli.bench_options import bench_options, check_prompts, prompts_of, prompts_shown, report_options
from dflash_gguf.cli.bench_output import check_inputs, check_outputs, show, until_interrupted, write_outputs
from dflash_gguf.cli.errors import NOT_PASSED
from dflash_gguf.cli.hub_options import NAMES, NO_TARGET, Models, models_options
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import NamedPath, Number, force_option, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.sampling_options import check_tokens, sampling_arguments, sampling_options
from dflash_gguf.cli.session_options import TABLE, session_arguments, session_options, show_remarks
from dflash_gguf.errors import brief

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dflash_gguf.bench.cost import Costs
    from dflash_gguf.bench.measure import Pair, Plan
    from dflash_gguf.bench.prompts import BenchPrompt
    from dflash_gguf.bench.summary import Setting
    from dflash_gguf.runner.session import Session

_FILE: Final = NamedPath()

WITH_SERVER: Final = ("concurrency", "model_name", "api_key_env", "no_stream")
"""Options that need --server."""
DRAFTING: Final = ("depth", "spec_draft_n_max", "spec_draft_n_min", "spec_draft_p_min", "draft_rule")
"""Arguments of a session that mean nothing without a drafter."""
SEEDS_OF_SERVERS: Final = 1 << 31
"""Below this every server takes a seed."""
WITHOUT_SERVER: Final = (
    *NAMES,
    "sweep",
    "raw",
    "fail_if_slower",
    "use_mmap",
    "exact",
    "grammar",
    "grammar_file",
    "json_schema",
    "json_schema_file",
    "logit_bias",
    "dry_sequence_breakers",
    *(row.argument for row in TABLE),
)
"""Options that do not go with --server: what they set is the server's own affair."""
FROM_FILES: Final = ("grammar", "json_schema")
"""What of a choice may be named by a file."""


@click.group("bench", short_help="Measure what a drafter gains, or a server.", invoke_without_command=True)
@models_options(required=False)
@bench_options(runs=2)
@click.option("--sweep", is_flag=True, help="Measure every fixed depth, and auto; print the best.")
@click.option("--gpu-hour", "price", type=Number(min=0.0), help="Price of an hour of the machine, in any currency.")
@click.option("--fail-if-slower", is_flag=True, help="Exit with 3 when the drafter makes some kind of prompts slower.")
@click.option("--server", metavar="URL", help="Measure a server that speaks OpenAI's chat completions instead.")
@click.option(
    "--concurrency", type=click.IntRange(1, 4096), default=1, show_default=True, help="Requests to the server at once."
)
@click.option("--model-name", help="The model to ask the server for. Default: the first that it lists.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's key.")
@click.option("--no-stream", is_flag=True, help="Ask the server for whole answers: SGLang tells its drafts only then.")
@report_options
@force_option
@sampling_options(temperature=0)
@session_options
@verbose_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, models: Models, **options: Any) -> None:
    """Measures tokens per second with the drafter and without, in turn, on built-in prompts of several kinds.

    Both sessions are open at once, so the target takes its memory twice. Nothing of the request before is used again.
    Slower is a result, not a failure: see --fail-if-slower. docs/bench.md says what each number means.

    \b
    dflash-gguf bench -m Qwen3.8-27B-Q4_K_M.gguf -md dflash-Qwen3.8-27B-Q4_K_M.gguf --sweep
    dflash-gguf bench --server http://127.0.0.1:8080 --concurrency 4
    dflash-gguf bench quants -m Qwen3.8-27B-Q4_K_M.gguf --checkpoint ./Qwen3.8-27B-DFlash2
    """
    from dflash_gguf.bench.measure import Plan

    if ctx.invoked_subcommand is not None:
        for param in _given(ctx):
            raise click.UsageError(f"{param.opts[-1]} belongs behind `{ctx.invoked_subcommand}`", ctx)
        return
    _check_usage(ctx, options, models)
    check_outputs(ctx, options)
    native_log(ctx, verbose=options["verbose"])
    output: Output = ctx.obj
    sampling, shown = _sampling(ctx, options)
    prompts = prompts_of(options)
    plan = Plan(options["n_predict"], options["runs"], sampling, options["raw"])
    facts = {"prompts": prompts_shown(options, len(prompts)), "sampling": shown}
    if options["server"] is not None:
        from dflash_gguf.cli.bench_server import measure_server

        ctx.exit(measure_server(output, prompts, plan, facts, options))
    options["target"], options["draft"] = models.pair_files(ctx)
    check_inputs(options, (options["target"], options["draft"]))
    check_tokens(ctx, options["target"], sampling["logit_bias"])
    ctx.exit(_pair(output, prompts, plan, facts, options))


command.add_command(bench_quants.command)


def _check_usage(ctx: click.Context, options: Mapping[str, Any], models: Models) -> None:
    wrong = WITH_SERVER if options["server"] is None else WITHOUT_SERVER
    for param in _given(ctx):
        if param.name in wrong:
            how = "needs --server" if options["server"] is None else "does not go with --server"
            raise click.UsageError(f"{param.opts[-1]} {how}", ctx)
    if options["server"] is None and not models.named:
        raise click.UsageError(f"{NO_TARGET}, or a server with --server", ctx)
    check_prompts(ctx, options)


def _given(ctx: click.Context) -> list[click.Parameter]:
    """The parameters that the user named."""
    source = ctx.get_parameter_source
    own = (ParameterSource.DEFAULT, ParameterSource.ENVIRONMENT)
    return [param for param in ctx.command.params if source(param.name or "") not in own]


def _sampling(ctx: click.Context, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Keywords of `Session.generate`, a seed among them, and their words; a server is told those that were given."""
    from dflash_gguf.runner.sampling import Sampling

    values: dict[str, Any] = dict(sampling_arguments(ctx, options))
    Sampling(**values)
    if values["seed"] is None:
        values["seed"] = secrets.randbelow(SEEDS_OF_SERVERS)
    names = {"temperature", "seed"} | ({param.name for param in _given(ctx)} & values.keys())
    told = [name for name in values if name in names and (name != "seed" or values["temperature"] > 0)]
    words = [f"{name} {_short(values[name])}" for name in told]
    words += [f"{name} of {Path(file.name).name}" for name in FROM_FILES if (file := ctx.params[f"{name}_file"])]
    if options["server"] is not None:
        values = {name: values[name] for name in values if name in names}
    return values, ", ".join(words)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(brief(value))


def _pair(
    output: Output, prompts: Sequence[BenchPrompt], plan: Plan, asked: Mapping[str, str], options: dict[str, Any]
) -> int:
    from dflash_gguf.bench.machine import facts
    from dflash_gguf.bench.report import of_settings
    from dflash_gguf.bench.summary import best, setting, slower

    arguments = session_arguments(options)
    measured: dict[int | None, list[Pair]] = {}
    with until_interrupted() as ending:
        _measure(output, prompts, plan, options, arguments, measured)
    settings = [setting(depth, pairs) for depth, pairs in _comparable(measured)]
    if not settings:
        return ending.code
    chosen = best(settings)
    names = {"target": options["target"].name, "drafter": options["draft"].name}
    shown = {**names, **asked, **facts(arguments["n_threads"]), **ending.facts}
    costs = _costs(measured[chosen.depth], options["price"])
    report = of_settings(settings, chosen, shown, costs)
    show(output, report)
    write_outputs(output, report, options)
    output.result(
        {
            "facts": shown,
            "settings": [_setting(each) for each in settings],
            "best": chosen.name if len(settings) > 1 else None,
            "slower": slower(chosen),
            "verdicts": report.verdicts,
            "costs": {kind: None if one is None else asdict(one) for kind, one in costs.items()},
            "pairs": [_pair_dict(depth, pair) for depth, pairs in measured.items() for pair in pairs],
        }
    )
    return ending.code or (NOT_PASSED if options["fail_if_slower"] and slower(chosen) else 0)


def _comparable(measured: Mapping[int | None, list[Pair]]) -> Iterator[tuple[int | None, list[Pair]]]:
    """The depths that all prompts were run at; where not even the first was, what there is of it."""
    most = max(map(len, measured.values()), default=0)
    return ((depth, pairs) for depth, pairs in measured.items() if pairs and len(pairs) == most)


def _measure(
    output: Output,
    prompts: Sequence[BenchPrompt],
    plan: Plan,
    options: Mapping[str, Any],
    arguments: dict[str, Any],
    found: dict[int | None, list[Pair]],
) -> None:
    """Puts the pairs of each fixed depth, and of depth control at None, into ``found`` as they come.

    The session without the drafter stays open, and is measured anew beside each depth.
    """
    from dflash_gguf.bench.measure import series
    from dflash_gguf.runner.session import Session

    alone = {name: value for name, value in arguments.items() if name not in DRAFTING}
    own = arguments | ({"depth": "auto"} if options["sweep"] else {})

    def measure(plain: Session, **changed: Any) -> int:
        with Session(options["target"], options["draft"], **{**own, **changed}) as drafted:
            if not found:
                show_remarks(output, drafted)
            depth = drafted.n_max if {**own, **changed}["depth"] == "fixed" else None
            found[depth] = []
            for pair in series(plain, drafted, prompts, plan):
                found[depth].append(_told(output, depth, pair, len(prompts)))
            if options["verbose"] and drafted.depths is not None:
                output.note(str(drafted.depths))
            return drafted.n_max

    with Session(options["target"], **alone) as plain:
        n_max = measure(plain)
        if options["sweep"]:
            for depth in range(max(1, own["spec_draft_n_min"]), n_max + 1):
                measure(plain, depth="fixed", spec_draft_n_max=depth)


def _told(output: Output, depth: int | None, pair: Pair, n_prompts: int) -> Pair:
    """Says how far the measurement is."""
    from dflash_gguf.bench.summary import depth_name

    ratio = "-" if pair.ratio is None else f"{pair.ratio:.2f}"
    turn = f", turn {pair.turn + 1}" if pair.turn else ""
    place = f"depth {depth_name(depth)}, run {pair.run + 1} [{pair.prompt + 1}/{n_prompts}]"
    output.note(f"{place} {pair.kind}: {pair.label}{turn}: {ratio}")
    return pair


def _setting(each: Setting) -> dict[str, Any]:
    rows = [asdict(row) | {"verdict": row.verdict} for row in each.kinds]
    return {
        "name": each.name,
        "depth": each.depth,
        "kinds": rows,
        "all": asdict(each.all) | {"verdict": each.all.verdict},
    }


def _pair_dict(depth: int | None, pair: Pair) -> dict[str, Any]:
    """A pair without its texts."""
    from dflash_gguf.bench.summary import depth_name

    sides = {
        side: {
            "ids": one.ids,
            "first_token_ms": one.first_token_ms,
            "drafted_at": one.drafted_at,
            "accepted_at": one.accepted_at,
            **one.stats.as_dict(),
        }
        for side, one in (("plain", pair.plain), ("drafted", pair.drafted))
    }
    place = {"kind": pair.kind, "prompt": pair.label, "turn": pair.turn, "run": pair.run}
    return {"setting": depth_name(depth), **place, "ratio": pair.ratio, "same_text": pair.same, **sides}


def _costs(pairs: Sequence[Pair], price: float | None) -> dict[str, Costs | None]:
    from dflash_gguf.bench.cost import costs
    from dflash_gguf.bench.summary import ALL

    if price is None:
        return {}
    kinds = list(dict.fromkeys(pair.kind for pair in pairs))
    found = {kind: costs([pair for pair in pairs if pair.kind == kind], price) for kind in kinds}
    return found if len(kinds) == 1 else found | {ALL: costs(pairs, price)}
