"""Servers that real clients talk to: the demonstration pair as it is, and tiny models for many requests.

These tests are run by `make test-serve` alone, which installs the clients.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import tiny
from live import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from live import Live


TOOL_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    'Answer with <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Takes functions, and has them called as Qwen3 does."""


@pytest.fixture(scope="session")
def demo_drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The drafter that this package carries, as Q4_K_M."""
    import dflash_gguf as dg
    from dflash_gguf.demo.pair import checkpoint_folder, target_file

    out = tmp_path_factory.mktemp("demo") / "drafter.gguf"
    return dg.convert(checkpoint_folder(), target=target_file(), quant="Q4_K_M", out=out).path


@pytest.fixture(scope="session")
def demo(demo_drafter: Path) -> Iterator[Live]:
    """The demonstration pair, Q4_1 as it is.

    Its logits do not depend on how many tokens a pass reads while those are below 64, so that prefixes that are kept
    change nothing; a fixed depth has it draft where the controller, on a busy machine, would not.
    """
    from dflash_gguf.demo.pair import target_file

    narrow = ("-b", 48, "-ub", 48, "-c", 2048, "--depth", "fixed")
    with serving("-m", target_file(), "-md", demo_drafter, "-a", "demo", *narrow) as live:
        yield live


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A tiny pair, for requests that are many or strange: a short queue, and bodies that have a second to come."""
    folder = tmp_path_factory.mktemp("tiny")
    target = tiny.write_target(
        folder / "target.gguf", type="Q8_0", extra_keys={"tokenizer.chat_template": TOOL_TEMPLATE}
    )
    draft = tiny.write_drafter(folder / "draft.gguf")
    with serving("-m", target, "-md", draft, "-a", "tiny", "-c", 512, "--body-timeout", 1, "--queue", 4) as live:
        yield live


@pytest.fixture(scope="session")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A tiny target without a drafter, behind a key."""
    target = tiny.write_target(tmp_path_factory.mktemp("locked") / "target.gguf", type="Q8_0")
    with serving(
        "-m", target, "--no-draft", "-a", "locked", "-c", 256, "--api-key", "a key", "--api-key", "Schlüssel ключ"
    ) as live:
        yield live


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where the variable CI is set everything is installed, so that a test that is skipped has not been run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
