"""The tiny models are what they say: real files, loadable, with varied greedy text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
import safetensors
import tiny
import tiny_vocab
from libllama import Model

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "Hello, world: größe 123\n\tdef f(x): return x"


@pytest.mark.parametrize(("arch", "type"), [("qwen3", "F32"), ("qwen3", "Q8_0"), ("llama", "BF16"), ("llama", "F16")])
def test_targets_load_and_write_varied_text(arch: str, type: str, tmp_path: Path) -> None:  # noqa: A002
    path = tiny.write_target(tmp_path / "target.gguf", arch, type)
    with Model(path) as model:
        assert model.n_vocab == tiny.TARGET.vocab
        prompt = model.tokenize(TEXT)
        assert b"".join(map(model.piece, prompt)).decode() == TEXT
        out = model.greedy(prompt, 64)
        logits = model.logits()
    assert len(set(out)) > 24
    assert not set(out) & set(range(len(tiny_vocab.SPECIALS)))
    assert 2 < logits.std() < 5


def test_special_tokens_are_one_token_each(tiny_target: Path) -> None:
    with Model(tiny_target) as model:
        assert model.tokenize("".join(tiny_vocab.SPECIALS)) == list(range(len(tiny_vocab.SPECIALS)))
        assert model.tokenize("a<|im_end|>")[-1] == tiny_vocab.EOT_ID


@pytest.mark.parametrize("kind", ["dflash2", "dflash", "dspark"])
def test_drafters_load(kind: str, tmp_path: Path) -> None:
    path = tiny.write_drafter(tmp_path / "drafter.gguf", kind=kind, window=16)
    target = tiny.write_target(tmp_path / "target.gguf", tied=True)
    with Model(target) as main, Model(path, other=main) as drafter:
        assert drafter.n_vocab == tiny.DRAFTER.vocab


def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
    files = [tiny.write_drafter(tmp_path / f"{i}.gguf", seed=seed, layers=1) for i, seed in enumerate((5, 5, 6))]
    first, second, third = (file.read_bytes() for file in files)
    assert first == second != third


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_checkpoints_hold_the_stated_values(dtype: str, tmp_path: Path) -> None:
    folder = tiny.write_checkpoint(tmp_path / "checkpoint", dtype=dtype, layers=1)
    values = tiny.checkpoint_values(dtype=dtype, layers=1)
    read = safetensors.deserialize((folder / "model.safetensors").read_bytes())
    assert {name for name, _ in read} == set(values)
    for name, tensor in read:
        assert tensor["dtype"] == dtype
        assert tuple(tensor["shape"]) == values[name].shape
        assert bytes(tensor["data"]) == tiny.encode(values[name], dtype)


def test_shards_and_overrides(tmp_path: Path) -> None:
    folder = tiny.write_checkpoint(
        tmp_path,
        shards=3,
        prefix="model.",
        layers=1,
        config={"is_causal": True, "dflash_config": {"mask_token_id": 5}},
        drop_config=["block_size", "dflash_config.selector_rank"],
        tensors={"extra.weight": np.ones((2, 2), np.float32)},
        drop_tensors=["fc.weight"],
    )
    config = json.loads((folder / "config.json").read_text())
    assert "block_size" not in config
    assert "selector_rank" not in config["dflash_config"]
    assert (config["is_causal"], config["dflash_config"]["mask_token_id"]) == (True, 5)
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert "model.extra.weight" in weight_map
    assert "model.fc.weight" not in weight_map
    assert {file.name for file in folder.glob("*.safetensors")} == set(weight_map.values())


def test_gguf_overrides(tmp_path: Path) -> None:
    path = tiny.write_drafter(
        tmp_path / "d.gguf",
        layers=1,
        extra_keys={"dflash.logit_scale": 0.5, "x": (7, gguf.GGUFValueType.INT8)},
        drop_keys=["dflash.block_size"],
        drop_tensors=["fc.weight"],
        type="BF16",
    )
    reader = gguf.GGUFReader(path)
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert reader.fields["dflash.logit_scale"].contents() == 0.5
    assert reader.fields["x"].types == [gguf.GGUFValueType.INT8]
    assert "dflash.block_size" not in reader.fields
    assert "fc.weight" not in types
    assert (types["blk.0.attn_q.weight"], types["blk.0.attn_norm.weight"]) == ("BF16", "F32")
    assert (types["blk.0.attn_conv_base"], types["selector_hidden.weight"]) == ("F32", "BF16")


@pytest.mark.parametrize("vocab", [262, 300, 512, 900])
def test_vocabularies_have_the_asked_size(vocab: int) -> None:
    tokens = tiny_vocab.tokens(vocab)
    assert len(tokens) == len(set(tokens)) == vocab
