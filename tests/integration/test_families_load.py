"""Every family, converted, loads in libllama beside a target of its sizes and decodes a block to finite numbers."""

from __future__ import annotations

import libllama
import numpy as np
import pytest
import zoo
from families import changed, target_of
from zoo.files import floats

from dflash_gguf.convert import api
from dflash_gguf.convert.overrides import Overrides

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 64.0, "original_max_position_embeddings": 16}
MAGNITUDE = 0.1 * np.log(64.0) + 1


def block(name, path, first=0):
    """float32 [4, n_vocab]: logits of a block of mask tokens."""
    with (
        libllama.Model(target_of(name, arch="qwen3")) as target,
        libllama.Model(path, other=target, n_batch=64, n_ubatch=64) as drafter,
    ):
        drafter.decode(libllama.batch([zoo.FAMILIES[name].dims.mask] * 4, first=first, outputs=True))
        return np.stack([drafter.logits(i) for i in range(4)])


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_a_block_through_libllama(tmp_path, name):
    checkpoint = zoo.write_checkpoint(name, tmp_path)
    options = Overrides(**zoo.FAMILIES[name].options)
    path = api.convert(checkpoint, target_of(name), "Q4_K_M", tmp_path / "drafter.gguf", overrides=options).path
    logits = block(name, path)
    known = np.isfinite(logits)
    # A reduced vocabulary leaves the tokens that it does not know at minus infinity.
    assert known.any()
    assert (known | (logits == -np.inf)).all()


def test_yarns_magnitude_is_the_configs(tmp_path):
    """A factor of 1 equals llama.cpp's own magnitude with both norms divided by it."""
    content = zoo.content("zlab-v1-old")
    norms = [f"layers.{i}.self_attn.{n}_norm.weight" for i in range(2) for n in "qk"]
    smaller = floats({n: content.tensors[n].values / np.float32(MAGNITUDE) for n in norms}, "F32")
    made = []
    for keys, tensors in (({"attention_factor": 1.0}, {}), ({}, smaller), ({}, {})):
        keyed = changed(content, tensors=tensors, rope_theta=..., rope_scaling=..., rope_parameters=YARN | keys)
        folder = tmp_path / str(len(made))
        checkpoint = zoo.write_content(folder / "drafter", keyed)
        path = api.convert(checkpoint, target_of("zlab-v1-old"), "F32", folder / "out.gguf").path
        made.append(block("zlab-v1-old", path, first=40))
    assert np.abs(made[0] - made[1]).max() < 3e-3  # keys are kept in F16, and round as the processor multiplies
    assert np.abs(made[0] - made[2]).max() > 1e-2
