"""An error's remedy names options; for a command that lacks one, the command that has it is named."""

from __future__ import annotations

import ast
from pathlib import Path

import click
import pytest
from remedies import all_commands, check_remedy

import dflash_gguf
from dflash_gguf.cli import root
from dflash_gguf.cli.remedies import OPTION, followable, options_of

COMMANDS = all_commands()
SOURCES = sorted(Path(dflash_gguf.__file__).parent.rglob("*.py"))


def texts_of(node):
    """Every text below a node, what is filled in as a blank."""
    if isinstance(node, ast.JoinedStr):
        return ["".join(part.value if isinstance(part, ast.Constant) else " " for part in node.values)]
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    return [text for child in ast.iter_child_nodes(node) for text in texts_of(child)]


def remedies():
    """Every text that is written as ``remedy=``, and every constant of a module, which may be used as one."""
    for source in SOURCES:
        tree = ast.parse(source.read_text("utf-8"))
        found = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "remedy"]
        found += [node.value for node in tree.body if isinstance(node, ast.AnnAssign) and node.value is not None]
        for node in found:
            yield from texts_of(node)


def test_every_option_of_a_remedy_exists():
    known = frozenset().union(*map(options_of, COMMANDS.values()))
    named = {option for text in remedies() for option in OPTION.findall(text)}
    assert {"--force", "--allow-requantize", "--offline"} <= named
    assert named <= known


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_remedy_can_be_followed_by_every_command(name):
    ctx = click.Context(COMMANDS[name], info_name=name, parent=click.Context(root))
    for text in remedies():
        check_remedy(name.split(), followable(text, ctx))


def test_what_is_said():
    def said(name, text):
        return followable(text, click.Context(COMMANDS[name], info_name=name, parent=click.Context(root)))

    requantize = "start from F16, or pass `--allow-requantize`"
    assert said("quantize", requantize) == requantize
    assert said("bench quants", requantize) == f"{requantize} of `dflash-gguf quantize`"
    assert said("serve", "pass `--block-size 8`") == "pass `--block-size 8` of `dflash-gguf convert` or `rekey`"
    assert said("rekey", "`--threads 2`").endswith("of `dflash-gguf convert` or `train`")
    assert said("run", "leave out `--offline` and unset X") == "leave out `--offline` and unset X"
    assert said("convert", "leave out `--offline` and unset X") == "unset X"
    assert (
        said("inspect", "`llama-gguf-split --merge`, `--experimental`")
        == "`llama-gguf-split --merge`, `--experimental`"
    )
    assert said("inspect", "by `--causal` of `dflash-gguf rekey`") == "by `--causal` of `dflash-gguf rekey`"
