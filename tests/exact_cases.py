"""What a process of its own does for tests/integration/test_exact.py: texts with and without drafter, `exact` on.

    python tests/exact_cases.py FOLDER

Comes in: a folder to write models in. Goes out: one JSON object a line on stdout, for each type of target.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import tiny
from scripted import agreeing_with

from dflash_gguf import Session, _core
from dflash_gguf.errors import SessionError
from dflash_gguf.runner.comparison import answer
from dflash_gguf.runner.exact import V_TYPE
from dflash_gguf.runner.generation import Generation
from dflash_gguf.runner.models import ContextSizes, Model, ModelContext
from dflash_gguf.runner.placement import Placement
from dflash_gguf.runner.sampling import Sampling

SIZES = {"hidden": 256, "ffn": 512, "heads": 4, "kv_heads": 2, "top_k": 15}
TYPES = {
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "Q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K,
    "F16": None,
}
SESSIONS: dict[str, list[dict[str, Any]]] = {
    "Q4_K_M": [{"spec_draft_n_max": 4, "draft_rule": "keyed"}, {"depth": "auto", "draft_rule": "auto"}]
}
"""Other sessions, beside those of full depth; scripted drafters go through all depths."""
OPTIONS = {"n_ctx": 256, "n_threads": 1, "exact": True, "depth": "fixed"}
N_PREDICT = 14
LETTERS = r"root ::= [abc ]+"
CASES: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0, "grammar": LETTERS},
    {"temperature": 0, "repeat_penalty": 1.5, "frequency_penalty": 0.5},
    *({"temperature": t, "seed": seed, "grammar": LETTERS} for t in (0.7, 1.0) for seed in range(4)),
    *({"temperature": t, "seed": seed} for t in (0.7, 1.0) for seed in (10, 11)),
    {"temperature": 1.0, "seed": 20, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0.7, "seed": 21, "top_k": 0, "typical_p": 0.7, "grammar": LETTERS},
    {"temperature": 1.0, "seed": 22, "top_n_sigma": 1.0, "xtc_probability": 0.5, "grammar": LETTERS},
    {"temperature": 1.0, "seed": 23, "dynatemp_range": 0.5, "grammar": LETTERS},
    {"temperature": 1.0, "seed": 24, "presence_penalty": 0.7, "dry_multiplier": 0.8, "grammar": LETTERS},
    {"temperature": 1.0, "seed": 25, "logit_bias": {300: 5.0}, "json_schema": '{"type": "integer"}'},
]
FREE = [i for i, case in enumerate(CASES) if not case.keys() & {"grammar", "json_schema"}]
"""Cases that need no vocabulary."""


class NoVocabulary:
    address = 0


def target_of(folder: Path, name: str) -> Path:
    """A tiny target of a type, quantized by libllama."""
    source, path = folder / "F16.gguf", folder / f"{name}.gguf"
    if not source.exists():
        tiny.write_target(source, type="F16", **SIZES)
    if TYPES[name] is not None:
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype, params.nthread = TYPES[name], 1
        if llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), params) != 0:
            raise ValueError(name)
    return path


def texts(target: Path, draft: Path | None, **options: Any) -> tuple[list[tuple[int, ...]], int, int]:
    """All cases in one session, each prompt beginning like the one before: (ids, accepted tokens, widest pass)."""
    found, accepted = [], 0
    prompt = np.random.default_rng(4).integers(6, 500, 110).tolist()
    with Session(target, draft, **OPTIONS | options) as session:
        for i, case in enumerate(CASES):
            reply = answer(session, prompt[: 60 + (37 * i) % 50], N_PREDICT, case)
            found.append(reply.ids)
            accepted += reply.stats.draft_n_accepted
        return found, accepted, session.widths.verify


class Beside:
    """A drafter in Python beside a real target."""

    n_ctx = 1 << 20
    n_batch = 16
    n_features = 3 * SIZES["hidden"]

    def __init__(self, expected: list[int], counts: list[int], n_max: int) -> None:
        self.propose, self.n, self.n_max = agreeing_with(expected, counts), 0, n_max

    def inject(self, features, pos):
        self.n = pos + len(features)

    def draft(self, last, pos, n):
        return self.propose(pos, n)

    def rewind(self, pos):
        self.n = min(self.n, pos)
        return self.n


def accepted_of_every_length(path: Path, expected: list[tuple[int, ...]], depths: range) -> list[str]:
    """The cases without grammar again, with drafts of which so many are right: what differs."""
    model = Model(path, placement=Placement(use_extra_bufts=False))
    context = ModelContext(model, ContextSizes(256, 48, 8, 1, "on", type_v=V_TYPE))
    core = _core.LlamaTarget(context.address, 256, [1, 2, 3], 8)
    prompt, wrong = np.random.default_rng(4).integers(6, 500, 110).tolist(), []
    for n_max in depths:
        for i in FREE:
            ids = prompt[: 60 + (37 * i) % 50]
            drafter = Beside(ids + list(expected[i]), [n_max, 0, n_max // 2, 1], n_max)
            loop = _core.Loop(core, _core.ScriptedDrafter(drafter), n_max)
            sampler = Sampling(**{"seed": 0, **CASES[i]}).sampler(NoVocabulary(), 512, 256, ids)
            generation = Generation(loop, lambda token: token in (1, 2), N_PREDICT, sampler=sampler, piece=40)
            found = [token for step in generation.rounds(ids) for token in step.tokens]
            if found != [token for token in expected[i] if token not in (1, 2)]:
                wrong.append(f"depth {n_max}, {CASES[i]}")
            if loop.stats.draft_n_accepted == 0:
                wrong.append(f"depth {n_max}: nothing accepted")
    context.close()
    model.close()
    return wrong


def outcome(folder: Path, name: str, draft: Path, others: list[dict[str, Any]]) -> dict[str, Any]:
    path = target_of(folder, name)
    try:
        plain, _, _ = texts(path, None)
        drafted, accepted, verify = texts(path, draft)
    except SessionError as error:
        return {"type": name, "refused": str(error)}
    different = [str(case) for case, a, b in zip(CASES, plain, drafted, strict=True) if a != b]
    for options in others:
        again, _, _ = texts(path, draft, **options)
        different += [f"{options}: {case}" for case, a, b in zip(CASES, plain, again, strict=True) if a != b]
    different += accepted_of_every_length(path, plain, range(1, verify))
    n_texts = len(set(plain))
    return {"type": name, "verify": verify, "different": different, "accepted": accepted, "texts": n_texts}


def far_outcome(folder: Path, draft: Path) -> dict[str, Any]:
    """Prompts that end before and behind 256 tokens, on two threads."""
    prompt = np.random.default_rng(4).integers(6, 500, 300).tolist()
    unfiltered = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    found = []
    for drafter in (None, draft):
        with Session(target_of(folder, "Q8_0"), drafter, **OPTIONS | {"n_ctx": 1024, "n_threads": 2}) as session:
            asked = [(length, seed) for length in (250, 300) for seed in (1, 2)]
            found.append([answer(session, prompt[:n], 12, unfiltered | {"seed": seed}).ids for n, seed in asked])
            verify = session.widths.verify
    different = [case for case, a, b in zip(asked, *found, strict=True) if a != b]
    return {"type": "far", "verify": verify, "different": different, "texts": len(set(found[0]))}


def main() -> None:
    folder = Path(sys.argv[1])
    draft = tiny.write_drafter(folder / "draft.gguf", **SIZES)
    for name in TYPES:
        sys.stdout.write(json.dumps(outcome(folder, name, draft, SESSIONS.get(name, []))) + "\n")
    sys.stdout.write(json.dumps(far_outcome(folder, draft)) + "\n")


if __name__ == "__main__":
    main()
