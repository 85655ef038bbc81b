"""The shape of a drafter to be trained: what its target decides, what may be chosen, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tiny
import tiny_targets

from dflash_gguf.convert.api import convert, plan
from dflash_gguf.errors import DflashError, TrainError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.train.shape import LAYER_TENSORS, TENSORS, Asked, shape_of, spread_taps

if TYPE_CHECKING:
    from pathlib import Path


def shape_for(path: Path, **asked: Any) -> Any:
    return shape_of(read_header(path), Asked(**asked), 3)


def test_sizes_are_the_targets(tiny_target: Path) -> None:
    shape = shape_for(tiny_target)
    assert (shape.hidden, shape.ffn, shape.heads, shape.kv_heads, shape.head_dim) == (512, 1024, 8, 4, 64)
    assert (shape.vocab, shape.eps, shape.rope_base, shape.context) == (512, 1e-6, 10000.0, 2048)
    assert (shape.taps, shape.n_features) == ((1, 2), 1024)
    assert shape.input_scale == 1.0
    assert "input_embedding_scale" not in shape.config()["dflash_config"]


def test_what_positions_and_norms_are_computed_with_is_the_targets(tmp_path: Path) -> None:
    """And no default; the config says it."""
    shape = shape_for(tiny.write_target(tmp_path / "target.gguf", eps=1e-5, rope_base=500_000.0))
    assert (shape.eps, shape.rope_base) == (1e-5, 500_000.0)
    assert (shape.config()["rms_norm_eps"], shape.config()["rope_theta"]) == (1e-5, 500_000.0)


def test_a_gemma_scales_its_embeddings(tmp_path: Path) -> None:
    """By the square root of their width, in the drafter as in the target."""
    shape = shape_for(tiny_targets.write_gemma4(tmp_path / "gemma4.gguf"))
    assert shape.input_scale == 512**0.5
    assert shape.config()["dflash_config"]["input_embedding_scale"] == 512**0.5


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
def test_the_config_is_one_that_convert_takes(kind: str, tiny_target: Path, tmp_path: Path) -> None:
    shape = shape_for(tiny_target, kind=kind, taps=(0, 1, 2))
    config = shape.config()
    tiny.write_checkpoint(tmp_path, kind=kind, config=config, taps=(0, 1, 2))
    planned = plan(tmp_path, tiny_target, "BF16")
    assert not planned.notes
    assert config["dflash_config"]["target_layer_ids"] == [0, 1, 2]
    assert config["num_target_layers"] == 4
    assert config["is_causal"] is False


def test_mixed_layers_give_the_heads_of_those_with_attention(tmp_path: Path) -> None:
    shape = shape_for(tiny_targets.write_lfm2(tmp_path / "lfm2.gguf"))
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (8, 4, 64)


def test_experts_have_no_width_of_their_own_to_take(tmp_path: Path) -> None:
    shape = shape_for(tiny_targets.write_gpt_oss(tmp_path / "gpt-oss.gguf"))
    assert shape.ffn == 1024


def test_what_the_first_layer_reads_is_a_tap_as_in_a_checkpoint(tiny_target: Path) -> None:
    assert shape_for(tiny_target, taps=(-1, 2)).taps == (-1, 2)


def test_taps_are_spread_from_the_second_layer_to_the_last_but_one() -> None:
    assert spread_taps(30) == (1, 10, 19, 28)
    assert spread_taps(4) == (1, 2)
    assert spread_taps(3) == (1,)
    assert spread_taps(2) == (0,)
    assert [len(spread_taps(n)) for n in (5, 6, 64)] == [3, 4, 4]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"taps": ()}, r"`taps`: got \[\], expected ascending numbers of layers from -1 to 2"),
        ({"taps": (2, 1)}, "`taps`"),
        ({"taps": (1, 1)}, "`taps`"),
        ({"taps": (-2, 1)}, "`taps`"),
        ({"taps": (1, 3)}, "`taps`"),
        ({"block": 1}, "`block`: got 1, expected 2 to 1024 tokens"),
        ({"layers": 0}, "`layers`"),
        ({"rank": 0}, "`rank`"),
        (
            {"top_k": 23},
            r"fill a row: got 23, expected .* at most the hidden size, 512: at most 22",
        ),
        ({"conv_group": 7}, "`conv_group`: got 7, expected a divisor of the hidden size, 512"),
        ({"conv_kernel": 9}, "`conv_kernel`: got 9, expected 1 to the block's 8"),
        ({"kind": "dspark"}, "`kind`: got 'dspark', expected one of dflash2, dflash"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], named: str, tiny_target: Path) -> None:
    with pytest.raises(TrainError, match=named):
        shape_for(tiny_target, **asked)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_a_kernel_is_as_wide_as_libllama_has_room_for(layers: int, tiny_target: Path, tmp_path: Path) -> None:
    """Told before anything takes long; what is not refused converts, whose check counts the file's own tensors."""
    widest = {1: 28, 2: 13, 5: 4}[layers]
    with pytest.raises(TrainError, match=rf"have room in {layers} layers: got {widest + 1}, expected at most {widest}"):
        shape_for(tiny_target, layers=layers, block=64, conv_kernel=widest + 1)
    config = shape_for(tiny_target, layers=layers, block=64, conv_kernel=widest).config()
    tiny.write_checkpoint(tmp_path, config=config, layers=layers, conv=widest, block=64, taps=(1, 2))
    assert len(plan(tmp_path, tiny_target, "BF16").tensors) == layers * LAYER_TENSORS + TENSORS
    convert(tmp_path, tiny_target, "BF16", tmp_path / "fits.gguf")
    tiny.write_checkpoint(
        tmp_path,
        config=config | {"dflash_config": config["dflash_config"] | {"conv_kernel_size": widest + 1}},
        layers=layers,
        conv=widest + 1,
        block=64,
        taps=(1, 2),
    )
    with pytest.raises(DflashError, match=rf"no room for in {layers} layers"):
        convert(tmp_path, tiny_target, "BF16", tmp_path / "too_wide.gguf")


def test_a_selector_is_not_asked_of_a_drafter_without_one(tiny_target: Path) -> None:
    shape = shape_for(tiny_target, kind="dflash", top_k=600)
    assert "selector_top_k" not in shape.config()["dflash_config"]


def test_a_target_that_hands_out_no_layers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="does not hand out what the layers of this architecture read: got 'bert'"):
        shape_for(tiny_targets.write_bert(tmp_path / "bert.gguf"))
