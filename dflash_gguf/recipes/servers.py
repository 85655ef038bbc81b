"""Engines that serve many: SGLang, vLLM, TensorRT-LLM.

Comes in: nothing. Goes out: rows of the table.
"""

from __future__ import annotations

import json
from typing import Final

from dflash_gguf.facts import DFLASH2
from dflash_gguf.recipes.parts import (
    Case,
    Constraint,
    Engine,
    Row,
    Setting,
    Step,
    block_depth,
    drafted_depth,
    flag,
    words,
)
from dflash_gguf.recipes.shared import (
    DFLASHES,
    NOTES,
    SERVED,
    checkpoint_of_drafter,
    checkpoint_of_target,
)

CHECKED: Final = "2026-11-30"
TRTLLM_FILE: Final = "trtllm-dflash.yaml"


def _several(case: Case) -> bool:
    return case.gpus > 1


def _crowd(case: Case) -> bool:
    return case.concurrency is not None


def _large(case: Case) -> bool:
    return case.large


SGLANG: Final = Engine(
    name="sglang",
    title="SGLang",
    kinds=DFLASHES,
    depth=block_depth("--speculative-num-draft-tokens"),
    install=(
        Step(
            "install",
            rows=(
                Row(words("pip", "install")),
                Row(
                    words("sglang[all] @ git+https://github.com/sgl-project/sglang.git#subdirectory=python"),
                    "the main branch; any release made after pull request 35371 (2026-08-18) has DFlash 2",
                ),
            ),
        ),
    ),
    steps=(
        Step(
            "launch",
            exports=(
                Setting(
                    "SGLANG_ENABLE_OVERLAP_PLAN_STREAM",
                    lambda _: "1",
                    "plans the next pass beside the running one: over 33% more throughput at 32 requests",
                    lambda case: case.large or case.requests > 1,
                ),
            ),
            rows=(
                Row(words("python", "-m", "sglang.launch_server")),
                Row(flag("--model-path", checkpoint_of_target)),
                Row(words("--trust-remote-code"), "as Qwen3.5-397B-A17B was launched", _large),
                Row(words("--speculative-algorithm", "DFLASH"), "DFlash and DFlash 2 alike: the config tells which"),
                Row(flag("--speculative-draft-model-path", checkpoint_of_drafter), "safetensors, not a GGUF"),
                Row(
                    flag("--speculative-num-draft-tokens", lambda case: case.block),
                    "the block size: SGLang counts the token before the drafted ones too",
                ),
                Row(
                    flag("--speculative-draft-window-size", lambda case: case.drafter.window),
                    "the drafter's sliding window, so that its cache holds no more",
                    lambda case: (case.drafter.window or 0) >= case.block,
                ),
                Row(
                    words("--speculative-draft-attention-backend", "fa4"),
                    "rows of a block see each other, which not every backend can; where fa4 does not run (it wants "
                    "Hopper or Blackwell): flashinfer or triton",
                    lambda case: not case.drafter.causal,
                ),
                Row(words("--attention-backend", "trtllm_mha"), "the target's, on Blackwell", _large),
                Row(flag("--tp-size", lambda case: case.gpus), "the target over {gpus} GPUs", _several),
                Row(
                    flag("--max-running-requests", lambda case: case.concurrency),
                    "requests at once; with a drafter SGLang takes 48 unless told",
                    _crowd,
                ),
                Row(
                    flag("--cuda-graph-max-bs-decode", lambda case: case.concurrency),
                    "graphs for no larger batch than there are requests",
                    _crowd,
                ),
                Row(words("--mem-fraction-static", "0.8"), "room for the drafter beside a large target", _large),
            ),
        ),
    ),
    constraints=SERVED,
    notes=NOTES,
    source=(
        "sgl-project/sglang python/sglang/srt/server_args.py and arg_groups/speculative_hook.py",
        "https://github.com/sgl-project/sglang/pull/35371",
        "https://huggingface.co/z-lab/Qwen3.5-397B-A17B-DFlash",
    ),
    checked=CHECKED,
    dflash2="since pull request 35371, 2026-08-18",
)


def _speculative_config(case: Case) -> str:
    values = {"method": "dflash", "model": checkpoint_of_drafter(case), "num_speculative_tokens": case.drafted}
    return json.dumps(values, ensure_ascii=False)


VLLM: Final = Engine(
    name="vllm",
    title="vLLM",
    kinds=DFLASHES,
    depth=drafted_depth("num_speculative_tokens"),
    install=(
        Step(
            "install",
            rows=(
                Row(words("pip", "install", "-U")),
                Row(words("vllm>=0.20"), "the first releases with DFlash"),
            ),
            when=lambda case: case.drafter.kind != DFLASH2,
        ),
        Step(
            "install",
            rows=(
                Row(words("pip", "install", "-U")),
                Row(
                    words("vllm @ git+https://github.com/vllm-project/vllm.git"),
                    "the main branch; any release made after pull request 52816 has DFlash 2",
                ),
            ),
            when=lambda case: case.drafter.kind == DFLASH2,
        ),
    ),
    steps=(
        Step(
            "launch",
            rows=(
                Row(words("vllm", "serve")),
                Row(lambda case: (checkpoint_of_target(case),)),
                Row(
                    flag("--speculative-config", _speculative_config),
                    "num_speculative_tokens is the block size - 1: vLLM counts drafted tokens alone; "
                    "the drafter's attention is not causal: if the backend that vLLM picks refuses it, add "
                    '"attention_backend": "flash_attn"',
                ),
                Row(flag("--tensor-parallel-size", lambda case: case.gpus), "the target over {gpus} GPUs", _several),
                Row(flag("--max-num-seqs", lambda case: case.concurrency), "requests at once", _crowd),
            ),
        ),
    ),
    constraints=SERVED,
    notes=NOTES,
    source=(
        "vllm-project/vllm vllm/config/speculative.py",
        "https://github.com/vllm-project/vllm/pull/52816",
    ),
    checked=CHECKED,
    dflash2="since pull request 52816",
)

TRTLLM: Final = Engine(
    name="trtllm",
    title="TensorRT-LLM",
    kinds=DFLASHES,
    depth=drafted_depth("max_draft_len"),
    install=(
        Step(
            "install",
            rows=(
                Row(words("pip", "install", "--pre")),
                Row(words("tensorrt_llm"), "DFlash is documented for 1.4.0rc1; NVIDIA's container has it too"),
            ),
        ),
    ),
    steps=(
        Step(
            "settings",
            form="yaml",
            path=TRTLLM_FILE,
            settings=(
                Setting("decoding_type", lambda _: "DFlash", "the method"),
                Setting(
                    "max_draft_len",
                    lambda case: case.drafted,
                    "the block size - 1: TensorRT-LLM counts drafted tokens alone, and verifies one more",
                ),
                Setting("speculative_model", checkpoint_of_drafter, "safetensors, not a GGUF"),
            ),
            wrap=lambda _, settings: {"speculative_config": settings},
        ),
        Step(
            "launch",
            rows=(
                Row(words("trtllm-serve")),
                Row(lambda case: (checkpoint_of_target(case),)),
                Row(words("--config", TRTLLM_FILE)),
                Row(flag("--tp_size", lambda case: case.gpus), "the target over {gpus} GPUs", _several),
                Row(flag("--max_batch_size", lambda case: case.concurrency), "requests at once", _crowd),
            ),
        ),
    ),
    constraints=(
        *SERVED,
        Constraint(
            "no DFlash 2 was found in TensorRT-LLM's sources: expect a refusal, or a drafter run as DFlash; TensorRT "
            "Edge-LLM 0.11.0 lists DFlash 2, and SGLang and vLLM run it",
            when=lambda case: case.drafter.kind == DFLASH2,
        ),
    ),
    notes=(
        *NOTES,
        Constraint("the drafter's layers must share one kind of rotary positions and of key-value heads"),
    ),
    source=(
        "NVIDIA/TensorRT-LLM docs/source/features/speculative-decoding.md, tensorrt_llm/_torch/speculative/dflash.py",
        "https://nvidia.github.io/TensorRT-LLM/1.4.0rc1/llm-api/reference/DFlashDecodingConfig.html",
    ),
    checked=CHECKED,
    dflash2="not found; TensorRT Edge-LLM 0.11.0 lists it",
)
