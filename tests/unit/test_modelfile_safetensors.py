"""The Modelfile of two folders of safetensors: what ollama's ``--experimental`` lane takes, and what it does not."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import modelfile_reader
import pytest
import zoo
from safetensors_pair import write_pair

from dflash_gguf.errors import CheckpointError, PairError, TemplateError
from dflash_gguf.modelfile.api import render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


Pair = tuple["Path", "Path"]


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return write_pair(tmp_path)


def test_exact_text_and_command(pair: Pair) -> None:
    target, draft = pair
    result = render(*pair, draft_quantize="q4", name="mine")
    assert result.text == (
        "# A target and its DFlash drafter. Create the model with: "
        "ollama create NAME -f THIS_FILE --experimental --draft-quantize int4\n"
        "# DFlash 2 beside safetensors needs an ollama that holds https://github.com/ollama/ollama/pull/17865.\n"
        f"FROM {target}\nDRAFT {draft}\nPARAMETER draft_num_predict 7\nREQUIRES 0.19.0\n"
    )
    assert result.create_command == "ollama create mine -f Modelfile --experimental --draft-quantize int4"
    assert any("DFlash 2" in warning for warning in result.warnings)
    assert modelfile_reader.request(result.text)["requires"] == "0.19.0"
    assert render(*pair).create_command == "ollama create qwen3.8-27b-4bit-dflash -f Modelfile --experimental"


def test_home_is_written_out(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(pair[0].parent))
    found = dict(modelfile_reader.read(render(f"~/{pair[0].name}", f"~/{pair[1].name}").text))
    assert (found["from"], found["draft"]) == (str(pair[0]), str(pair[1]))


def test_a_model_that_ollama_has(pair: Pair) -> None:
    found = dict(modelfile_reader.read(render("qwen3.8:27b", pair[1], from_model=True).text))
    assert found["from"] == "qwen3.8:27b"
    with pytest.raises(TemplateError, match="--quantize"):
        render("qwen3.8:27b", pair[1], from_model=True, quantize="int4")


def test_snapshots_of_the_hub_are_fine(pair: Pair, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in pair[1].iterdir():
        (snapshot / file.name).symlink_to(file)
    assert f"DRAFT {snapshot}\n" in render(pair[0], snapshot).text


@pytest.mark.parametrize("flag", ["quantize", "draft_quantize"])
def test_types(flag: str, pair: Pair) -> None:
    for given, written in (("INT4", "int4"), ("fp8", "int8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4")):
        assert render(*pair, **{flag: given}).create_command.endswith(f"--{flag.replace('_', '-')} {written}")
    with pytest.raises(TemplateError, match="one of int4, int8, nvfp4, mxfp4, mxfp8"):
        render(*pair, **{flag: "q4_K_M"})


@pytest.mark.parametrize(("place", "flag"), [(0, "quantize"), (1, "draft_quantize")])
def test_what_is_quantized_is_not_quantized_again(place: int, flag: str, pair: Pair, tmp_path: Path) -> None:
    change(pair[place], lambda config: config.update(quantization={"bits": 4, "group_size": 64}))
    with pytest.raises(PairError, match="quantized already"):
        render(*pair, **{flag: "int4"})
    assert render(*pair).text


def test_the_lane_has_its_own_least_version(pair: Pair) -> None:
    with pytest.raises(TemplateError, match=r"0\.19\.0 or more"):
        render(*pair, requires="0.18.9")
    with pytest.raises(TemplateError, match=r"0\.19\.0 or more"):
        render(*pair, requires="0.18.9", renderer="qwen3.8")
    early = render(*pair, requires="0.32.8", renderer="qwen3.8")
    assert "ollama below 0.32.12 does not have the renderer `qwen3.8`" in early.warnings
    result = render(*pair, requires="v0.40")
    assert "REQUIRES 0.40\n" in result.text
    assert "17865" not in result.text


FAULTS: dict[str, tuple[int, Callable[[dict[str, Any]], object], str]] = {
    "hidden size": (0, lambda config: config["text_config"].update(hidden_size=64), "`hidden_size` differs"),
    "vocabulary": (0, lambda config: config["text_config"].update(vocab_size=300), "`vocab_size` differs"),
    "layers": (0, lambda config: config["text_config"].update(num_hidden_layers=1), "the drafter reads layer"),
    "other depth": (0, lambda config: config["text_config"].update(num_hidden_layers=60), "a target of"),
    "mask": (1, lambda config: config["dflash_config"].pop("mask_token_id"), "no `dflash_config.mask_token_id`"),
    "mask outside": (1, lambda config: config["dflash_config"].update(mask_token_id=10**6), "not in the target's"),
    "taps": (1, lambda config: config["dflash_config"].update(target_layer_ids=[2, 1]), "do not ascend"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_pairs_that_do_not_fit(fault: str, pair: Pair) -> None:
    place, edit, words = FAULTS[fault]
    change(pair[place], edit)
    with pytest.raises(PairError, match=words):
        render(*pair)


def test_a_config_without_a_block_or_taps(pair: Pair) -> None:
    change(pair[1], lambda config: (config["dflash_config"].pop("block_size"), config.pop("block_size", None)))
    with pytest.raises(CheckpointError, match="states no `block_size`"):
        render(*pair)


def test_dspark_is_refused(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(PairError, match="DSpark"):
        render(pair[0], zoo.write_checkpoint("specforge-dspark", tmp_path))


def test_one_folder_twice(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pair[1])
    with pytest.raises(PairError, match="the same folder"):
        render(tmp_path / "link", pair[1])


def test_weights_that_ollama_does_not_read(pair: Pair) -> None:
    (pair[1] / "model.safetensors").rename(pair[1] / "drafter.safetensors")
    with pytest.raises(TemplateError, match="no weights that ollama reads"):
        render(*pair)
    for name in ("model.safetensors", "model-00001-of-00001.safetensors"):
        shutil.copy(pair[1] / "drafter.safetensors", pair[1] / name)
    with pytest.raises(TemplateError, match="two sets of weights"):
        render(*pair)


def test_an_index_that_names_what_is_not_there(pair: Pair) -> None:
    index = {"weight_map": {"absent.weight": "model.safetensors"}}
    (pair[1] / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="disagree"):
        render(*pair)


def test_v1_runs_only_beside_some_targets(pair: Pair, tmp_path: Path) -> None:
    draft = zoo.write_checkpoint("zlab-v1-old", tmp_path)
    config = json.loads((draft / "config.json").read_text())
    change(pair[0], lambda found: found["text_config"].update(num_hidden_layers=config["num_target_layers"]))
    assert any("qwen3_5" in warning for warning in render(pair[0], draft).warnings)
    change(pair[0], lambda found: found["text_config"].update(model_type="glimmer"))
    assert render(pair[0], draft).warnings == ()
