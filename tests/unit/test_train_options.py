"""What `train` takes when a flag is left out is what the package takes."""

import click
import pytest

from dflash_gguf.cli.session_options import options_for
from dflash_gguf.cli.train_options import ANSWERS, RECIPE, SHAPE
from dflash_gguf.train.recipe import DEVICES, PRECISIONS, Recipe
from dflash_gguf.train.settings import CorpusSettings
from dflash_gguf.train.shape import KINDS, Asked

OTHERWISE = {"minutes", "steps", "taps", "torch_device"}
"""Told to the package by another name, or by none."""


def parameters(table):
    def command():
        pass

    for option in table:
        command = option(command)
    return {param.name: param for param in click.command()(command).params}


@pytest.mark.parametrize(("table", "value"), [(SHAPE, Asked()), (RECIPE, Recipe(steps=1)), (ANSWERS, CorpusSettings())])
def test_defaults_are_the_packages(table, value):
    found = {name: param.default for name, param in parameters(table).items() if name not in OTHERWISE}
    assert found == {name: getattr(value, name) for name in found}


def test_the_context_is_the_packages_too():
    assert parameters([options_for("n_ctx")])["n_ctx"].default == CorpusSettings().n_ctx


@pytest.mark.parametrize(
    ("table", "name", "words"),
    [(SHAPE, "kind", KINDS), (RECIPE, "precision", PRECISIONS), (RECIPE, "torch_device", DEVICES)],
)
def test_words_are_the_packages(table, name, words):
    assert set(parameters(table)[name].type.choices) == set(words)
