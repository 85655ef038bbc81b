"""A target from a GGUF, split or whole, and from a folder: facts, tensors, and what is refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import tiny
from tiny_files import write_safetensors
from tiny_folder import VOCAB, change, write_target_folder
from tokenizers import Tokenizer

from dflash_gguf.convert import architectures
from dflash_gguf.convert.target import EMBEDDING, HEAD, Target, load_target, tokenizer_keys
from dflash_gguf.convert.vocab import pre
from dflash_gguf.errors import CheckpointError, GGUFError, PairError
from dflash_gguf.ggml_types import BF16
from dflash_gguf.schema import TAP_TARGETS

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {"hidden": 64, "ffn": 64, "layers": 1, "heads": 1, "kv_heads": 1, "vocab": 300}
NAMES = ("model.embed_tokens.weight", "lm_head.weight")


@pytest.fixture(autouse=True)
def known_pre_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_target_folder(tmp_path / "known")
    ids = Tokenizer.from_file(str(made / "tokenizer.json")).encode(pre.CHECK_TEXT).ids
    monkeypatch.setitem(pre.PRE_TOKENIZERS, hashlib.sha256(str(ids).encode()).hexdigest(), "gpt-2")


def read(target: Target, name: str) -> bytes:
    tensor = target.tensors[name]
    with tensor.file.open("rb") as file:
        file.seek(tensor.offset)
        return file.read(tensor.nbytes)


# ---------------------------------------------------------------- a GGUF


def test_a_gguf(tmp_path: Path) -> None:
    path = tiny.write_target(tmp_path / "Tiny-Q8_0.gguf", type="BF16", **SMALL)
    target = load_target(path)
    assert (target.name, target.title) == (str(path), "tiny-qwen3")
    assert (target.mrope, target.tied) == (False, False)
    facts = target.facts
    assert (facts.architecture, facts.hidden_size, facts.n_layers, facts.vocab_size) == ("qwen3", 64, 1, 300)
    assert (facts.eos_token_ids, facts.pad_token_ids, facts.n_padded) == ((1, 2), (5,), 0)
    by_name = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for name in (EMBEDDING, HEAD):
        tensor = target.tensors[name]
        assert (tensor.name, tensor.file, tensor.shape, tensor.type) == (name, path, (64, 300), BF16)
        assert read(target, name) == by_name[name].data.tobytes()


def test_a_tied_gguf_with_padding(tmp_path: Path) -> None:
    tokens = [*tiny.tokenizer_keys(300)["tokenizer.ggml.tokens"][:-2], "[PAD298]", "[PAD299]"]
    path = tiny.write_target(tmp_path / "t.gguf", tied=True, extra_keys={"tokenizer.ggml.tokens": tokens}, **SMALL)
    target = load_target(path)
    assert target.tied
    assert set(target.tensors) == {EMBEDDING}
    assert target.facts.n_padded == 2


def split(tmp_path: Path, *parts: list[str]) -> list[Path]:
    """A target whose tensors lie in several files, as gguf-split writes them."""
    dims = replace(tiny.TARGET, **SMALL)
    arrays, paths = tiny.target_arrays("qwen3", dims), []
    for i, names in enumerate(parts):
        path = tmp_path / f"t-{i + 1:05}-of-{len(parts):05}.gguf"
        count = {"split.no": i, "split.count": len(parts)}
        if i == 0:
            tiny.write_target(path, drop_tensors=arrays.keys() - set(names), extra_keys=count, **SMALL)
        else:
            tiny.write_gguf(path, "qwen3", count, {name: arrays[name] for name in names})
        paths.append(path)
    return paths


def test_a_split_gguf(tmp_path: Path) -> None:
    paths = split(tmp_path, ["output_norm.weight"], [HEAD], [EMBEDDING])
    target = load_target(paths[0])
    assert target.tied is False
    assert target.title == "tiny-qwen3"
    arrays = tiny.target_arrays("qwen3", replace(tiny.TARGET, **SMALL))
    for name, path in ((HEAD, paths[1]), (EMBEDDING, paths[2])):
        assert target.tensors[name].file == path
        assert read(target, name) == arrays[name].tobytes()
    paths[1].unlink()
    target = load_target(paths[0])
    assert (set(target.tensors), target.tied) == ({EMBEDDING}, None)
    with pytest.raises(GGUFError, match=r"has no tokenizer.*first shard"):
        load_target(paths[2])


def test_the_mask_token_takes_its_place_or_the_last(tmp_path: Path) -> None:
    plain = load_target(tiny.write_target(tmp_path / "plain.gguf", **SMALL))
    assert [pair.key for pair in tokenizer_keys(plain, 7)][-1] == "tokenizer.ggml.mask_token_id"
    keys = {"tokenizer.ggml.mask_token_id": 3}
    masked = load_target(tiny.write_target(tmp_path / "masked.gguf", extra_keys=keys, **SMALL))
    found = {pair.key: pair.value for pair in tokenizer_keys(masked, 7)}
    assert list(found) == [pair.key for pair in masked.tokenizer]
    assert found["tokenizer.ggml.mask_token_id"] == 7


def test_a_gguf_needs_no_tokenizers_library(tmp_path: Path) -> None:
    path = tiny.write_target(tmp_path / "t.gguf", **SMALL)
    code = (
        "import sys; from dflash_gguf.convert.target import load_target; load_target(sys.argv[1]);"
        "print('tokenizers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# ---------------------------------------------------------------- a folder


def test_a_folder(tmp_path: Path) -> None:
    folder = write_target_folder(
        tmp_path / "Tiny-0.1B", names=NAMES, config={"eos_token_id": [1, 4], "pad_token_id": 9}
    )
    (folder / "generation_config.json").write_text('{"eos_token_id": [2]}')
    target = load_target(folder)
    assert (target.name, target.title) == (str(folder), "Tiny-0.1B")
    assert (target.mrope, target.tied) == (False, False)
    facts = target.facts
    assert (facts.architecture, facts.hidden_size, facts.n_layers, facts.vocab_size) == ("qwen3", 64, 4, VOCAB)
    assert (facts.eos_token_ids, facts.pad_token_ids, facts.n_padded) == ((1, 2, 4), (5, 9), 0)
    for name, source in zip((EMBEDDING, HEAD), NAMES, strict=True):
        tensor = target.tensors[name]
        assert (tensor.name, tensor.shape, tensor.type, tensor.nbytes) == (source, (64, VOCAB), BF16, VOCAB * 128)
        assert read(target, name)[:4] == b"\0\0\x80?"


def test_a_folder_and_a_gguf_of_one_model_agree(tmp_path: Path) -> None:
    keys = {"tokenizer.ggml.eot_token_id": None}
    path = tiny.write_target(tmp_path / "t.gguf", drop_keys=keys, **SMALL | {"layers": 4})
    folder = write_target_folder(tmp_path / "target", names=NAMES)
    theirs, ours = load_target(path), load_target(folder)
    assert ours.facts == theirs.facts
    assert {pair.key: pair.raw for pair in ours.tokenizer} == {pair.key: pair.raw for pair in theirs.tokenizer}


@pytest.mark.parametrize(
    ("embedding", "head"),
    [
        ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
        ("backbone.embeddings.weight", "lm_head.weight"),
        ("model.word_embeddings.weight", "lm_head.weight"),
        ("embed.weight", "head.weight"),
    ],
)
def test_names_of_the_tensors(embedding: str, head: str, tmp_path: Path) -> None:
    others = ("model.layers.3.embed_tokens.weight", "model.embed_tokens_per_layer.weight", "vision.head.weight")
    target = load_target(write_target_folder(tmp_path / "target", names=(embedding, head, *others)))
    assert {tensor.name for tensor in target.tensors.values()} == {embedding, head}


def test_several_embedding_tables_are_named(tmp_path: Path) -> None:
    folder = write_target_folder(tmp_path / "target", names=("embed_tokens.weight", "model.embed_tokens.weight"))
    with pytest.raises(CheckpointError, match=r"embed_tokens.weight, model.embed_tokens.weight"):
        load_target(folder)


def index(folder: Path, places: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def test_shards_by_index(tmp_path: Path) -> None:
    folder = write_target_folder(tmp_path / "target")
    table = np.ones((VOCAB, 64), np.float32)
    write_safetensors(folder / "odd-a.safetensors", {NAMES[0]: table})
    write_safetensors(folder / "odd-b.safetensors", {NAMES[1]: table})
    (folder / "odd-c.safetensors").write_bytes(b"never read")
    index(folder, {NAMES[0]: "odd-a.safetensors", NAMES[1]: "odd-b.safetensors", "x": "odd-c.safetensors"})
    target = load_target(folder)
    assert [tensor.file.name for tensor in target.tensors.values()] == ["odd-a.safetensors", "odd-b.safetensors"]
    (folder / "odd-b.safetensors").unlink()
    target = load_target(folder)
    assert (set(target.tensors), target.tied) == ({EMBEDDING}, False)
    index(folder, {NAMES[0]: "odd-a.safetensors", NAMES[1]: "odd-a.safetensors"})
    with pytest.raises(CheckpointError, match="which the index puts there"):
        load_target(folder)
    index(folder, [1])
    with pytest.raises(CheckpointError, match="weight_map"):
        load_target(folder)
    index(folder, {NAMES[0]: "../outside.safetensors"})
    assert load_target(folder).tensors == {}


def test_a_type_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    folder = write_target_folder(tmp_path / "target")
    write_safetensors(folder / "model.safetensors", {NAMES[0]: np.ones((4, 4), np.int64), NAMES[1]: np.ones((4, 4))})
    target = load_target(folder)
    assert (set(target.tensors), target.tied) == ({HEAD}, False)


@pytest.mark.parametrize(
    ("names", "config", "tied"),
    [
        (NAMES, True, False),
        (NAMES[:1], False, False),
        (NAMES[:1], None, True),
        ((), False, False),
        ((), True, True),
        ((), None, None),
    ],
)
def test_tied_embeddings_by_tensors_then_by_config(
    names: tuple[str, ...], config: bool | None, tied: bool | None, tmp_path: Path
) -> None:
    folder = write_target_folder(tmp_path / "target", names=names, config={"tie_word_embeddings": config})
    assert load_target(folder).tied is tied


def test_a_nested_text_config(tmp_path: Path) -> None:
    text = {"hidden_size": 32, "num_hidden_layers": 7, "rope_parameters": {"mrope_section": [1, 1, 1]}}
    labels = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": text}
    target = load_target(write_target_folder(tmp_path / "target", config=labels))
    facts = target.facts
    assert (facts.architecture, facts.hidden_size, facts.n_layers, target.mrope) == ("qwen35", 32, 7, True)
    inner = labels | {"text_config": text | {"architectures": ["Qwen3ForCausalLM"], "rope_parameters": None}}
    target = load_target(write_target_folder(tmp_path / "inner", config=inner))
    assert (target.facts.architecture, target.mrope) == ("qwen3", False)


@pytest.mark.parametrize(
    ("config", "architecture", "layers"),
    [
        ({"architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "M*-*M"}, "nemotron_h", 5),
        ({"architectures": ["NemotronHForCausalLM"], "num_experts_per_tok": 2}, "nemotron_h_moe", 4),
        ({"architectures": [], "model_type": "gpt_oss"}, "gpt-oss", 4),
        ({"architectures": ["MixtralForCausalLM"]}, "llama", 4),
        ({"architectures": ["Glm5NextForConditionalGeneration"]}, "glm5-next", 4),
    ],
)
def test_architectures(config: dict[str, Any], architecture: str, layers: int, tmp_path: Path) -> None:
    facts = load_target(write_target_folder(tmp_path / "target", config=config)).facts
    assert (facts.architecture, facts.n_layers) == (architecture, layers)


def test_every_architecture_that_exposes_taps_has_a_row() -> None:
    rows = {row.name for row in architectures.ARCHITECTURES.values()} | {"nemotron_h_moe"}
    assert rows >= set(TAP_TARGETS)
    assert {architectures.ARCHITECTURES[name].name for name in architectures.MODEL_TYPES.values()} <= set(TAP_TARGETS)
    refused = {row.name for row in architectures.ARCHITECTURES.values() if row.vocabulary == architectures.REFUSED}
    assert not refused & set(TAP_TARGETS)


def test_the_name_of_a_download(tmp_path: Path) -> None:
    folder = tmp_path / "models--Qwen--Qwen3-4B" / "snapshots" / "0123abcd"
    assert load_target(write_target_folder(folder)).title == "Qwen3-4B"


# ---------------------------------------------------------------- refusals


def test_neither_a_gguf_nor_a_folder(tmp_path: Path) -> None:
    expected = "a GGUF file, or a folder with config.json and tokenizer.json"
    with pytest.raises(GGUFError, match=f"absent` cannot be read: no such file or directory, expected {expected}"):
        load_target(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(CheckpointError, match=f"is no GGUF file, expected {expected}"):
        load_target(tmp_path / "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match=f"has no config.json, expected {expected}"):
        load_target(tmp_path / "folder")
    (tmp_path / "folder" / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=f"has no tokenizer.json, expected {expected}"):
        load_target(tmp_path / "folder")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["NoSuchForCausalLM"]}, "`NoSuchForCausalLM` is not known here; pass the target's GGUF"),
        ({"architectures": None}, "names no architecture"),
        ({"architectures": [7], "model_type": ["x"]}, "names no architecture"),
        ({"hidden_size": None}, "has no `hidden_size`; pass the target's GGUF"),
        ({"num_hidden_layers": None}, "has no `num_hidden_layers`"),
        ({"hidden_size": "64"}, "`hidden_size` in the target's config.json is '64'"),
        ({"vocab_size": True}, "`vocab_size`"),
        ({"vocab_size": 4}, "vocab_size: got 4"),
    ],
)
def test_configs_that_are_refused(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write_target_folder(tmp_path / "target")
    change(folder, "config.json", **config)
    with pytest.raises(CheckpointError, match=message):
        load_target(folder)


@pytest.mark.parametrize(
    "label", ["Gemma3ForConditionalGeneration", "KimiK3ForConditionalGeneration", "LagunaForCausalLM"]
)
def test_targets_that_nothing_can_be_done_with(label: str, tmp_path: Path) -> None:
    folder = write_target_folder(tmp_path / "target", config={"architectures": [label]})
    with pytest.raises(PairError, match="does not expose the layer inputs"):
        load_target(folder)
