"""z-lab's own client, which generates and measures, and NVIDIA's trainer.

Comes in: nothing. Goes out: rows of the table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dflash_gguf.facts import DFLASH, DFLASH2
from dflash_gguf.recipes.parts import (
    Case,
    Constraint,
    Depth,
    Engine,
    Row,
    Step,
    always,
    block_depth,
    flag,
    mlx_depth,
    words,
)
from dflash_gguf.recipes.shared import (
    ANCHOR,
    CROWDED,
    DFLASHES,
    EFFORT,
    GAIN,
    MASK,
    MATCH,
    NO_GGUF_DRAFTER,
    NO_GGUF_TARGET,
    NO_MASK,
    SHRINKS,
    checkpoint_of_drafter,
    checkpoint_of_target,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.recipes.parts import When

CHECKED: Final = "2026-11-30"
SERVER: Final = "http://127.0.0.1:8000"
PROMPT: Final = "How many positive whole-number divisors does 196 have?"
DATASET: Final = "gsm8k"
SAMPLES: Final = "128"

_MODEL: Final = Row(flag("--model", checkpoint_of_target))
_DRAFT: Final = Row(flag("--draft", checkpoint_of_drafter), "safetensors, not a GGUF")
_EFFORT: Final = Row(
    flag("--reasoning", lambda case: case.family.default),
    "how much to think; more of it makes text that is easier to draft",
    lambda case: bool(case.family.effort),
)
_SAMPLING: Final = Row(
    lambda case: tuple(word for pair in case.family.sampling for word in pair),
    "as the target's authors advise; without them the client decodes greedily",
    lambda case: bool(case.family.sampling),
)
_MLX_BLOCK: Final = Row(
    flag("--block-size", lambda case: case.mlx_block),
    "the block size: the client counts the token before the drafted ones too; quantized, MLX is best at 5 or fewer",
)
_MLX_BITS: Final = Row(
    flag("--draft-bits", lambda case: case.mlx_bits),
    "the drafter is quantized as it is loaded",
    lambda case: case.mlx_bits is not None,
)
_BLOCK: Final = Row(
    flag("--block-size", lambda case: case.block),
    "the block size: the client counts the token before the drafted ones too",
)
_DATASET: Final = Row(words("--dataset", DATASET), "or math500, humaneval, mbpp, mt-bench")
_SERVER: Final = Row(
    words("--base-url", SERVER), "where the engine serves: SGLang's port is 30000 unless told, vLLM's 8000"
)


MLX: Final = {DFLASH2: r"qwen-?3\.8-27b", DFLASH: r"qwen-?3(\.[56])?(?![.\d])|gemma-?4"}
TRANSFORMERS: Final = {DFLASH2: r"muse-glimmer-30b", DFLASH: r"qwen-?3(?![.\d])|llama-?3\.1-8b"}
"""Kind of drafter -> names of the targets for which these backends take one."""
FAMILIES: Final = r"qwen|muse|gemma|llama|mistral|gpt-?oss|kimi|glm|deepseek|mimo|minimax|nemotron"
"""A name that holds none of these does not tell what the target is."""


def _takes(targets: Mapping[str, str]) -> When:
    """Whether a backend takes the drafter, as far as the target's name tells."""

    def when(case: Case) -> bool:
        name = case.target.label.lower()
        return not re.search(FAMILIES, name) or bool(re.search(targets[case.drafter.kind], name))

    return when


def _block_size(case: Case) -> int:
    return case.mlx_block if _takes(MLX)(case) else case.block


def _backend(
    name: str, generating: tuple[Row, ...], measuring: tuple[Row, ...], when: When = always
) -> tuple[Step, Step]:
    """How one backend answers a question, and how it is measured."""
    return (
        Step(
            f"generate, {name}",
            rows=(Row(words("dflash", "generate", name)), *generating, _EFFORT, _SAMPLING, Row(words(PROMPT))),
            when=when,
        ),
        Step(
            f"benchmark, {name}",
            rows=(Row(words("dflash", "benchmark", name)), *generating, _DATASET, *measuring, _EFFORT, _SAMPLING),
            when=when,
        ),
    )


_SAMPLES: Final = Row(words("--max-samples", SAMPLES), "of the data set")

CLIENT: Final = Engine(
    name="dflash-client",
    title="z-lab's dflash",
    kinds=DFLASHES,
    depth=Depth("--block-size", mlx_depth("").counting, _block_size),
    install=(
        Step(
            "install",
            rows=(
                Row(words("pip", "install")),
                Row(words("dflash[local]"), "Python 3.10 or newer; `dflash` alone does for a server"),
            ),
        ),
    ),
    steps=(
        *_backend(
            "openai",
            (_SERVER, _MODEL),
            (
                Row(words("--num-prompts", SAMPLES), "requests in all"),
                Row(flag("--concurrency", lambda case: case.requests), "requests at once"),
            ),
        ),
        *_backend("mlx", (_MODEL, _DRAFT, _MLX_BITS, _MLX_BLOCK), (_SAMPLES,), _takes(MLX)),
        *_backend("transformers", (_MODEL, _DRAFT, _BLOCK), (_SAMPLES,), _takes(TRANSFORMERS)),
    ),
    constraints=(MATCH, NO_GGUF_DRAFTER, NO_GGUF_TARGET, NO_MASK, ANCHOR, CROWDED, SHRINKS),
    notes=(
        GAIN,
        MASK,
        Constraint("openai: the drafter is the server's; mlx: Apple Silicon; transformers: Linux and CUDA"),
        Constraint("a backend that takes no such drafter for a target of this name is left out"),
        Constraint("mlx takes DFlash 2 for Qwen3.8-27B, and DFlash for Qwen3, Qwen3.5, Qwen3.6 and Gemma 4"),
        Constraint("transformers takes DFlash 2 for Muse-Glimmer-30B, and DFlash for Qwen3 and LLaMA-3.1-8B"),
    ),
    source=("dflash 0.1.0 on PyPI: dflash/cli.py, dflash/benchmark.py and its README",),
    checked=CHECKED,
    dflash2="yes",
)

GAMMAS: Final = {16: "7.0", 10: "5.0", 8: "4.0"}
"""Block size -> the decay of the loss over its positions (the papers' values)."""


def _override(name: str, value: object) -> tuple[str]:
    return (f"--recipe_args.{name}={value}",)


def _named(case: Case) -> str:
    return "dflash2" if case.drafter.kind == DFLASH2 else "dflash"


NEMO: Final = Engine(
    name="nemo",
    title="NeMo AutoModel (training)",
    kinds=DFLASHES,
    depth=Depth("block_size", block_depth("").counting, lambda case: case.block),
    install=(
        Step(
            "fetch NeMo AutoModel", rows=(Row(words("git", "clone", "https://github.com/NVIDIA-NeMo/Automodel.git")),)
        ),
        Step("enter it", rows=(Row(words("cd", "Automodel"), "the example's settings are in the repository"),)),
        Step("install", rows=(Row(words("pip", "install", "-e", ".")),)),
    ),
    steps=(
        Step(
            "train",
            rows=(
                Row(words("torchrun", "--standalone")),
                Row(lambda case: (f"--nproc_per_node={case.gpus}",), "one process a GPU"),
                Row(lambda case: ("-m", f"nemo_automodel.recipes.llm.train_{_named(case)}")),
                Row(lambda case: ("-c", f"examples/speculative/dflash/qwen3_{_named(case)}.yaml")),
                Row(lambda case: _override("target_model_name_or_path", checkpoint_of_target(case))),
                Row(
                    lambda _: _override("train_data_path", "regenerated.jsonl"),
                    "chats whose answers the target itself wrote: training forces them, so others mislead the drafter",
                ),
                Row(lambda case: _override("block_size", case.block), "as the drafter that you gave"),
                Row(
                    lambda case: _override("mask_token_id", case.drafter.mask_token_id),
                    "a reserved, rarely used token, the same as when it runs; never the padding token, which is often "
                    "the end token: acceptance erodes quietly",
                    lambda case: case.drafter.mask_token_id is not None,
                ),
                Row(
                    lambda case: _override("loss_decay_gamma", GAMMAS[case.block]),
                    "the papers' decay for this block size",
                    lambda case: case.block in GAMMAS,
                ),
                Row(lambda _: _override("output_dir", "drafter")),
                Row(lambda _: ("--checkpoint.checkpoint_dir=drafter/checkpoints",)),
            ),
        ),
    ),
    constraints=(
        Constraint("NeMo trains a drafter from nothing: the one that you gave lends its block and its mask token"),
        NO_GGUF_TARGET,
        NO_MASK,
        Constraint(
            "NeMo's DFlash recipes know targets of the families Qwen3, Qwen3.5 and Qwen3.8",
            when=lambda case: not case.family.trained,
        ),
        Constraint(
            "block size {block} has no published loss_decay_gamma: the example's is for 16",
            when=lambda case: case.block not in GAMMAS,
        ),
    ),
    notes=(Constraint("watch train/accept_len, not the loss alone"), EFFORT),
    source=(
        "NVIDIA-NeMo/Automodel examples/speculative/README.md, nemo_automodel/recipes/llm/train_dflash2.py",
        "https://github.com/NVIDIA-NeMo/Automodel/pull/2913",
    ),
    checked=CHECKED,
    dflash2="yes",
)
