"""A measurement that is interrupted: what was measured by then is reported, and the exit code is 130."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from bench_server import chat, serving
from click.testing import CliRunner

from dflash_gguf.bench import load, measure, quants
from dflash_gguf.cli import root

PROMPTS = 3


@pytest.fixture
def words(tiny_target, tiny_drafter):
    model = ["-m", tiny_target, "-md", tiny_drafter, "-t", 1, "-c", 256]
    return ["bench", *model, "-n", 8, "--runs", 1, "--limit", PROMPTS, "--json"]


def bench(words, code=130):
    """The one object on stdout, None when there is none, once the exit code was seen to be right."""
    done = CliRunner().invoke(root, list(map(str, words)))
    assert done.exit_code == code, done.stderr
    assert "interrupted" in done.stderr.splitlines()
    return json.loads(done.stdout) if done.stdout else None


@pytest.mark.parametrize(
    ("whole", "more", "settings", "ending", "code"),
    [
        (0, 0, 0, KeyboardInterrupt(), 130),
        (0, 2, 1, KeyboardInterrupt(), 130),
        (2, 0, 2, KeyboardInterrupt(), 130),
        (2, 1, 2, SystemExit(143), 143),
    ],
)
def test_a_sweep_reports_the_depths_that_were_measured_whole(
    words, tmp_path, monkeypatch, whole, more, settings, ending, code
):
    series, calls = measure.series, []

    def broken(*given):
        calls.append(given)
        for number, pair in enumerate(series(*given)):
            if len(calls) > whole and number == more:
                raise ending
            yield pair

    monkeypatch.setattr(measure, "series", broken)
    found = bench([*words, "--sweep", "--html", tmp_path / "r.html", "--fail-if-slower"], code)
    if not settings:
        assert found is None
        assert not (tmp_path / "r.html").exists()
        return
    assert [each["name"] for each in found["settings"]] == ["auto", "1"][:settings]
    assert len(found["pairs"]) == whole * PROMPTS + more
    assert "until then" in found["facts"]["interrupted"]
    assert "until then" in (tmp_path / "r.html").read_text("utf-8")


def test_types_that_were_measured_are_reported(tiny_target, tiny_drafter, monkeypatch):
    words = ["bench", "quants", "-m", tiny_target, "--checkpoint", tiny_drafter, "--types", "Q4_0,Q8_0", "--json"]
    words += ["-t", 1, "-c", 256, "-n", 4, "--limit", 1]
    made = quants._made

    def broken(source, name, path, *, force):
        if name == "Q8_0":
            raise KeyboardInterrupt
        return made(source, name, path, force=force)

    monkeypatch.setattr(quants, "_made", broken)
    found = bench(words)
    assert [row["name"] for row in found["types"]] == ["Q4_0"]
    assert "until then" in found["facts"]["interrupted"]
    monkeypatch.setattr(quants, "_made", lambda *_, **__: broken(None, "Q8_0", None, force=False))
    assert bench(words) is None


def test_what_a_server_answered_is_reported(monkeypatch):
    talk, asked = load._talk, []

    def broken(*given):
        asked.append(given)
        return talk(*given)

    def told(output, each):
        raise KeyboardInterrupt

    monkeypatch.setattr(load, "_talk", broken)
    monkeypatch.setattr("dflash_gguf.cli.bench_server._told", told)
    with serving(chat()) as url:
        found = bench(["bench", "--server", url, "-n", 8, "--runs", 1, "--limit", PROMPTS, "--json"])
    assert len(found["requests"]) == 1
    assert "until then" in found["facts"]["interrupted"]


def test_a_real_interrupt(words, tmp_path):
    words = [*map(str, words[:-1]), "--sweep", "--runs", "500", "--html", str(tmp_path / "r.html")]
    process = subprocess.Popen(
        [sys.executable, "-m", "dflash_gguf", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if line.startswith("depth auto, run 2"):
            break
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "Speed at depth auto" in out
    assert (tmp_path / "r.html").is_file()
