"""Configs into the normal form: what the tests of it share."""

from __future__ import annotations

import tiny

from dflash_gguf.convert.config import Config
from dflash_gguf.convert.families import dflash2
from dflash_gguf.convert.families.dialects import dialect_of
from dflash_gguf.convert.families.rules import Seen
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.convert.spec import resolve_spec
from dflash_gguf.facts import TargetFacts

QWEN = TargetFacts("qwen3", 512, 4, 512)
SEEN = Seen(head_dim=64)
DSPARK = Seen(head_dim=64, markov_rank=32, confidence_width=544)
SLIDING = {"use_sliding_window": True, "sliding_window": 256}
MIXED = ["sliding_attention", "full_attention"]
BOTH = ["sliding_attention"] * 2


def resolve(config, family=dflash2.FAMILY, seen=SEEN, target=QWEN, **given):
    made = Config(config, Overrides(**given), family.layout.places)
    return resolve_spec(made, family, dialect_of(config)[0], seen, target)


def changed(*drop, nested=(), **values):
    """The tiny config with top-level ``values``, ``nested`` pairs in dflash_config, and keys dropped."""
    config = tiny.drafter_config() | values
    config["dflash_config"] = config["dflash_config"] | dict(nested)
    for key in drop:
        (config["dflash_config"] if key.startswith("dflash_config.") else config).pop(key.split(".")[-1])
    return config
