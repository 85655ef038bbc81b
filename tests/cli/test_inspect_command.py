"""`dflash-gguf inspect` as a user types it: what it prints, its one object, and its exit codes."""

import json
import subprocess
import sys

import gguf_bytes as gb
import pytest
import tiny

SMALL = {"hidden": 288, "ffn": 64, "layers": 1, "heads": 2, "kv_heads": 1, "taps": (0,), "vocab": 300}


def dflash(*words):
    return subprocess.run(
        [sys.executable, "-m", "dflash_gguf", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rows(text):
    """The first table: name -> value."""
    table, _, _ = text.partition("\n\n")
    return {name.strip(): value.strip() for name, _, value in (line.partition("  ") for line in table.splitlines())}


@pytest.fixture(scope="module")
def drafter(tmp_path_factory):
    return tiny.write_drafter(tmp_path_factory.mktemp("inspect") / "d.gguf", window=64, **SMALL)


def test_a_person_reads_two_tables(drafter):
    done = dflash("inspect", drafter)
    assert (done.returncode, done.stderr) == (0, "")
    found = rows(done.stdout)
    assert found["kind"] == "DFlash 2"
    assert found["taps, as layer inputs"] == "1"
    assert found["taps, as the checkpoint's layers"] == "0"
    assert found["block_size"] == "8"
    assert found["mask_token"] == '"<|mask|>"'
    assert found["sliding_window"] == "64"
    assert found["sliding_window_pattern"] == "[true]"
    assert found["bits per weight"] == "32.00"
    assert found["general.name"] == '"tiny dflash"'
    assert found["file"] == f"{drafter}, {drafter.stat().st_size} bytes, GGUF version 3"
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["fc.weight", "[288,", "288]", "F32", str(288 * 288 * 4)] in lines


def test_json_is_one_object(drafter):
    done = dflash("inspect", drafter, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert found["drafter"]["target_layers"] == [1]
    assert found["drafter"]["target_layer_ids"] == [0]
    assert found["drafter"]["mask_token"] == "<|mask|>"
    assert found["dims"]["sliding_window"] == 64
    assert found["bits_per_weight"] == 32.0
    assert found["tensors"][0] == {"name": "fc.weight", "shape": [288, 288], "type": "F32", "n_bytes": 288 * 288 * 4}


def test_a_forks_file_names_the_command_that_helps(tmp_path):
    path = tmp_path / "a fork.gguf"
    path.write_bytes(gb.gguf((("general.architecture", gb.string("dflash-draft")),), (), b""))
    done = dflash("inspect", path)
    assert rows(done.stdout)["kind"] == "fork format dflash-draft"
    assert rows(done.stdout)["block_size"] == "not stated"
    assert done.stdout.endswith(f"  dflash-gguf rekey '{path}' 'a fork-rekeyed.gguf'\n")


def test_hostile_text_is_escaped(tmp_path):
    path = tmp_path / "h.gguf"
    keys = (("general.name", gb.string("\x1b[2J\nx")), ("general.source.\x1b", gb.string(b"\xff")))
    path.write_bytes(gb.gguf(keys, (gb.tensor("a\x07", (8,), 0, 0),), bytes(32)))
    done = dflash("inspect", path)
    assert done.returncode == 0
    assert rows(done.stdout)["general.name"] == '"\\x1b[2J\\nx"'
    assert rows(done.stdout)["general.source.\\x1b"] == "not UTF-8"
    assert "a\\x07" in done.stdout
    assert not {char for char in done.stdout if not char.isprintable()} - {"\n"}


def test_the_same_file_has_no_difference(drafter):
    done = dflash("inspect", drafter, "--diff", drafter)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the same keys and tensors\n", "")
    found = json.loads(dflash("inspect", drafter, "--diff", drafter, "--json").stdout)
    assert (found["same"], found["keys"], found["tensors"]) == (True, [], [])


def test_what_differs_is_a_table_and_exit_code_3(drafter, tmp_path):
    tokens = ["<|other|>", *tiny.drafter_keys(tiny.Dims(vocab=300))["tokenizer.ggml.tokens"][1:]]
    keys = {"general.quantized_by": "me\x1b", "tokenizer.ggml.tokens": tokens}
    other = tiny.write_drafter(tmp_path / "o.gguf", window=64, block=6, type="F16", extra_keys=keys, **SMALL)
    done = dflash("inspect", drafter, "--diff", other)
    assert (done.returncode, done.stderr) == (3, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "dflash.block_size value 8 -> 6" in lines
    assert 'general.quantized_by only in second "me\\x1b"' in lines
    assert 'tokenizer.ggml.tokens value first at item 0: "<|bos|>" -> "<|other|>"' in lines
    assert "fc.weight type F32 -> F16" in lines
    assert not any(line.startswith("enc.output_norm.weight") for line in lines)
    found = json.loads(dflash("inspect", drafter, "--diff", other, "--json").stdout)
    assert (found["same"], found["data_compared"]) == (False, True)
    assert {change["key"] for change in found["keys"]} == {"dflash.block_size", *keys}
    assert lines[-1].startswith(f"keys that differ: 3, tensors that differ: {len(found['tensors'])};")


def test_data_counts_unless_only_headers_are_wanted(drafter, tmp_path):
    other = tmp_path / "o.gguf"
    data = bytearray(drafter.read_bytes())
    data[-1] ^= 1
    other.write_bytes(data)
    done = dflash("inspect", drafter, "--diff", other)
    assert done.returncode == 3
    assert "keys that differ: 0, tensors that differ: 1; compared: keys and tensors" in done.stdout
    assert f"first at byte {288 * 32 * 4 - 1}" in done.stdout
    done = dflash("inspect", drafter, "--diff", other, "--headers-only")
    assert done.returncode == 0
    assert done.stdout == "the same keys and the tensor table (data was not compared)\n"


def test_long_texts_are_shown_from_where_they_differ(tmp_path):
    for name in "ab":
        keys = (("tokenizer.chat_template", gb.string("x" * 500 + name * 100)),)
        (tmp_path / name).write_bytes(gb.gguf(keys, (), b""))
    done = dflash("inspect", tmp_path / "a", "--diff", tmp_path / "b")
    assert f'from character 500: "{"a" * 56}... -> "{"b" * 56}...' in done.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["none.gguf"], 1),
        (["d.gguf", "--diff", "none.gguf"], 1),
        (["broken.gguf"], 1),
        ([], 2),
        (["d.gguf", "--headers-only"], 2),
    ],
)
def test_failures_are_one_line(words, code, drafter, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    places = {"d.gguf": drafter, "broken.gguf": tmp_path / "broken.gguf", "none.gguf": tmp_path / "none.gguf"}
    done = dflash("inspect", *(places.get(word, word) for word in words))
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "fault in dflash-gguf" not in line


def test_it_loads_neither_numpy_nor_libllama(drafter):
    words = ["inspect", str(drafter), "--diff", str(drafter)]
    script = (
        "import sys; from dflash_gguf.cli import root\n"
        f"for words in (['inspect', '--help'], ['doctor', '--help'], {words!r}, {words[:2]!r}):\n"
        "    root.main(words, standalone_mode=False)\n"
        "sys.exit(bool({'numpy', 'llama_cpp', 'huggingface_hub', 'gguf', 'dflash_gguf._core'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=60).returncode == 0
