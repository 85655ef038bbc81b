"""A Modelfile as one call: a target and a drafter in, the text and the command that uses it out.

The steps are `read_pair`, `content_of` and `spelt`, each a function of those before it. Knows nothing of ollama's
store, and runs nothing. The text comes from ``Modelfile.template`` by `string.Template`: Go's own templates, which a
Modelfile can hold, are full of braces.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final, Unpack

from dflash_gguf.atomic import check_out, write_text
from dflash_gguf.errors import TemplateError
from dflash_gguf.facts import DFLASH2
from dflash_gguf.modelfile import parameters as table
from dflash_gguf.modelfile.content import GGUF, SAFETENSORS, Content, Settings, Source
from dflash_gguf.modelfile.gguf_pair import absolute, gguf_pair, refuse_quantized
from dflash_gguf.modelfile.names import chat_names
from dflash_gguf.modelfile.safetensors_pair import is_checkpoint, refuse_packed, safetensors_pair
from dflash_gguf.modelfile.syntax import line_value, model_name, plain, text_value
from dflash_gguf.modelfile.versions import required

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

DEFAULT_OUT: Final = "Modelfile"

NEWER_REFUSE: Final = (
    "ollama's main branch no longer quantizes GGUF drafters at create: if yours refuses, convert with `--quant` instead"
)


@dataclass(frozen=True, slots=True)
class Modelfile:
    """A rendered Modelfile: its text (ends with one newline), the command that uses it, and warnings.

    ``content`` is what the text says, as values.
    """

    text: str
    create_command: str
    warnings: tuple[str, ...]
    content: Content


def render(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    draft_num_predict: int | None = None,
    *,
    from_model: bool = False,
    name: str | None = None,
    **settings: Unpack[Settings],
) -> Modelfile:
    """Render the Modelfile of a pair: two GGUF files (or folders with exactly one), or two folders of safetensors.

    ``draft_num_predict`` is the number of drafted tokens a round (default: block size - 1, 0: off). ``from_model``
    says that ``target`` names a model that ollama has. ``name`` is the new model's, for the command.
    ``settings``: ``system``, ``template`` and ``licenses`` are texts, ``renderer`` and ``parser`` names that ollama
    knows, ``parameters`` a mapping or texts ``NAME=VALUE``, ``requires`` the least version of ollama, ``quantize`` and
    ``draft_quantize`` types for the command. Raises `PairError` when the two do not fit each other, `TemplateError`
    when a value cannot be written in a Modelfile.
    """
    source = read_pair(target, draft, from_model=from_model)
    content, warnings = content_of(source, draft_num_predict, settings)
    command = create_command(content, DEFAULT_OUT, name)
    return Modelfile(spelt(content), command, (*source.warnings, *warnings), content)


def write(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    out: str | os.PathLike[str] = DEFAULT_OUT,
    draft_num_predict: int | None = None,
    *,
    from_model: bool = False,
    name: str | None = None,
    force: bool = False,
    **settings: Unpack[Settings],
) -> Modelfile:
    """Render and write to ``out``; the command names that file.

    Raises as `render` does, and `OutputError` when ``out`` exists and ``force`` is false.
    """
    made = render(target, draft, draft_num_predict, from_model=from_model, name=name, **settings)
    return put(made, out, name, force=force)


def put(made: Modelfile, out: str | os.PathLike[str], name: str | None = None, *, force: bool = False) -> Modelfile:
    """Write a rendered Modelfile; raises `OutputError`."""
    source = made.content.source
    models = (source.draft,) if source.from_model else (Path(source.target), source.draft)
    check_out(Path(out).absolute(), models, force=force)
    if source.from_model and (Path(out).absolute().parent / source.target).exists():
        raise TemplateError(
            f"`{source.target}` would be the file of that name beside `{out}`",
            remedy="write the Modelfile to another folder",
        )
    path = write_text(out, made.text, force=force)
    return replace(made, create_command=create_command(made.content, str(path), name))


def read_pair(target: str | os.PathLike[str], draft: str | os.PathLike[str], *, from_model: bool) -> Source:
    """Read both, of whichever kind they are; raises `PairError` when they are of two kinds."""
    if from_model:
        target = model_name(str(target))
    folders = [] if from_model else [is_checkpoint(absolute(target))]
    folders.append(is_checkpoint(absolute(draft)))
    if all(folders):
        return safetensors_pair(target, draft, from_model=from_model)
    if any(folders):
        names = (SAFETENSORS.title if folder else GGUF.title for folder in folders)
        kinds = " and ".join(f"`{path}` ({name})" for path, name in zip((target, draft), names, strict=True))
        raise TemplateError(
            "ollama cannot join files of two kinds",
            value=kinds,
            expected="two GGUF files or two folders of safetensors",
            remedy="make the drafter a GGUF with `dflash-gguf convert`",
        )
    return gguf_pair(target, draft, from_model=from_model)


def content_of(source: Source, depth: int | None, settings: Settings) -> tuple[Content, tuple[str, ...]]:
    """Check everything that was asked for; the second value is what to say about it."""
    drafted, depth_warnings = _depth(depth, source.block_size)
    renderer, parser, name_warnings = chat_names(settings.get("renderer"), settings.get("parser"), source.lane)
    version, version_warnings = required(settings.get("requires"), source.lane.least, renderer)
    quantize, draft_quantize, type_warnings = _types(source, settings)
    content = Content(
        source=source,
        depth=drafted,
        requires=version,
        noted=source.kind == DFLASH2 and settings.get("requires") is None,
        parameters=_parameters(settings.get("parameters", ())),
        system=_plain(settings.get("system")),
        template=_plain(settings.get("template")),
        licenses=tuple(map(plain, settings.get("licenses", ()))),
        renderer=renderer,
        parser=parser,
        quantize=quantize,
        draft_quantize=draft_quantize,
    )
    return content, (*depth_warnings, *name_warnings, *version_warnings, *type_warnings)


def spelt(content: Content) -> str:
    """The text of the Modelfile."""
    source = content.source
    texts = (
        *(("SYSTEM", text) for text in (content.system,)),
        *(("TEMPLATE", text) for text in (content.template,)),
        *(("LICENSE", text) for text in content.licenses),
    )
    names = (("RENDERER", content.renderer), ("PARSER", content.parser))
    return Template(_template()).substitute(
        flags="".join(f" {flag}" for flag in content.flags),
        notes=source.lane.dflash2_note if content.noted else "",
        target=line_value(source.target),
        draft=line_value(str(source.draft)),
        draft_num_predict=content.depth,
        parameters=table.lines(content.parameters),
        names="".join(f"{command} {name}\n" for command, name in names if name is not None),
        texts="".join(f"{command} {text_value(text)}\n" for command, text in texts if text is not None),
        requires=content.requires,
    )


def create_command(content: Content, modelfile: str, name: str | None = None) -> str:
    """The shell command that creates the model, named after the target unless ``name`` says otherwise."""
    words = ["ollama", "create", name or _default_name(content.source), "-f", modelfile, *content.flags]
    return shlex.join(words)


def _default_name(source: Source) -> str:
    stem = source.target.rpartition("/")[2] if source.from_model else Path(source.target).name.removesuffix(".gguf")
    stem = re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")
    return f"{stem or 'target'}-dflash"


def _depth(wanted: int | None, block_size: int) -> tuple[int, tuple[str, ...]]:
    """The value of ``draft_num_predict`` and what to say about it."""
    deepest = block_size - 1
    if wanted is None:
        return deepest, ()
    if type(wanted) is not int or wanted < 0:
        raise TemplateError("`draft_num_predict`", value=wanted, expected=f"a whole number from 0 to {deepest}")
    if wanted <= deepest:
        return wanted, ()
    return deepest, (f"`draft_num_predict` {wanted} is more than the drafter's block allows, wrote {deepest}",)


def _types(source: Source, settings: Settings) -> tuple[str | None, str | None, tuple[str, ...]]:
    """``--quantize`` and ``--draft-quantize``, each refused where ollama would."""
    quantize = _type("--quantize", settings.get("quantize"), source)
    draft_quantize = _type("--draft-quantize", settings.get("draft_quantize"), source)
    if quantize is not None and (source.lane is GGUF or source.from_model):
        raise TemplateError("`--quantize`", value=quantize, remedy="ollama quantizes only folders of safetensors")
    if quantize is not None:
        refuse_packed(Path(source.target), "--quantize")
    if draft_quantize is None:
        return quantize, None, ()
    if source.lane is GGUF:
        refuse_quantized(source.draft)
        return quantize, draft_quantize, (NEWER_REFUSE,)
    refuse_packed(source.draft, "--draft-quantize")
    return quantize, draft_quantize, ()


def _type(flag: str, given: str | None, source: Source) -> str | None:
    if given is None:
        return None
    name = source.lane.types.get(given.lower())
    if name is None:
        known = ", ".join(dict.fromkeys(source.lane.types.values()))
        raise TemplateError(f"`{flag}` of {source.lane.title} files", value=given, expected=f"one of {known}")
    return name


def _parameters(given: table.Given | Sequence[str]) -> table.Parameters:
    if isinstance(given, str):
        raise TemplateError("parameters", value=given, expected="a mapping, or a list of NAME=VALUE")
    return table.given(given) if isinstance(given, Mapping) else table.parsed(given)


def _plain(text: str | None) -> str | None:
    return None if text is None else plain(text)


def _template() -> str:
    return (files("dflash_gguf") / "Modelfile.template").read_text(encoding="utf-8")
