"""Whatever happens to a target's folder, reading it succeeds or raises one of our errors."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import tiny_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_gguf.convert.target import load_target, tokenizer_keys
from dflash_gguf.convert.vocab import keys as vocabulary
from dflash_gguf.errors import DflashError

if TYPE_CHECKING:
    from pathlib import Path

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json")
ROLES = ("bos_token", "eos_token", "pad_token", "cls_token", "additional_special_tokens", "chat_template")
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["BPE", "ByteLevel", "TemplateProcessing", "\ud800", "a b", "<|im_end|>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "target"
    names = ("model.embed_tokens.weight", "lm_head.weight")
    made = tiny_folder.write_target_folder(folder, names=names, config={"text_config": {}, "rope_scaling": {}})
    places = dict.fromkeys(names, "model.safetensors")
    (made / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return made


@pytest.fixture(scope="module")
def folder(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(sound, tmp_path_factory.mktemp("spoiled") / "target")


@pytest.fixture(autouse=True)
def known_pre_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "recognise", lambda _: "gpt-2")


def attempt(folder: Path) -> None:
    with suppress(DflashError):
        assert tokenizer_keys(load_target(folder), 3)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON value but the many of its vocabulary."""
    found = [path] if path else []
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in list(rows)[:12]:
        found += places(inner, (*path, name))
    return found


@SETTINGS
@given(data=st.data())
def test_values(folder: Path, sound: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILES))
    held = json.loads((sound / name).read_text())
    for place in data.draw(st.lists(st.sampled_from(places(held)), min_size=1, max_size=3)):
        with suppress(LookupError, TypeError):  # an earlier change may have removed the place
            node = held
            for step in place[:-1]:
                node = node[step]
            node[place[-1]] = data.draw(VALUES)
    (folder / name).write_text(json.dumps(held))
    attempt(folder)
    shutil.copy(sound / name, folder)


@SETTINGS
@given(data=st.data())
def test_bytes(folder: Path, sound: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILES))
    text = bytearray((sound / name).read_bytes())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    (folder / name).write_bytes(text)
    attempt(folder)
    shutil.copy(sound / name, folder)


@SETTINGS
@given(settings_=st.dictionaries(st.sampled_from(ROLES), VALUES, max_size=3), processor=VALUES, tokens=VALUES)
def test_roles_and_templates(folder: Path, sound: Path, settings_: Any, processor: Any, tokens: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"x": 1, "added_tokens_decoder": tokens} | settings_))
    held = json.loads((sound / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(held | {"post_processor": processor}))
    attempt(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(sound / name, folder)


@SETTINGS
@given(ids=st.lists(st.integers(0, 700) | st.integers(), min_size=1, max_size=6), size=st.none() | st.integers(0, 1000))
def test_ids_of_added_tokens(folder: Path, sound: Path, ids: list[int], size: int | None) -> None:
    """Holes, duplicates, ids out of range."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    held = json.loads((sound / "tokenizer.json").read_text())
    held["added_tokens"] += [{"id": i, "content": f"<{n % 3}>", **flags} for n, i in enumerate(ids)]
    held["model"]["vocab"] |= {f"v{n}": i for n, i in enumerate(ids[:2])}
    (folder / "tokenizer.json").write_text(json.dumps(held))
    config = json.loads((sound / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": size}))
    attempt(folder)
    for name in ("tokenizer.json", "config.json"):
        shutil.copy(sound / name, folder)


def test_deep_json(folder: Path, sound: Path) -> None:
    for name in FILES:
        (folder / name).write_text("[" * 100_000)
        with pytest.raises(DflashError, match=name):
            load_target(folder)
        (folder / name).write_text('{"model": ' + '{"a": ' * 5_000 + "1" + "}" * 5_001)
        attempt(folder)
        shutil.copy(sound / name, folder)
