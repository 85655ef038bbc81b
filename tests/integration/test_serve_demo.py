"""The server over the demonstration pair: a real chat, in every way to the same text."""

from __future__ import annotations

import pytest
from served import serving

from dflash_gguf import Session, convert
from dflash_gguf.demo.pair import checkpoint_folder, target_file

ROUTE = "/v1/chat/completions"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The Q4_1 target as it is, in passes below 64 tokens: their width changes nothing."""
    draft = convert(checkpoint_folder(), target_file(), "Q4_K_M", tmp_path_factory.mktemp("draft") / "draft.gguf").path
    options = {"n_ctx": 512, "n_ubatch": 48, "n_threads": 1, "flash_attention": "on", "depth": "fixed"}
    with Session(target_file(), draft, **options) as session, serving(session) as found:
        yield found


def test_drafts_streams_and_what_is_kept_change_nothing(served):
    first = [{"role": "user", "content": "Count from 1 to 20."}]
    drafted = served.posted(ROUTE, messages=first, max_tokens=32, temperature=0)
    text = drafted["choices"][0]["message"]["content"]
    assert "2" in text
    second = [*first, {"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    options = {"messages": second, "max_tokens": 24, "temperature": 0.7, "seed": 5}
    answers = [
        served.posted(ROUTE, **options),
        served.posted(ROUTE, **options, speculative=False),
        served.posted(ROUTE, **options, cache_prompt=False),
        served.posted(ROUTE, **options, cache_prompt=False, speculative=False),
    ]
    chunks = served.events(ROUTE, **options)
    streamed = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert {answer["choices"][0]["message"]["content"] for answer in answers} == {streamed}
    timings = [answer["timings"] for answer in answers]
    assert [one["draft_n"] > 0 for one in (drafted["timings"], *timings)] == [True, True, False, True, False]
    assert timings[0]["cache_n"] > drafted["usage"]["prompt_tokens"]
    assert [one["cache_n"] > 0 for one in timings] == [True, True, False, False]
    assert drafted["timings"]["draft_n_accepted"] > 0
