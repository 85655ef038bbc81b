"""The Modelfile writer: exact text, what it refuses, and a round trip through ollama's grammar."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import modelfile_reader
import pytest
import tiny
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dflash_gguf.errors import GGUFError, OutputError, PairError, TemplateError
from dflash_gguf.modelfile.api import Modelfile, render, write

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"hidden": 288, "ffn": 64, "layers": 1, "heads": 2, "kv_heads": 1, "taps": (0,), "vocab": 300}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    target = tiny.write_target(folder / "Tiny Qwen3-Q8_0.gguf", **SMALL | {"layers": 2})
    return target, tiny.write_drafter(folder / "dflash-tiny.gguf", **SMALL)


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_drafter(tmp_path_factory.mktemp("v1") / "v1.gguf", kind="dflash", **SMALL)


def commands(result: Modelfile) -> list[tuple[str, str]]:
    return modelfile_reader.read(result.text)


def test_exact_text(pair: tuple[Path, Path]) -> None:
    target, draft = pair
    result = render(target, draft)
    assert result.text == (
        "# A target and its DFlash drafter. Create the model with: ollama create NAME -f THIS_FILE\n"
        "# DFlash 2 needs an ollama newer than 0.33.0-rc2: its llama.cpp must be b10665 or later.\n"
        f"FROM {target}\n"
        f"DRAFT {draft}\n"
        "PARAMETER draft_num_predict 7\n"
        "REQUIRES 0.32.7\n"
    )
    assert result.create_command == "ollama create tiny-qwen3-q8_0-dflash -f Modelfile"
    assert result.warnings == ()


def test_dflash1_has_no_note(pair: tuple[Path, Path], v1: Path) -> None:
    result = render(pair[0], v1)
    assert "DFlash 2" not in result.text
    assert commands(result) == [
        ("from", str(pair[0])),
        ("draft", str(v1)),
        ("parameter:draft_num_predict", "7"),
        ("requires", "0.32.7"),
    ]


@pytest.mark.parametrize("name", ["a b", "#1 model", "a # b", "c:d", "größe-模型", "it's", 'say "hi"', "x$y", "'q'"])
def test_paths_are_verbatim(name: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    target = shutil.copy(pair[0], folder / "t.gguf")
    text = render(target, pair[1]).text
    assert f"FROM {target}\n" in text
    assert modelfile_reader.read(text)[0] == ("from", str(target))


def test_a_path_that_ends_in_a_blank_is_quoted(pair: tuple[Path, Path], tmp_path: Path) -> None:
    target = shutil.copy(pair[0], tmp_path / "t.gguf ")
    result = render(target, pair[1])
    assert f'FROM "{target}"\n' in result.text
    assert commands(result)[0] == ("from", str(target))


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\rb", "a\u00a0b", "a\u200db", "a\u3000b", "\udcff"])
def test_unwritable_paths_are_refused_by_name(name: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    target = shutil.copy(pair[0], tmp_path / name)
    with pytest.raises(TemplateError, match=r"U\+[0-9A-F]{4}") as caught:
        render(target, pair[1])
    assert caught.value.value == str(target)


def test_relative_paths_become_absolute(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pair[0].parent)
    result = render(pair[0].name, f"./{pair[1].name}")
    assert [value for _, value in commands(result)[:2]] == [str(pair[0]), str(pair[1])]


def test_home_is_expanded(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(pair[0].parent))
    assert commands(render(f"~/{pair[0].name}", pair[1]))[0] == ("from", str(pair[0]))


def test_dots_across_a_link_keep_their_meaning(pair: tuple[Path, Path], tmp_path: Path) -> None:
    link = tmp_path / "link"
    (pair[0].parent / "inner").mkdir(exist_ok=True)
    link.symlink_to(pair[0].parent / "inner")
    result = render(link / ".." / pair[0].name, pair[1])
    assert commands(result)[0] == ("from", str(pair[0]))


def test_a_linked_file_is_named_by_its_link(pair: tuple[Path, Path], tmp_path: Path) -> None:
    link = tmp_path / "snapshot.gguf"
    link.symlink_to(pair[0])
    assert commands(render(link, pair[1]))[0] == ("from", str(link))


def test_a_folder_stands_for_its_only_gguf(pair: tuple[Path, Path], v1: Path) -> None:
    assert commands(render(pair[0], v1.parent))[1] == ("draft", str(v1))
    with pytest.raises(TemplateError, match="holds 2 GGUF files"):
        render(pair[0].parent, v1)


def test_files_of_two_kinds_are_refused(pair: tuple[Path, Path], tiny_checkpoint: Path) -> None:
    for target, draft in ((pair[0], tiny_checkpoint), (tiny_checkpoint, pair[1])):
        with pytest.raises(TemplateError, match="two kinds") as caught:
            render(target, draft)
        assert str(target) in str(caught.value)
        assert str(draft) in str(caught.value)


@pytest.mark.parametrize("place", [0, 1])
def test_a_part_of_a_split_file_is_refused(place: int, pair: tuple[Path, Path], tmp_path: Path) -> None:
    part = tiny.write_gguf(tmp_path / "m-00001-of-00002.gguf", "qwen3", {"split.count": 2}, {})
    files = list(pair)
    files[place] = part
    with pytest.raises(PairError, match=r"one part of a split file.*llama-gguf-split --merge"):
        render(*files)


def test_everything_that_can_be_said(pair: tuple[Path, Path]) -> None:
    result = render(
        *pair,
        3,
        name="mine",
        system='Say "hi".\nBe brief.',
        template="{{ .Prompt }}",
        licenses=["MIT", "Apache\n2.0"],
        renderer="qwen3.8",
        parameters={"temperature": 0.5, "stop": ["a b", '"']},
    )
    found = modelfile_reader.request(result.text)
    assert found == {
        "from": str(pair[0]),
        "draft": str(pair[1]),
        "parameters": {"draft_num_predict": 3, "temperature": 0.5, "stop": ["a b", '"']},
        "system": 'Say "hi".\nBe brief.',
        "template": "{{ .Prompt }}",
        "license": ["MIT", "Apache\n2.0"],
        "renderer": "qwen3.8",
        "parser": "qwen3.5",
        "requires": "0.32.12",
    }
    assert result.create_command == "ollama create mine -f Modelfile"
    assert any("chat template" in warning for warning in result.warnings)
    assert [name for name, _ in commands(result)].count("from") == 1


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"renderer": "qwen9"}, "renderer"),
        ({"parser": "qwen3.8"}, "parser"),
        ({"renderer": "qwen3.8", "parser": "qwen3"}, "qwen3.5"),
        ({"system": 'three """ quotes'}, "three quotes"),
        ({"parameters": "num_ctx=4"}, "mapping"),
        ({"quantize": "Q4_K_M"}, "--quantize"),
        ({"draft_quantize": "int4"}, "Q4_K_M"),
    ],
)
def test_what_ollama_would_not_take(settings: dict[str, object], named: str, pair: tuple[Path, Path]) -> None:
    with pytest.raises(TemplateError, match=named):
        render(*pair, **settings)


@pytest.mark.parametrize(("number", "allowed"), [(None, False), (0, False), (1, True), (32, True), (7, False)])
def test_only_half_floats_are_quantized_by_ollama(
    number: int | None, allowed: bool, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    key = "general.file_type"
    options = {"drop_keys": [key]} if number is None else {"extra_keys": {key: number}}
    draft = tiny.write_drafter(tmp_path / "d.gguf", **options, **SMALL)
    if allowed:
        result = render(pair[0], draft, draft_quantize="q4_k")
        assert result.create_command.endswith("-f Modelfile --draft-quantize Q4_K_M")
        assert "no longer quantizes" in result.warnings[-1]
    else:
        with pytest.raises(PairError, match="--draft-quantize"):
            render(pair[0], draft, draft_quantize="q4_k")


def test_from_a_model_that_ollama_has(pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = render("qwen3:8b", pair[1], from_model=True)
    assert commands(result)[:2] == [("from", "qwen3:8b"), ("draft", str(pair[1]))]
    assert result.create_command == "ollama create qwen3-8b-dflash -f Modelfile"
    assert any("not checked" in warning for warning in result.warnings)
    with pytest.raises(TemplateError, match="does not exist"):
        render("qwen3:8b", pair[1])
    for path in (str(pair[0]), "./qwen3", "a.gguf"):
        with pytest.raises(TemplateError, match="name of an ollama model"):
            render(path, pair[1], from_model=True)
    with pytest.raises(PairError, match="is no drafter"):
        render("qwen3:8b", pair[0], from_model=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").write_text("x")
    with pytest.raises(TemplateError, match="would be the file"):
        write("base", pair[1], from_model=True)


@pytest.mark.parametrize("place", [0, 1])
def test_missing_files_are_refused(place: int, pair: tuple[Path, Path], tmp_path: Path) -> None:
    files = list(pair)
    files[place] = tmp_path / "absent.gguf"
    with pytest.raises(TemplateError, match=r"absent\.gguf` does not exist"):
        render(*files)


def test_names_on_the_hub_are_no_files(pair: tuple[Path, Path]) -> None:
    with pytest.raises(TemplateError, match="download it first: `hf download incoai/x-GGUF`"):
        render(pair[0], "incoai/x-GGUF:Q4_K_M")


def test_no_gguf_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "t.gguf").write_text("<html>")
    with pytest.raises(GGUFError):
        render(tmp_path / "t.gguf", pair[1])


@pytest.mark.parametrize("via", ["same", "link", "dots", "hard link"])
@pytest.mark.parametrize("place", [0, 1])
def test_one_file_twice_is_refused(via: str, place: int, pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = pair[place]
    other = {
        "same": file,
        "link": tmp_path / "link.gguf",
        "dots": file.parent / ".." / file.parent.name / file.name,
        "hard link": tmp_path / "hard.gguf",
    }[via]
    if via == "link":
        other.symlink_to(file)
    if via == "hard link":
        other.hardlink_to(file)
    with pytest.raises(PairError, match="the same file"):
        render(other, file)


def test_swapped_files_are_refused(pair: tuple[Path, Path]) -> None:
    with pytest.raises(PairError, match="swapped"):
        render(pair[1], pair[0])


@pytest.mark.parametrize("arch", ["dflash-draft", "gemma4-dflash-draft", "clip", "qwen3"])
def test_other_architectures_are_refused(arch: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = tiny.write_gguf(tmp_path / "other.gguf", arch, {}, {})
    with pytest.raises(PairError, match=f"`{arch}`"):
        render(pair[0], other)


def test_dspark_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    draft = tiny.write_drafter(tmp_path / "d.gguf", kind="dspark", **SMALL)
    with pytest.raises(PairError, match="DSpark"):
        render(pair[0], draft)


def test_the_pair_check_runs_first(pair: tuple[Path, Path], tmp_path: Path) -> None:
    draft = tiny.write_drafter(tmp_path / "d.gguf", **SMALL | {"vocab": 301})
    with pytest.raises(PairError, match="vocabularies differ in length"):
        render(pair[0], draft)


@pytest.mark.parametrize(("wanted", "written", "warned"), [(0, "0", 0), (1, "1", 0), (7, "7", 0), (8, "7", 1)])
def test_depth(wanted: int, written: str, warned: int, pair: tuple[Path, Path]) -> None:
    result = render(*pair, wanted)
    assert commands(result)[2] == ("parameter:draft_num_predict", written)
    assert len(result.warnings) == warned


@pytest.mark.parametrize("wanted", [-1, 3.0, True, "4"])
def test_depth_is_a_whole_number(wanted: object, pair: tuple[Path, Path]) -> None:
    with pytest.raises(TemplateError, match="draft_num_predict"):
        render(*pair, wanted)


def test_a_drafter_without_block_size(pair: tuple[Path, Path], tmp_path: Path) -> None:
    draft = tiny.write_drafter(tmp_path / "d.gguf", kind="dflash", drop_keys=["dflash.block_size"], **SMALL)
    with pytest.raises(PairError, match=r"`dflash.block_size` is missing .*; mend the file with `dflash-gguf rekey`"):
        render(pair[0], draft)


@pytest.mark.parametrize(
    ("given_version", "written", "warned"),
    [("v0.34.0", "0.34.0", 0), ("0.33", "0.33", 0), ("0.34.0-rc1", "0.34.0-rc1", 0), ("0.32.6", "0.32.6", 1)],
)
def test_requires(given_version: str, written: str, warned: int, pair: tuple[Path, Path]) -> None:
    result = render(*pair, requires=given_version)
    assert commands(result)[3] == ("requires", written)
    assert len(result.warnings) == warned
    assert "DFlash 2 needs" not in result.text


@pytest.mark.parametrize(
    ("given_version", "words"), [("0.32.6", "does not know a DFlash drafter"), ("0.32.8", "does not have the renderer")]
)
def test_why_a_version_is_too_low(given_version: str, words: str, pair: tuple[Path, Path]) -> None:
    assert words in render(*pair, requires=given_version, renderer="qwen3.8").warnings[-1]


@pytest.mark.parametrize("given_version", ["", "new", "1", "0.32.7 # x", "0.32.7\n", "00x.1"])
def test_requires_is_a_version(given_version: str, pair: tuple[Path, Path]) -> None:
    with pytest.raises(TemplateError, match="REQUIRES"):
        render(*pair, requires=given_version)


def test_write(pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "my models" / "Modelfile"
    out.parent.mkdir()
    result = write(*pair, out)
    assert out.read_bytes() == result.text.encode()
    assert result.create_command == f"ollama create tiny-qwen3-q8_0-dflash -f '{out}'"
    assert [path.name for path in out.parent.iterdir()] == ["Modelfile"]


def test_write_keeps_what_is_there(pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "Modelfile"
    out.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        write(*pair, out)
    assert out.read_text() == "mine"
    assert write(*pair, out, force=True).text == out.read_text()


def test_write_never_replaces_a_model(pair: tuple[Path, Path]) -> None:
    with pytest.raises(OutputError, match="one of the inputs"):
        write(*pair, pair[0], force=True)


def test_write_into_nowhere(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        write(*pair, tmp_path / "absent" / "Modelfile")
    with pytest.raises(OutputError, match="is a folder"):
        write(*pair, tmp_path, force=True)


FILE_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=24)


@settings(max_examples=60, deadline=None)
@given(names=st.tuples(FILE_NAMES, FILE_NAMES))
def test_paths_come_back_or_are_refused(
    names: tuple[str, str], pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    paths = [tmp_path_factory.mktemp("named") / name for name in names]
    assume(not any(path.exists() for path in paths))
    for path, file in zip(paths, pair, strict=True):
        path.symlink_to(file)
    if not all(name.isprintable() for name in names):
        with pytest.raises(TemplateError):
            render(*paths)
        return
    result = render(*paths)
    assert [value for _, value in commands(result)[:2]] == [str(path) for path in paths]
