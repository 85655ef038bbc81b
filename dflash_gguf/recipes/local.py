"""Engines for one user: llama.cpp's server, ollama, oMLX.

Comes in: nothing. Goes out: rows of the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dflash_gguf.facts import DFLASH2, spec_type
from dflash_gguf.modelfile.versions import DFLASH2_BUILD, LAST_WITHOUT_DFLASH2, MIN_OLLAMA, MLX_PULL_REQUEST
from dflash_gguf.recipes.models import CHECKPOINT, GGUF
from dflash_gguf.recipes.parts import (
    Case,
    Constraint,
    Engine,
    Row,
    Setting,
    Step,
    drafted_depth,
    flag,
    mlx_depth,
    words,
)
from dflash_gguf.recipes.shared import (
    ALONE,
    ANCHOR,
    CONVERT,
    DFLASHES,
    DOWNLOAD_DRAFTER,
    DOWNLOAD_TARGET,
    EFFORT,
    EVERY,
    GAIN,
    MASK,
    MATCH,
    NO_GGUF_DRAFTER,
    NO_GGUF_TARGET,
    NO_MASK,
    checkpoint_of_drafter,
    converted,
    local_drafter,
    local_target,
)

CHECKED: Final = "2026-11-30"
MODELS: Final = "models"
"""Folder that oMLX's models are downloaded to."""
UNPAIRED: Final = "DRAFTER_GGUF"
UNKNOWN: Final = "TARGET_GGUF"
"""Both stand for files that this program was not given: a launch line that holds one fails at once."""


def _llama_target(case: Case) -> tuple[str, str]:
    place = case.target.place
    if place.form == CHECKPOINT:
        return "-m", UNKNOWN
    return ("-hf", place.word) if place.hub is not None else ("-m", place.path)


def _llama_drafter(case: Case) -> tuple[str, str]:
    place = case.drafter.place
    if case.converts:
        return "-md", converted(case)
    if place.hub is None:
        return "-md", place.path
    return ("-md", UNPAIRED) if _unpaired(case) else ("-hfd", place.word)


def _spec_type(case: Case) -> str:
    return spec_type(case.drafter.kind, anchor_first=case.drafter.anchor_first)


def _unpaired(case: Case) -> bool:
    """llama-server looks at ``-hfd`` only beside ``-hf``."""
    drafter, target = case.drafter.place, case.target.place
    return not case.converts and drafter.hub is not None and (target.hub is None or target.form == CHECKPOINT)


LLAMA_SERVER: Final = Engine(
    name="llama-server",
    title="llama.cpp",
    kinds=EVERY,
    depth=drafted_depth("--spec-draft-n-max"),
    install=(
        Step(
            "fetch llama.cpp",
            rows=(
                Row(words("git", "clone")),
                Row(
                    words("https://github.com/ggml-org/llama.cpp.git"),
                    f"DFlash 2 needs build {DFLASH2_BUILD} or later (2026-08-27)",
                ),
            ),
        ),
        Step(
            "configure it",
            rows=(
                Row(words("cmake", "-S", "llama.cpp", "-B", "llama.cpp/build", "-DCMAKE_BUILD_TYPE=Release")),
                Row(words("-DGGML_CUDA=ON"), "for NVIDIA; -DGGML_METAL=ON on Apple Silicon, neither for a CPU"),
            ),
        ),
        Step("build it", rows=(Row(words("cmake", "--build", "llama.cpp/build", "-j", "--target", "llama-server")),)),
    ),
    steps=(
        CONVERT,
        Step(DOWNLOAD_DRAFTER.title, DOWNLOAD_DRAFTER.rows, when=_unpaired),
        Step(
            "launch",
            rows=(
                Row(words("llama.cpp/build/bin/llama-server")),
                Row(_llama_target),
                Row(_llama_drafter),
                Row(
                    flag("--spec-type", _spec_type),
                    "said always: a drafter whose file name does not hold `dflash-` is loaded and never asked "
                    "otherwise",
                ),
                Row(
                    flag("--spec-draft-n-max", lambda case: case.drafted),
                    "the tokens that a block proposes (block size - 1 for DFlash): the default is 3",
                ),
                Row(words("--parallel", "1"), "one request at a time: with a drafter more do not scale"),
                Row(
                    words("--split-mode", "layer"),
                    "by layers over {gpus} GPUs: splitting tensors aborts with DFlash 2 and DSpark drafters",
                    lambda case: case.gpus > 1,
                ),
            ),
        ),
    ),
    constraints=(
        MATCH,
        NO_MASK,
        ALONE,
        Constraint(
            "llama-server takes `-hfd` only beside `-hf`: put the downloaded file in the place of " + UNPAIRED,
            when=_unpaired,
        ),
        Constraint(
            f"llama-server takes a GGUF target: put its file in the place of {UNKNOWN}, or name a repository such as "
            "ggml-org/Qwen3.8-27B-GGUF:Q4_K_M",
            when=lambda case: case.target.place.form == CHECKPOINT,
        ),
    ),
    notes=(GAIN, EFFORT, MASK),
    source=(
        "ggml-org/llama.cpp common/arg.cpp, common/speculative.cpp and common/download.cpp (0.5.0)",
        "https://github.com/ggml-org/llama.cpp/pull/27816",
    ),
    checked=CHECKED,
    dflash2=f"since build {DFLASH2_BUILD}, 2026-08-27",
)


def _of_files(case: Case) -> bool:
    return case.target.place.form == GGUF


def _of_folders(case: Case) -> bool:
    return case.target.place.form == CHECKPOINT


def _model(case: Case) -> str:
    stem = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in case.target.place.name
    )
    return f"{stem.lower().strip('-._') or 'target'}-dflash"


def _program(case: Case) -> str:
    """ollama, or the one that was built."""
    return "./ollama" if _of_folders(case) else "ollama"


def _quantize(case: Case) -> tuple[str, str]:
    return "--draft-quantize", f"int{case.mlx_bits}"


def _quantizes(case: Case) -> bool:
    return _of_folders(case) and case.mlx_bits is not None


def _modelfile_target(case: Case) -> tuple[str, str]:
    """A repository of GGUF files holds several: which one is meant, `modelfile` finds out."""
    place = case.target.place
    return ("-hf", place.word) if place.hub is not None and place.form == GGUF else ("-m", local_target(case))


def _modelfile_drafter(case: Case) -> tuple[str, str]:
    place = case.drafter.place
    if _of_folders(case):
        return "-md", local_drafter(case)
    if case.converts:
        return "-md", converted(case)
    return ("-hfd", place.word) if place.hub is not None else ("-md", place.path)


THINK: Final = Constraint(
    'thinking is set with `ollama run --think high` (or medium, low), or with "think" of a request: more of it makes '
    "text that is easier to draft",
    when=lambda case: bool(case.family.effort),
)

_QUANTIZE: Final = Row(_quantize, "ollama quantizes the drafter as it imports it", _quantizes)

OLLAMA: Final = Engine(
    name="ollama",
    title="ollama",
    kinds=DFLASHES,
    depth=drafted_depth("draft_num_predict"),
    install=(
        Step(
            "install",
            rows=(
                Row(
                    words("sh", "-c", "curl -fsSL https://ollama.com/install.sh | sh"),
                    f"DFlash needs {MIN_OLLAMA} or newer; on macOS: brew install ollama",
                ),
            ),
            when=_of_files,
        ),
        Step(
            "fetch ollama",
            rows=(Row(words("git", "clone", "https://github.com/ollama/ollama.git")),),
            when=_of_folders,
        ),
        Step("enter it", rows=(Row(words("cd", "ollama")),), when=_of_folders),
        Step(
            "take the pull request",
            rows=(Row(words("git", "fetch", "origin", "pull/17865/head:dflash2"), "no release holds it yet"),),
            when=_of_folders,
        ),
        Step("switch to it", rows=(Row(words("git", "switch", "dflash2")),), when=_of_folders),
        Step("configure it", rows=(Row(words("cmake", "-B", "build", ".")),), when=_of_folders),
        Step("build it", rows=(Row(words("cmake", "--build", "build", "--parallel", "8")),), when=_of_folders),
    ),
    steps=(
        Step(
            DOWNLOAD_TARGET.title,
            DOWNLOAD_TARGET.rows,
            when=lambda case: _of_folders(case) and case.target.place.hub is not None,
        ),
        Step(
            DOWNLOAD_DRAFTER.title,
            DOWNLOAD_DRAFTER.rows,
            when=lambda case: _of_folders(case) and case.drafter.place.hub is not None,
        ),
        Step(CONVERT.title, CONVERT.rows, when=lambda case: case.converts and _of_files(case)),
        Step(
            "Modelfile",
            rows=(
                Row(words("dflash-gguf", "modelfile")),
                Row(_modelfile_target),
                Row(_modelfile_drafter),
                Row(
                    flag("--draft-num-predict", lambda case: case.drafted),
                    "the block size - 1: ollama counts drafted tokens alone, and drafts 4 unless told",
                ),
                _QUANTIZE,
                Row(words("-o", "Modelfile")),
            ),
        ),
        Step(
            "create",
            rows=(
                Row(lambda case: (_program(case), "create")),
                Row(lambda case: (_model(case), "-f", "Modelfile")),
                Row(words("--experimental"), "for models of safetensors", _of_folders),
                _QUANTIZE,
            ),
        ),
        Step(
            "serve, in another terminal",
            rows=(Row(words("./ollama", "serve")),),
            when=_of_folders,
        ),
        Step("launch", rows=(Row(lambda case: (_program(case), "run")), Row(lambda case: (_model(case),)))),
    ),
    constraints=(
        MATCH,
        NO_MASK,
        ANCHOR,
        ALONE,
        Constraint(
            f"DFlash 2 in a GGUF needs an ollama newer than {LAST_WITHOUT_DFLASH2}",
            when=lambda case: case.drafter.kind == DFLASH2 and _of_files(case),
        ),
        Constraint(
            f"beside safetensors, DFlash 2 and Qwen targets need an ollama that holds {MLX_PULL_REQUEST}",
            when=_of_folders,
        ),
        Constraint(
            "the target is of safetensors and the drafter a GGUF: ollama takes two files of one kind",
            when=lambda case: _of_folders(case) and not case.converts,
            fatal=True,
            remedy="name the target's GGUF, or the drafter's safetensors",
        ),
    ),
    notes=(GAIN, THINK, MASK),
    source=(
        "ollama/ollama parser/parser.go, server/create.go and llm/llama_server.go (v0.33.0-rc2)",
        MLX_PULL_REQUEST,
    ),
    checked=CHECKED,
    dflash2=f"later than {LAST_WITHOUT_DFLASH2}; beside safetensors by pull request 17865",
)


def _models_folder(case: Case) -> str:
    place = case.target.place
    return MODELS if place.hub is not None else str(Path(place.path).parent)


OMLX: Final = Engine(
    name="omlx",
    title="oMLX",
    kinds=DFLASHES,
    depth=mlx_depth("dflash_block_size"),
    install=(
        Step(
            "install",
            rows=(
                Row(words("open")),
                Row(
                    words("https://github.com/jundot/omlx/releases"),
                    "DFlash 2 is in v0.6.3rc1 and newer; 0.6.2 lacks it",
                ),
            ),
        ),
    ),
    steps=(
        Step(
            "download the target",
            rows=(
                Row(words("hf", "download")),
                Row(lambda case: (case.target.place.repo,)),
                Row(flag("--local-dir", lambda case: f"{MODELS}/{case.target.place.name}")),
            ),
            when=lambda case: case.target.place.hub is not None,
        ),
        Step(
            "merge into ~/.omlx/model_settings.json",
            form="json",
            path="~/.omlx/model_settings.json",
            settings=(
                Setting(
                    "dflash_enabled", lambda _: True, "off by default; not together with mtp_enabled or vlm_mtp_enabled"
                ),
                Setting("dflash_draft_model", checkpoint_of_drafter, "a repository or a folder of safetensors"),
                Setting(
                    "dflash_block_size",
                    lambda case: case.mlx_block,
                    "the block size: oMLX counts the token before the drafted ones too; quantized, MLX is best up to 5",
                ),
                Setting("dflash_verify_mode", lambda _: "dflash", "one block a pass"),
                Setting(
                    "dflash_draft_quant_enabled",
                    lambda _: True,
                    "the drafter is quantized as it is loaded",
                    lambda case: case.mlx_bits is not None,
                ),
                Setting(
                    "dflash_draft_quant_weight_bits",
                    lambda case: case.mlx_bits,
                    "the bits of its weights",
                    lambda case: case.mlx_bits is not None,
                ),
            ),
            wrap=lambda case, settings: {"version": 1, "models": {case.target.place.name: settings}},
        ),
        Step("launch", rows=(Row(words("omlx", "serve")), Row(flag("--model-dir", _models_folder)))),
    ),
    constraints=(
        MATCH,
        NO_GGUF_DRAFTER,
        NO_GGUF_TARGET,
        NO_MASK,
        ANCHOR,
        ALONE,
        Constraint("when DFlash cannot start, oMLX decodes without it and says so only in its log"),
    ),
    notes=(
        GAIN,
        EFFORT,
        MASK,
        Constraint("the settings are read when a model is loaded; the drafter's window is the checkpoint's own"),
    ),
    source=("jundot/omlx omlx/model_settings.py", "https://github.com/jundot/omlx/pull/2840"),
    checked=CHECKED,
    dflash2="since v0.6.3rc1",
)
