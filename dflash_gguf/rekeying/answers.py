"""What a file may leave out, and the flags by which the user says it: one row a value.

Comes in: nothing. Goes out: `Answers`, and the table from which the command line and the refusals are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dflash_gguf.contract.hparams import BLOCK, LENGTH
from dflash_gguf.contract.reader import COUNT, FINITE, I32_MAX, POSITIVE, Bounds
from dflash_gguf.convert import overrides
from dflash_gguf.errors import DflashError
from dflash_gguf.facts import DFLASH2, DSPARK, LAYERS_LIMIT, TOKEN_LIMIT
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.rekeying.forks import Taps

ALL: Final = "all"
TOKEN_IDS: Final = Bounds(0, TOKEN_LIMIT - 1)
TARGET_LAYERS: Final = Bounds(-1, I32_MAX - 1)
"""One is added to each; -1 is the embeddings."""
OWN_LAYERS: Final = Bounds(0, LAYERS_LIMIT - 1)


@dataclass(frozen=True, slots=True)
class Answers:
    """Values that win over the file's; None leaves the matter to the file.

    ``target_layers`` number the layers whose outputs are read, from 0, as a checkpoint's ``target_layer_ids`` do;
    ``sliding_layers`` are the drafter's own layers that see only the window, from 0. ``taps`` says how the file's
    own list is meant.
    """

    block_size: int | None = None
    mask_token_id: int | None = None
    target_layers: tuple[int, ...] | None = None
    taps: Taps | None = None
    sliding_layers: tuple[int, ...] | Literal["all"] | None = None
    causal: bool | None = None
    sample_from_anchor: bool | None = None
    selector_top_k: int | None = None
    context_length: int | None = None
    rms_eps: float | None = None
    rope_theta: float | None = None
    embedding_scale: float | None = None


NOTHING: Final = Answers()


@dataclass(frozen=True, slots=True)
class Sight:
    """What decides whether a value is needed: the drafter's kind, its window, whether its layers are DeepSeek-V4's."""

    kind: str
    windowed: bool
    stages: bool


@dataclass(frozen=True, slots=True)
class Question:
    """One value: its attribute in `Answers`, its key, its flag as it is typed, and when it cannot be done without.

    ``allowed`` bounds the number, or each number; ``only``: drafters of other kinds have no such value.
    """

    attribute: str
    key: str
    usage: str
    help: str
    kind: type | Literal["layers", "taps"]
    needed: Callable[[Sight], bool]
    allowed: Bounds | None = None
    only: str = ""


_USAGE: Final = {row.attribute: row.usage for row in overrides.TABLE}


def _always(_sight: Sight) -> bool:
    return True


def _never(_sight: Sight) -> bool:
    return False


TAPS: Final = Question(
    "taps",
    Keys.TARGET_LAYERS,
    "--taps",
    "How the file numbers its target layers: `raw` as a checkpoint does, `shifted` as llama.cpp does.",
    "taps",
    _never,
)

QUESTIONS: Final = (
    Question("block_size", Keys.BLOCK_SIZE, _USAGE["block_size"], "Rows of a block.", int, _always, BLOCK),
    Question(
        "mask_token_id", Keys.MASK_TOKEN_ID, _USAGE["mask_token_id"], "Id of the mask token.", int, _always, TOKEN_IDS
    ),
    Question(
        "target_layers",
        Keys.TARGET_LAYERS,
        _USAGE["target_layers"],
        "Target layers whose outputs the drafter reads, as in a checkpoint's `target_layer_ids`: 1,9,17.",
        tuple,
        _always,
        TARGET_LAYERS,
    ),
    TAPS,
    Question(
        "sliding_layers",
        Keys.SLIDING_WINDOW_PATTERN,
        "--sliding-layers",
        "Layers of the drafter that see only its window: `all`, or 0,1,2,3.",
        "layers",
        lambda sight: sight.windowed and not sight.stages,
        OWN_LAYERS,
    ),
    Question(
        "causal",
        Keys.CAUSAL,
        _USAGE["causal"],
        "Whether a block's rows see only the rows before them; default: no, as llama.cpp assumes.",
        bool,
        _never,
    ),
    Question(
        "sample_from_anchor",
        Keys.SAMPLE_FROM_ANCHOR,
        _USAGE["sample_from_anchor"],
        "Whether the anchor's own row is DSpark's first proposal.",
        bool,
        lambda sight: sight.kind == DSPARK,
        only=DSPARK,
    ),
    Question(
        "selector_top_k",
        Keys.SELECTOR_TOP_K,
        "--selector-top-k",
        "Candidates that DFlash 2's selector keeps for each row.",
        int,
        lambda sight: sight.kind == DFLASH2,
        LENGTH,
        only=DFLASH2,
    ),
    Question("context_length", Keys.CONTEXT_LENGTH, "--context-length", "Longest context.", int, _always, COUNT),
    Question("rms_eps", Keys.RMS_EPS, "--rms-eps", "Epsilon of the norms.", float, _always, POSITIVE),
    Question(
        "rope_theta",
        Keys.ROPE_FREQ_BASE,
        _USAGE["rope_theta"],
        "Base of the rotary positions.",
        float,
        _always,
        POSITIVE,
    ),
    Question(
        "embedding_scale",
        Keys.EMBEDDING_SCALE,
        _USAGE["embedding_scale"],
        "Factor of the token embeddings; default: the root of the hidden size for Gemma targets, or none.",
        float,
        _never,
        FINITE,
    ),
)


def check_answers(answers: Answers) -> None:
    """Raise `DflashError` on the first value that no drafter can have, whatever its file says."""
    for question in QUESTIONS:
        value = getattr(answers, question.attribute)
        if value is None or question.allowed is None or value == ALL:
            continue
        numbers = value if isinstance(value, tuple) else (value,)
        wrong = next((n for n in numbers if not question.allowed.least <= n <= question.allowed.most), None)
        if wrong is not None:
            raise DflashError(f"`{question.usage}`", value=wrong, expected=str(question.allowed))
        if not numbers or len(numbers) > LAYERS_LIMIT:
            raise DflashError(f"`{question.usage}`: layers", value=len(numbers), expected=f"1 to {LAYERS_LIMIT}")
        if len(set(numbers)) != len(numbers):
            raise DflashError(f"`{question.usage}`", value=",".join(map(str, numbers)), expected="each layer once")


def check_kind(file: str, kind: str, answers: Answers) -> None:
    """Raise `DflashError` on a value that drafters of this kind do not have."""
    for question in QUESTIONS:
        if question.only not in ("", kind) and getattr(answers, question.attribute) is not None:
            what = f"`{question.usage}` is for drafters of the kind {question.only}, and `{file}` is not one"
            raise DflashError(what, value=kind, remedy=f"leave `{question.usage}` out")
