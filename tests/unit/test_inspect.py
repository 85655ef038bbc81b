"""What `inspect` reads of a file, and what `diff` finds between two: exact values, and nothing but GGUFError."""

from __future__ import annotations

import json
import math
import struct
from contextlib import suppress

import gguf as gguf_py
import gguf_bytes as gb
import pytest
import tiny
import tiny_targets
from gguf_bytes import Memory, gguf
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf import difference
from dflash_gguf.difference import CHUNK, diff
from dflash_gguf.errors import GGUFError
from dflash_gguf.file_text import json_value, printable
from dflash_gguf.file_types import FILE_TYPES, file_type_name
from dflash_gguf.gguf_header import read_header
from dflash_gguf.gguf_values import value_text
from dflash_gguf.inspect import NOT_STATED, as_dict, inspect

SMALL = {"hidden": 288, "ffn": 64, "layers": 1, "heads": 2, "kv_heads": 1, "taps": (0, 2), "vocab": 300}


def in_memory(*keys, **options):
    """An inspection of a file put together from keys, without tensors."""
    return inspect(read_header(Memory(gguf(keys, (), b"", **options))))


def values(facts):
    return {name: fact.value for name, fact in facts.items()}


# ---------------------------------------------------------------- inspect


def test_a_drafter(tmp_path):
    path = tiny.write_drafter(tmp_path / "d.gguf", type="Q8_0", **SMALL)
    found = inspect(path)
    assert (found.kind, found.fork, found.gguf_version) == ("DFlash 2", False, 3)
    assert (found.path, found.n_bytes) == (str(path), path.stat().st_size)
    assert values(found.dims) == {
        "block_count": 1,
        "embedding_length": 288,
        "feed_forward_length": 64,
        "head_count": 2,
        "head_count_kv": 1,
        "key_length": 64,
        "context_length": 2048,
        "sliding_window": None,
    }
    assert found.dims["sliding_window"].problem == NOT_STATED
    assert found.n_tokens == 300
    assert values(found.drafter.facts) == {
        "block_size": 8,
        "target_layers": (1, 3),
        "mask_token_id": 3,
        "causal": False,
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 32,
        "selector_top_k": 16,
    }
    assert (found.drafter.target_layers, found.drafter.target_layer_ids) == ((1, 3), (0, 2))
    assert found.drafter.mask_token.value == "<|mask|>"
    assert [(fact.key, fact.value) for fact in found.source] == [("general.name", "tiny dflash")]


def test_tensors_and_bits_are_those_of_the_reader_of_gguf_py(tmp_path):
    path = tiny.write_drafter(tmp_path / "d.gguf", type="Q8_0", **SMALL)
    found, theirs = inspect(path), gguf_py.GGUFReader(path).tensors
    assert [(t.name, list(t.shape), t.type, t.n_bytes) for t in found.tensors] == [
        (t.name, t.shape.tolist(), t.tensor_type.name, int(t.n_bytes)) for t in theirs
    ]
    weights, size = sum(int(t.n_elements) for t in theirs), sum(int(t.n_bytes) for t in theirs)
    assert found.n_weights == weights
    assert found.bits_per_weight == 8 * size / weights
    assert 8.5 < found.bits_per_weight < 10
    assert found.tensor_types == {name: sum(t.tensor_type.name == name for t in theirs) for name in ("F32", "Q8_0")}


@pytest.mark.parametrize(("kind", "title"), [("dflash", "DFlash"), ("dflash2", "DFlash 2"), ("dspark", "DSpark")])
def test_kinds(kind, title, tmp_path):
    assert inspect(tiny.write_drafter(tmp_path / "d.gguf", kind=kind, **SMALL)).kind == title


def test_a_window(tmp_path):
    found = inspect(tiny.write_drafter(tmp_path / "d.gguf", window=128, **SMALL))
    assert found.dims["sliding_window"].value == 128
    assert found.drafter.facts["sliding_window_pattern"].value == (True,)


def test_a_target_is_no_drafter_and_its_sizes_may_be_lists(tmp_path):
    found = inspect(tiny_targets.write_lfm2(tmp_path / "t.gguf"))
    assert (found.kind, found.architecture.value, found.drafter) == ("not a drafter", "lfm2", None)
    assert found.dims["head_count_kv"].value == (0, 4, 0, 4)
    assert found.dims["key_length"].problem == NOT_STATED
    assert as_dict(found)["drafter"] is None


def test_a_forks_drafter_is_read_under_its_own_names():
    found = in_memory(
        ("general.architecture", gb.string("dflash-draft")),
        ("dflash-draft.block_count", gb.u32(5)),
        ("dflash-draft.dflash.block_size", gb.u32(16)),
        ("dflash-draft.dflash.mask_token_id", gb.u32(1)),
        ("dflash-draft.dflash.target_layer_ids", gb.numbers("i", 5, 1, 16, 31)),
        ("tokenizer.ggml.tokens", gb.strings("a", "[MASK]")),
    )
    assert (found.kind, found.fork) == ("fork format dflash-draft", True)
    assert found.dims["block_count"].value == 5
    assert found.drafter.facts["block_size"].key == "dflash-draft.dflash.block_size"
    assert found.drafter.facts["block_size"].value == 16
    assert (found.drafter.target_layers, found.drafter.target_layer_ids) == ((2, 17, 32), (1, 16, 31))
    assert found.drafter.mask_token.value == "[MASK]"


def test_an_empty_file_states_nothing():
    found = in_memory()
    assert (found.kind, found.architecture.problem, found.bits_per_weight) == ("unknown", NOT_STATED, None)
    assert {fact.problem for fact in found.dims.values()} == {NOT_STATED}
    assert as_dict(found)["problems"] == {}


def test_a_drafter_without_its_keys_states_nothing():
    found = in_memory(("general.architecture", gb.string("dflash")))
    assert set(values(found.drafter.facts).values()) == {None}
    assert found.drafter.target_layers is None
    assert found.drafter.mask_token.problem == NOT_STATED


@pytest.mark.parametrize(
    ("mask", "tokens", "problem"),
    [
        (5, gb.strings("a", "b"), "not one of 2 tokens"),
        (0, None, "the file holds no tokens"),
        (0, gb.string("a"), "the file holds no tokens"),
        (1, gb.strings("a", b"\xff"), "not UTF-8"),
    ],
)
def test_a_mask_token_that_has_no_text(mask, tokens, problem):
    keys = [("general.architecture", gb.string("dflash")), ("tokenizer.ggml.mask_token_id", gb.u32(mask))]
    keys += [("tokenizer.ggml.tokens", tokens)] if tokens else []
    found = in_memory(*keys)
    assert (found.drafter.mask_token.value, found.drafter.mask_token.problem) == (None, problem)
    assert as_dict(found)["problems"] == {"tokenizer.ggml.tokens": problem}


def test_text_that_is_not_utf8_hides_nothing_else():
    found = in_memory(
        ("general.architecture", gb.string("dflash")),
        ("general.name", gb.string(b"\xff\xfe")),
        ("dflash.block_size", gb.u32(8)),
        ("a.texts", gb.strings("fine", b"\xc3")),
    )
    assert found.drafter.facts["block_size"].value == 8
    assert as_dict(found)["problems"] == {"general.name": "not UTF-8"}
    assert {fact.key: fact.problem for fact in found.keys if fact.problem} == {
        "general.name": "not UTF-8",
        "a.texts": "not UTF-8",
    }


def test_values_of_the_wrong_type_are_named():
    found = in_memory(
        ("general.architecture", gb.string("dflash")),
        ("dflash.block_size", gb.string("8")),
        ("dflash.target_layers", gb.u32(3)),
        ("dflash.attention.causal", gb.u32(0)),
        ("tokenizer.ggml.mask_token_id", gb.numbers("i", 5, 3)),
    )
    assert as_dict(found)["problems"] == {
        "dflash.block_size": "string, expected an integer",
        "dflash.target_layers": "uint32, expected an array of integers",
        "dflash.attention.causal": "uint32, expected a boolean",
        "tokenizer.ggml.mask_token_id": "array[int32], expected an integer",
    }


def test_an_architecture_that_is_no_text():
    found = in_memory(("general.architecture", gb.u32(1)))
    assert (found.kind, found.architecture.problem) == ("unknown", "uint32, expected a string")


def test_json_has_no_nan_and_long_arrays_are_counted():
    nan, inf = struct.pack("<If", gb.FLOAT32, math.nan), struct.pack("<If", gb.FLOAT32, -math.inf)
    found = as_dict(
        in_memory(
            ("a.nan", nan),
            ("a.inf", inf),
            ("a.list", gb.numbers("f", gb.FLOAT32, 0.5, math.inf)),
            ("a.long", gb.numbers("i", 5, *range(257))),
        )
    )
    assert json.loads(json.dumps(found, allow_nan=False))["keys"] == [
        {"key": "a.nan", "type": "float32", "count": 1, "value": "nan", "problem": ""},
        {"key": "a.inf", "type": "float32", "count": 1, "value": "-inf", "problem": ""},
        {"key": "a.list", "type": "array[float32]", "count": 2, "value": [0.5, "inf"], "problem": ""},
        {"key": "a.long", "type": "array[int32]", "count": 257, "value": None, "problem": "257 items"},
    ]


def test_where_a_file_comes_from_is_in_its_own_order():
    keys = ("general.base_model.0.name", "general.quantized_by", "general.source.url", "general.name")
    found = in_memory(*((key, gb.string(key)) for key in (*keys, "general.tags_of_no_use")))
    assert [fact.key for fact in found.source] == list(keys)


def test_file_types_are_those_of_gguf_py():
    theirs = {kind.value: kind.name for kind in gguf_py.LlamaFileType if kind.name != "GUESSED"}
    assert {number: name.partition("_")[2] for number, name in theirs.items()} == {
        number: name for number, name in FILE_TYPES.items() if number in theirs
    }
    assert file_type_name(1024 + 15) == "Q4_K_M (guessed)"
    assert file_type_name(33) == "type 33"
    assert file_type_name(-1) == "type -1"


def test_text_is_escaped():
    text = "Größe 模型 \x1b[31m\n\u202e"
    assert printable(text) == printable(printable(text)) == "Größe 模型 \\x1b[31m\\n\\u202e"
    assert value_text(text + "\\n") == '"Größe 模型 \\x1b[31m\\n\\u202e\\\\n"'
    assert value_text(("a\n", True, 0.5)) == '["a\\n", true, 0.5]'
    assert json_value("a\udcff") == "a\\udcff"


# ---------------------------------------------------------------- diff


@pytest.fixture
def write(tmp_path):
    """Writes a file of keys (and two small tensors with this data) and returns its path."""

    def written(name, keys=gb.KEYS, tensors=gb.TENSORS, data=gb.DATA):
        path = tmp_path / name
        path.write_bytes(gguf(tuple(keys), tensors, data))
        return path

    return written


def changed(**keys):
    """gb.KEYS with some replaced: ``_`` stands for a dot, None takes one out."""
    new = {name.replace("_", ".", 1): value for name, value in keys.items()}
    kept = [(key, new.pop(key, value)) for key, value in gb.KEYS]
    return [(key, value) for key, value in (*kept, *new.items()) if value is not None]


def test_equal_files_are_the_same_whatever_their_order(write):
    first, second = write("a.gguf"), write("b.gguf", gb.KEYS[::-1])
    found = diff(first, second)
    assert (found.same, found.keys, found.tensors, found.data_compared) == (True, (), (), True)
    assert diff(first, second, data=False).data_compared is False


def test_keys_that_differ(write):
    second = changed(a_count=gb.u32(8), a_flag=None, a_size=gb.u32(1), a_new=gb.string("new"))
    found = diff(write("a.gguf"), write("b.gguf", second))
    assert not found.same
    assert [
        (change.key, change.what, change.first and change.first.value, change.second and change.second.value)
        for change in found.keys
    ] == [
        ("a.count", "value", 7, 8),
        ("a.flag", "only in first", True, None),
        ("a.size", "type", 1 << 40, 1),
        ("a.new", "only in second", None, "new"),
    ]
    assert [change.first.type for change in found.keys if change.what == "type"] == ["uint64"]


@pytest.mark.parametrize(
    ("tokens", "index", "first", "second"),
    [
        (gb.strings("a", "ß", "x", "long token"), 2, "", "x"),
        (gb.strings("a", "ß", "", "long token", "more"), 4, None, "more"),
        (gb.strings("a"), 1, "ß", None),
        (gb.strings(b"\xff", "ß", "", "long token"), 0, "a", None),
    ],
)
def test_lists_name_their_first_difference(tokens, index, first, second, write):
    other = [*gb.KEYS[:-1], ("tokenizer.ggml.tokens", tokens)]
    (change,) = diff(write("a.gguf"), write("b.gguf", other)).keys
    assert (change.what, change.index, change.first.value, change.second.value) == ("value", index, first, second)
    assert change.first.count == 4


def test_long_lists_name_their_first_difference(write):
    numbers = list(range(1000))
    first = write("a.gguf", [("a.list", gb.numbers("i", 5, *numbers))])
    numbers[700] = -1
    (change,) = diff(first, write("b.gguf", [("a.list", gb.numbers("i", 5, *numbers))])).keys
    assert (change.index, change.first.value, change.second.value) == (700, 700, -1)


def test_texts_name_their_first_different_character(write):
    first, second = (write(name, [("a.text", gb.string(f"{'ß' * 100}{name}"))]) for name in ("a", "b"))
    (change,) = diff(first, second).keys
    assert change.index == 100


def test_tensors_that_differ(write):
    tensors = (gb.tensor("first.weight", (24,), 0, 0), gb.tensor("second.weight", (17,), 1, 96))
    third = (gb.tensor("third.weight", (32,), 8, 0),)
    first = write("a.gguf")
    assert [(c.name, c.what, c.first, c.second) for c in diff(first, write("b.gguf", tensors=tensors)).tensors] == [
        ("first.weight", "shape", "[8, 3]", "[24]"),
        ("second.weight", "shape", "[32]", "[17]"),
        ("second.weight", "type", "Q8_0", "F16"),
    ]
    assert [(c.name, c.what, c.first, c.second) for c in diff(first, write("c.gguf", tensors=third)).tensors] == [
        ("first.weight", "only in first", "[8, 3] F32", None),
        ("second.weight", "only in first", "[32] Q8_0", None),
        ("third.weight", "only in second", None, "[32] Q8_0"),
    ]


@pytest.mark.parametrize(("place", "name", "index"), [(0, "first.weight", 0), (97, "second.weight", 1)])
def test_data_is_compared_unless_told_otherwise(place, name, index, write):
    data = bytearray(gb.DATA)
    data[place] = 1
    first, second = write("a.gguf"), write("b.gguf", data=bytes(data))
    (change,) = diff(first, second).tensors
    assert (change.name, change.what, change.index) == (name, "data", index)
    assert diff(first, second, data=False).same


def test_data_behind_headers_of_different_lengths_is_compared(write):
    assert diff(write("a.gguf"), write("b.gguf", gb.KEYS[:2])).tensors == ()


def test_data_is_read_in_chunks(write, monkeypatch):
    monkeypatch.setattr(difference, "CHUNK", 7)
    data = bytearray(gb.DATA)
    data[50] = 1
    seen = []
    first, second = write("a.gguf"), write("b.gguf", data=bytes(data))
    found = diff(first, second, progress=lambda done, total: seen.append((done, total)))
    assert [change.index for change in found.tensors] == [50]
    assert seen == [(96, 130), (130, 130)]
    assert CHUNK <= 16 << 20


def test_a_difference_is_plain_json(write):
    nan = struct.pack("<If", gb.FLOAT32, math.nan)
    found = diff(write("a.gguf"), write("b.gguf", changed(a_base=nan, a_flag=None)))
    plain = json.loads(json.dumps(difference.as_dict(found), allow_nan=False))
    assert (plain["same"], plain["data_compared"], plain["tensors"]) == (False, True, [])
    assert plain["keys"] == [
        {
            "key": "a.base",
            "what": "value",
            "first": {"type": "float32", "count": 1, "value": 0.5, "problem": ""},
            "second": {"type": "float32", "count": 1, "value": "nan", "problem": ""},
            "index": None,
        },
        {
            "key": "a.flag",
            "what": "only in first",
            "first": {"type": "bool", "count": 1, "value": True, "problem": ""},
            "second": None,
            "index": None,
        },
    ]


def test_a_file_that_is_missing_or_broken_is_a_gguf_error(write, tmp_path):
    (tmp_path / "b.gguf").write_bytes(b"no")
    for other in ("b.gguf", "none.gguf"):
        with pytest.raises(GGUFError):
            diff(write("a.gguf"), tmp_path / other)


# ---------------------------------------------------------------- hostile files


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The header of a drafter, and room for its data."""
    small = SMALL | {"hidden": 32, "ffn": 32, "rank": 32}
    return tiny.write_drafter(tmp_path_factory.mktemp("real") / "d.gguf", **small).read_bytes()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused(real, data):
    changed_bytes = bytearray(real)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, 8000))
        piece = data.draw(st.binary(min_size=1, max_size=8))
        changed_bytes[place : place + len(piece)] = piece
    with suppress(GGUFError):
        json.dumps(as_dict(inspect(read_header(Memory(bytes(changed_bytes))))), allow_nan=False)
