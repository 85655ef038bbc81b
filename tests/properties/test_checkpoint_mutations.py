"""Whatever happens to a config or a safetensors header, planning succeeds or raises one of our errors."""

from __future__ import annotations

import json
import shutil
import struct
from contextlib import suppress

import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_gguf.convert import api
from dflash_gguf.errors import DflashError

CONFIG = tiny.drafter_config()
PLACES = [(key,) for key in CONFIG] + [("dflash_config", key) for key in CONFIG["dflash_config"]]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_checkpoint):
    """A copy that a test may spoil."""
    return shutil.copytree(tiny_checkpoint, tmp_path_factory.mktemp("spoiled") / "c")


def attempt(folder, target):
    with suppress(DflashError):
        assert api.plan(folder, target, "F16").n_bytes > 0


@SETTINGS
@given(changes=st.dictionaries(st.sampled_from(PLACES), VALUES, min_size=1, max_size=3))
def test_configs(folder, tiny_checkpoint, tiny_target, changes):
    config = json.loads((tiny_checkpoint / "config.json").read_text())
    for place, value in changes.items():
        node = config if len(place) == 1 else config["dflash_config"]
        if isinstance(node, dict):
            node[place[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(tiny_checkpoint / "model.safetensors", folder)
    attempt(folder, tiny_target)


@SETTINGS
@given(data=st.data())
def test_config_bytes(folder, tiny_checkpoint, tiny_target, data):
    text = bytearray((tiny_checkpoint / "config.json").read_bytes())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    (folder / "config.json").write_bytes(text)
    shutil.copy(tiny_checkpoint / "model.safetensors", folder)
    attempt(folder, tiny_target)


@SETTINGS
@given(data=st.data())
def test_safetensors_headers(folder, tiny_checkpoint, tiny_target, data):
    shutil.copy(tiny_checkpoint / "config.json", folder)
    path = folder / "model.safetensors"
    shutil.copy(tiny_checkpoint / "model.safetensors", path)
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    with path.open("r+b") as file:
        for _ in range(data.draw(st.integers(1, 3))):
            file.seek(data.draw(st.integers(0, 8 + length - 1)))
            file.write(data.draw(st.binary(min_size=1, max_size=3)))
    attempt(folder, tiny_target)
