"""What a build of llama.cpp is too old for, and what a quantized cache costs."""

from __future__ import annotations

import pytest
import tiny

from dflash_gguf import pair
from dflash_gguf.gguf_header import read_header
from dflash_gguf.runtimes import cache_findings, runtime_findings

SMALL = {"hidden": 288, "ffn": 64, "layers": 1, "heads": 2, "kv_heads": 1, "vocab": 300}


def findings(tmp_path, build, kind, **options):
    path = tiny.write_drafter(tmp_path / "d.gguf", kind=kind, **SMALL | options)
    return [
        (finding.level, finding.what, str(finding.draft_value))
        for finding in runtime_findings(read_header(path), build)
    ]


@pytest.mark.parametrize(
    ("build", "kind", "needed"),
    [
        (10241, "dflash", ["b10242"]),
        (10242, "dflash", []),
        (10664, "dflash", []),
        (10664, "dflash2", ["b10665"]),
        (10665, "dflash2", []),
        (1, "dflash2", ["b10242", "b10665"]),
        (10488, "dspark", []),
    ],
)
def test_builds(build, kind, needed, tmp_path):
    found = findings(tmp_path, build, kind)
    assert [what.rpartition(" needs ")[2] for _, what, _ in found] == needed
    assert all(value == kind for _, _, value in found)
    assert all(level == "error" and f"llama.cpp b{build} is too old for" in what for level, what, _ in found)


def test_the_remedy_names_the_build(tmp_path):
    path = tiny.write_drafter(tmp_path / "d.gguf", **SMALL)
    (finding,) = runtime_findings(read_header(path), 10488)
    assert finding.remedy == "use llama.cpp b10665 or newer"


@pytest.mark.parametrize(
    ("types", "named"),
    [(("f16", "f16"), None), (("bf16", "f32"), None), (("q8_0", "q8_0"), "q8_0"), (("f16", "q4_0"), "q4_0")],
)
def test_a_quantized_cache_is_a_warning(types, named):
    found = list(cache_findings(*types))
    assert [finding.draft_value for finding in found] == ([named] if named else [])
    assert all(finding.level == "warning" for finding in found)
    assert all("the installed 0.5.0 is later" in finding.what for finding in found)


def test_the_pair_check_takes_both(tmp_path):
    target = tiny.write_target(tmp_path / "t.gguf", **SMALL | {"layers": 4})
    draft = tiny.write_drafter(tmp_path / "d.gguf", **SMALL)
    assert pair.check(target, draft).findings == ()
    report = pair.check(target, draft, runtime=10488, cache_types=("q8_0", "f16"))
    assert [finding.level for finding in report.findings] == ["error", "warning"]
    assert not report.ok
