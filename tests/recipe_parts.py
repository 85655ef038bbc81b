"""Recipes of published drafters, taken apart again: the words of a command, the values of a file, flags."""

from __future__ import annotations

import json
import shlex

import yaml
from published import TARGETS

import dflash_gguf as dg

QWEN38, MUSE, V1, MOE = (
    "Qwen3.8-27B-DFlash2",
    "Muse-Glimmer-30B-DFlash2",
    "Qwen3-4B-DFlash-b16",
    "Qwen3.5-397B-A17B-DFlash",
)
SMALL = {"hidden": 288, "ffn": 64, "layers": 1, "heads": 2, "kv_heads": 1, "taps": (0,), "vocab": 300}


def cook(engine, folders, name, **more):
    return dg.recipe(engine, target=more.pop("target", TARGETS[name]), draft=more.pop("draft", folders[name]), **more)


def step(recipe, title):
    """A step, once its text was taken apart again and found to be its words or values."""
    (found,) = [each for each in recipe.steps if each.title == title]
    assert found.text.rstrip("\n") in recipe.text
    if found.form == "shell":
        lines = found.text.split("\n")
        exports = [line for line in lines if line.startswith("export ")]
        # Unlike a shell, shlex keeps the end of a line behind a backslash, as a word.
        words = shlex.split("\n".join(lines[len(exports) :]))
        assert tuple(word for word in words if word != "\n") == found.words
        assert dict(shlex.split(line)[1].split("=", 1) for line in exports) == found.exports
    else:
        read = {"yaml": yaml.safe_load, "json": json.loads}[found.form]
        assert read(found.text) == found.values
    return found


def flags(words):
    """Flag -> its value (True: it has none); what stands alone is under ``""``."""
    found, alone = {}, []
    words = list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            alone.append(word)
        elif "=" in word:
            name, _, found[name] = word.partition("=")
        else:
            found[word] = words.pop(0) if words and not words[0].startswith("-") else True
    return found | {"": alone}


def launch(recipe, title="launch"):
    return flags(step(recipe, title).words)
