"""DFlash, first version: z-lab (old and new packaging), SpecForge, ModelOpt, MiMo, Nemotron, Muse, speculators.

Comes in: a specification. Goes out: its rules: those of the backbone, and nothing else.
"""

from __future__ import annotations

from typing import Final

from dflash_gguf.convert.families.backbone import backbone_rules
from dflash_gguf.convert.families.rules import Family
from dflash_gguf.facts import DFLASH

FAMILY: Final = Family(DFLASH, "DFlash", marks=(("fc.weight", "hidden_norm.weight"),), rules=backbone_rules)
