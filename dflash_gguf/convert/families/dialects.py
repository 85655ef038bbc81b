"""What authors leave unsaid in a config, as a table: one row for each line of training code.

Comes in: a config. Goes out: the dialect that it speaks. A dialect never decides a drafter's kind or tensors; it
says what an absent key means. Sources: z-lab dflash 0.1.0 model.py, SpecForge, DeepSpec, speculators, NeMo
Automodel, ModelOpt's hf_spec_export.py, transformers' Muse Glimmer assistant; llama.cpp conversion/qwen.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Dialect:
    """One row: the ``labels`` (`architectures`) and ``keys`` that tell it, and what its authors leave unsaid.

    ``causal``: of every layer, where no key says (None: sliding layers are causal, as in z-lab's code).
    ``anchor_first``: the anchor's row is the first proposal, by kind of drafter.
    ``copies_target``: the config is a copy of the target's, whose partial rotation was not trained with.
    ``windows_always``: `use_sliding_window` is not consulted.
    """

    title: str
    labels: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()
    causal: bool | None = None
    anchor_first: Mapping[str, bool] = field(default_factory=lambda: {"dspark": True})
    copies_target: bool = False
    windows_always: bool = False


ANCHOR_ALWAYS: Final = {"dspark": True, "dflash": True}

DIALECTS: Final = (
    Dialect(
        "speculators",
        labels=frozenset({"DFlashSpeculator", "DSparkSpeculator"}),
        keys=("speculators_model_type", "speculators_config", "transformer_layer_config"),
        copies_target=True,
    ),
    Dialect(
        "Muse Glimmer",
        labels=frozenset({"MuseGlimmerAssistantModel"}),
        causal=False,
        windows_always=True,
    ),
    Dialect(
        "NeMo Automodel",
        labels=frozenset({"Qwen3DFlashDraftModel", "Qwen3DFlash2DraftModel", "Qwen3DFlash2Model"}),
        causal=False,
    ),
    Dialect(
        "DeepSpec",
        labels=frozenset({"Qwen3DSparkModel", "Gemma4DSparkModel"}),
        anchor_first=ANCHOR_ALWAYS,
        copies_target=True,
    ),
    Dialect(
        "SpecForge",
        labels=frozenset({"DSparkDraftModel"}),
        causal=False,
        anchor_first=ANCHOR_ALWAYS,
        copies_target=True,
    ),
    Dialect(
        "DSpark",
        labels=frozenset({"Lfm2DSparkDraftModel", "LingDSparkModel"}),
        anchor_first=ANCHOR_ALWAYS,
        copies_target=True,
    ),
    Dialect("DeepSeek", labels=frozenset({"DeepseekV4ForCausalLM", "DeepseekV4DSparkModel"})),
    Dialect("z-lab", labels=frozenset({"DFlashDraftModel", "DFlash2DraftModel"})),
)
OTHERWISE: Final = DIALECTS[-1]


def dialect_of(config: Mapping[str, Any]) -> tuple[Dialect, tuple[str, ...]]:
    """The dialect of a config, and a note when its label is in no row."""
    label = label_of(config)
    for row in DIALECTS:
        if label in row.labels or any(config.get(key) is not None for key in row.keys):
            return row, ()
    return OTHERWISE, (f"`architectures` names no known drafter ({label or 'nothing'}): read as {OTHERWISE.title}'s",)


def label_of(config: Mapping[str, Any]) -> str:
    """The first of ``architectures``, printable, or an empty text."""
    labels = config.get("architectures")
    label = labels[0] if isinstance(labels, list) and labels else labels
    return ascii(label)[1:-1][:80] if isinstance(label, str) else ""
