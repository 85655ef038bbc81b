"""Any mutation of any family's config or tables converts to a file that libllama loads, or raises one of our errors.

Never another exception, and never a file left behind by a failure.
"""

from __future__ import annotations

import copy
import json
import shutil
import struct
from contextlib import suppress
from functools import cache

import llama_cpp
import pytest
import zoo
from families import target_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_cpp._logger import set_verbose
from zoo.files import write_content

from dflash_gguf.convert import api
from dflash_gguf.convert.config import PLACES
from dflash_gguf.convert.families.deepseek4 import DEEPSEEK4
from dflash_gguf.convert.overrides import Overrides
from dflash_gguf.errors import DflashError

SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
NUMBERS = (
    st.integers(-2, 40) | st.integers() | st.floats() | st.sampled_from([1, 2, 8, 32, 64, 256, 512, 0.25, 0.5, 1e6])
)
WORDS = st.sampled_from(
    ["silu", "yarn", "linear", "llama3", "proportional", "default", "full_attention", "sliding_attention", "vanilla",
     "dspark", "dflash2", "gelu_pytorch_tanh", "DFlashDraftModel", "Qwen3DSparkModel", "MuseGlimmerAssistantModel"]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.sampled_from(["factor"]), inner, max_size=3),
)
KEYS = sorted(
    {place.removeprefix("not ").removeprefix("1 + ") for places in PLACES.values() for place in places}
    | {place for places in DEEPSEEK4.places.values() for place in places}
    | {"architectures", "text_config", "speculators_config", "quantization_config", "hf_quant_config"}
)
FAMILIES = st.sampled_from(sorted(zoo.FAMILIES))


@cache
def content(name):
    return zoo.content(name)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A folder of each family, to be copied."""
    made = {}

    def write(name):
        if name not in made:
            made[name] = write_content(tmp_path_factory.mktemp("whole") / name, content(name))
        return made[name]

    return write


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where a spoiled copy and its output go."""
    return tmp_path_factory.mktemp("spoiled")


def spoiled(place, original):
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(original, place / "drafter")
    return place / "drafter"


def attempt(name, folder, quant, overrides):
    out = folder.parent / "out.gguf"
    try:
        api.convert(folder, target_of(name), quant, out, overrides=overrides)
    except DflashError:
        assert [path.name for path in out.parent.iterdir()] == ["drafter"]
        return
    load(out)


def load(path):
    """libllama reads the header, the metadata and every tensor."""
    set_verbose(False)
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, "libllama refuses the file"
    llama_cpp.llama_model_free(model)


def put(config, key, value):
    """Set a nested key, through whatever is there."""
    *parents, last = key.split(".")
    node = config
    for parent in parents:
        if not isinstance(node.get(parent), dict):
            node[parent] = {}
        node = node[parent]
    node[last] = value


@SETTINGS
@given(
    name=FAMILIES,
    changes=st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3),
    quant=st.sampled_from(["F16", "Q4_0"]),
    given_block=st.none() | st.integers(0, 70),
)
def test_configs(originals, place, name, changes, quant, given_block):
    folder = spoiled(place, originals(name))
    config = copy.deepcopy(content(name).config)
    for key, value in changes.items():
        put(config, key, value)
    (folder / "config.json").write_text(json.dumps(config))
    options = zoo.FAMILIES[name].options | ({} if given_block is None else {"block_size": given_block})
    attempt(name, folder, quant, Overrides(**options))


@SETTINGS
@given(name=FAMILIES, data=st.data())
def test_keys_taken_out_or_moved(originals, place, name, data):
    folder = spoiled(place, originals(name))
    config = copy.deepcopy(content(name).config)
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(config)))
        value = config.pop(key)
        if data.draw(st.booleans()):
            put(config, f"{data.draw(st.sampled_from(['dflash_config', 'text_config', 'other']))}.{key}", value)
        if not config:
            break
    (folder / "config.json").write_text(json.dumps(config))
    attempt(name, folder, "BF16", Overrides(**zoo.FAMILIES[name].options))


@SETTINGS
@given(name=FAMILIES, data=st.data())
def test_headers(originals, place, name, data):
    folder = spoiled(place, originals(name))
    path = data.draw(st.sampled_from(sorted(folder.glob("*.safetensors"))))
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    with path.open("r+b") as file:
        for _ in range(data.draw(st.integers(1, 3))):
            file.seek(data.draw(st.integers(0, 8 + length - 1)))
            file.write(data.draw(st.binary(min_size=1, max_size=3)))
    attempt(name, folder, "F16", Overrides(**zoo.FAMILIES[name].options))


@SETTINGS
@given(name=FAMILIES, data=st.data())
def test_tables_of_tensors(originals, place, name, data):
    """Names, types and shapes that are well formed but not the family's."""
    folder = spoiled(place, originals(name))
    path = data.draw(st.sampled_from(sorted(folder.glob("*.safetensors"))))
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    names = sorted(set(header) - {"__metadata__"})
    for _ in range(data.draw(st.integers(1, 3))):
        one, other = (data.draw(st.sampled_from(names)) for _ in range(2))
        what = data.draw(st.sampled_from(["swap", "rename", "dtype", "shape"]))
        if what == "swap":
            header[one], header[other] = header[other], header[one]
        elif what == "rename":
            ending = data.draw(st.sampled_from(["_packed", "_scale", ".bias", "2", "_scale_inv"]))
            header[one + ending] = header.pop(one)
            names = sorted(set(header) - {"__metadata__"})
        elif what == "dtype":
            same = {"BF16": "F16", "F16": "BF16", "U8": "F8_E4M3", "F8_E4M3": "U8", "I8": "U8", "F32": "I32"}
            header[one]["dtype"] = same.get(header[one]["dtype"], header[one]["dtype"])
        else:
            header[one]["shape"] = data.draw(st.sampled_from([[1, *header[one]["shape"]], header[one]["shape"][::-1]]))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    with suppress(OSError):
        (folder / "model.safetensors.index.json").unlink()
        for shard in folder.glob("dflash_draft_model*"):
            shard.rename(folder / shard.name.replace("dflash_draft_", ""))
    attempt(name, folder, "F16", Overrides(**zoo.FAMILIES[name].options))
