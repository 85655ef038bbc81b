"""The zoo is what it says: formats as their writers make them, and one golden record a family."""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zoo
from zoo.small_floats import E2M1, E4M3, fp8_block_scaled, fp8_tensor_scaled, nvfp4
from zoo.torch_file import mask_embedding

GOLDEN = Path(__file__).parent.parent / "golden" / "families"
MATRIX = np.random.default_rng(0).standard_normal((192, 256)).astype(np.float32)


def signed(bits, table, sign):
    return np.where(bits & sign, -1, 1) * table[bits & (sign - 1)]


def test_the_mask_embedding_is_torchs_file_byte_for_byte():
    data = mask_embedding(3, np.random.default_rng(0).standard_normal(256).astype(np.float32))
    # SHA-256 of what torch 2.13.0's torch.save makes of the same two values.
    assert hashlib.sha256(data).hexdigest() == "d644237e4809d95d0828688c30e8446e2ade3739c73f2931717cfc7bd99f6ee6"
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    assert archive.getinfo("mask_embedding/data/0").file_size == 512


@pytest.mark.parametrize("name", zoo.ROWS)
def test_every_family_is_the_same_each_time_and_another_for_another_seed(name):
    first, again, other = zoo.content(name), zoo.content(name), zoo.content(name, seed=2)
    assert first == again
    assert list(first.tensors) == list(other.tensors)
    assert first.tensors != other.tensors


def test_every_family_that_converts_has_its_golden_record():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(zoo.FAMILIES)


def test_fp8_stands_for_its_matrix():
    one = fp8_tensor_scaled("w.weight", MATRIX)
    bits = np.frombuffer(one["w.weight"].data, np.uint8).reshape(MATRIX.shape)
    scale = np.frombuffer(one["w.weight_scale"].data, np.float32)
    assert (np.abs(signed(bits, E4M3, 128) * scale - MATRIX) <= np.abs(MATRIX) / 16 + 1e-3).all()
    blocks = fp8_block_scaled("w.weight", MATRIX)
    bits = np.frombuffer(blocks["w.weight"].data, np.uint8).reshape(MATRIX.shape)
    scales = blocks["w.weight_scale_inv"].values.repeat(128, 0)[:192].repeat(128, 1)
    assert (np.abs(signed(bits, E4M3, 128) * scales - MATRIX) <= np.abs(MATRIX) / 16 + 1e-3).all()


def test_nvfp4_stands_for_its_matrix():
    parts = nvfp4("w.weight", MATRIX)
    packed = np.frombuffer(parts["w.weight"].data, np.uint8).reshape(192, 128)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(MATRIX.shape)
    scales = E4M3[np.frombuffer(parts["w.weight_scale"].data, np.uint8)].reshape(192, 16).repeat(16, 1)
    whole = np.frombuffer(parts["w.weight_scale_2"].data, np.float32)
    largest = np.abs(MATRIX).reshape(192, 16, 16).max(-1).repeat(16, 1)
    assert (np.abs(signed(codes, E2M1, 8) * scales * whole - MATRIX) <= largest / 4).all()
