"""`Llama.from_pretrained`: llama_cpp's call, and a drafter, against a hub of this machine."""

from __future__ import annotations

import pytest
import tiny

from dflash_gguf import Llama
from dflash_gguf.errors import HubError
from dflash_gguf.llama_arguments import RequestError

SIZES = {"hidden": 128, "ffn": 256, "heads": 4, "kv_heads": 2, "head_dim": 32}
OPTIONS = {"n_ctx": 128, "n_threads": 1, "flash_attn": True, "verbose": False, "depth": "fixed"}
ASKED = {"max_tokens": 8, "temperature": 0}


@pytest.fixture
def published(hub, tmp_path):
    """A target, and drafters as a GGUF and as safetensors."""
    target = tiny.write_target(tmp_path / "t.gguf", type="Q8_0", **SIZES).read_bytes()
    draft = tiny.write_drafter(tmp_path / "d.gguf", kind="dflash", **SIZES).read_bytes()
    folder = tiny.write_checkpoint(tmp_path / "checkpoint", kind="dflash", **SIZES)
    hub.add("org/T-GGUF", {"T-Q8_0.gguf": target, "T-F16.gguf": b"GGUF", "more.json": b"{}"})
    hub.add("org/D-GGUF", {"D-Q8_0.gguf": draft})
    hub.add("org/D", {path.name: path.read_bytes() for path in folder.iterdir()})
    return hub


def text(*words, **named):
    with Llama.from_pretrained(*words, **named, **OPTIONS) as llm:
        answer = llm("hello", **ASKED)
    return answer["choices"][0]["text"], answer["timings"]["draft_n"] > 0


def test_it_loads_what_the_files_are(published, tmp_path):
    with Llama(tmp_path / "t.gguf", draft_model_path=tmp_path / "d.gguf", **OPTIONS) as llm:
        expected = llm("hello", **ASKED)["choices"][0]["text"]
    assert text("org/T-GGUF", "*Q8_0.gguf") == (expected, False)
    assert text("org/T-GGUF:Q8_0", draft_repo_id="org/D-GGUF") == (expected, True)
    assert text("org/T-GGUF:Q8_0", draft_repo_id="org/D-GGUF", draft_filename="D-*") == (expected, True)
    assert text("org/T-GGUF:Q8_0", draft_repo_id="org/D:Q8_0") == (expected, True)


def test_more_files_and_another_folder(published, tmp_path):
    text("org/T-GGUF", "T-Q8_0.gguf", additional_files=["*.json"], cache_dir=tmp_path / "mine")
    assert sorted(path.name for path in (tmp_path / "mine").rglob("snapshots/*/*")) == ["T-Q8_0.gguf", "more.json"]


def test_what_is_not_meant_is_said(published):
    with pytest.raises(HubError, match=r"several files that fit `T-\*`: `T-F16.gguf`, `T-Q8_0.gguf`"):
        Llama.from_pretrained("org/T-GGUF", "T-*")
    with pytest.raises(HubError, match=r"no file that fits `\*Q4_0\*`, but these: `T-F16.gguf`"):
        Llama.from_pretrained("org/T-GGUF", "*Q4_0*")
    with pytest.raises(RequestError, match="give `cache_dir`"):
        Llama.from_pretrained("org/T-GGUF", "*Q8_0*", local_dir="here")
