"""Which token becomes the mask: by rule, and never one that means something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_vocab

from dflash_gguf.errors import TrainError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.train.mask import choose
from dflash_gguf.train.responses import end_tokens
from dflash_gguf.train.settings import CorpusSettings

VOCAB = 512
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
TEMPLATE = "{{ messages[0]['content'] }}"


def header_of(path: Path, texts: dict[int, str], types: dict[int, int], **keys: Any) -> Any:
    """A target whose tokens have other texts and types."""
    tokens = tiny_vocab.tokens(VOCAB)
    kinds = [CONTROL] * 6 + [1] * (VOCAB - 6)
    for number, text in texts.items():
        tokens[number] = text
    for number, kind in types.items():
        kinds[number] = kind
    changed = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds} | keys
    return read_header(tiny.write_target(path / "target.gguf", extra_keys=changed))


@pytest.fixture
def embeddings() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((VOCAB, 16)).astype(np.float32)


def test_a_token_that_is_called_a_mask_is_taken(tiny_target: Path, embeddings: np.ndarray) -> None:
    assert choose(read_header(tiny_target), embeddings, (), ()) == tiny_vocab.MASK_ID


@pytest.mark.parametrize(
    ("texts", "types", "keys", "wanted"),
    [
        ({3: "<|x|>", 9: "<unused0>", 10: "<unused1>"}, {9: USER_DEFINED, 10: USER_DEFINED}, {}, 9),
        ({3: "<|x|>", 400: "[PAD400]", 401: "[PAD401]"}, {400: UNUSED, 401: UNUSED}, {}, 400),
        ({3: "<|x|>", 9: "<|reserved_special_token_7|>"}, {9: CONTROL}, {}, 9),
        ({3: "<gh_stars>", 9: "<empty_output>"}, {9: CONTROL}, {}, 9),
        ({3: "<|x|>", 9: "<mask>", 300: "[MASK]"}, {9: CONTROL, 300: CONTROL},
         {"tokenizer.ggml.mask_token_id": 300}, 300),
        ({3: "<|x|>", 9: "<tool>"}, {9: USER_DEFINED}, {}, 4),
    ],
    ids=["unused", "padding of the list", "reserved", "the last control token", "the file's own", "tools are used"],
)  # fmt: skip
def test_the_rule(
    texts: dict[int, str],
    types: dict[int, int],
    keys: dict[str, Any],
    wanted: int,
    embeddings: np.ndarray,
    tmp_path: Path,
) -> None:
    header = header_of(tmp_path, texts, types, **{"tokenizer.chat_template": TEMPLATE} | keys)
    assert choose(header, embeddings, (), ()) == wanted


def test_tokens_of_the_texts_and_faint_ones_are_passed_over(tmp_path: Path, embeddings: np.ndarray) -> None:
    header = header_of(tmp_path, {9: "<unused0>", 10: "<unused1>", 11: "<unused2>"}, dict.fromkeys((9, 10, 11), UNUSED))
    embeddings[10] *= 0.001
    assert choose(header, embeddings, (), {3, 9}) == 11
    for asked, why in ((9, "stands in the texts"), (10, "has an embedding of nearly nothing")):
        with pytest.raises(TrainError, match=why):
            choose(header, embeddings, (), {9}, asked)


@pytest.mark.parametrize("number", [tiny_vocab.BOS_ID, tiny_vocab.EOS_ID, tiny_vocab.EOT_ID, tiny_vocab.PAD_ID])
def test_tokens_of_a_role_are_refused_and_others_offered(
    number: int, tiny_target: Path, embeddings: np.ndarray
) -> None:
    header = read_header(tiny_target)
    with pytest.raises(TrainError, match=r"is the target's `tokenizer.*expected a reserved one, such as 3 \("):
        choose(header, embeddings, (), (), number)


def test_tokens_that_end_a_text_are_passed_over(tmp_path: Path, embeddings: np.ndarray) -> None:
    """One without a role, which libllama knows by its text."""
    header = header_of(tmp_path, {3: "<|x|>", 9: "<|end_of_text|>"}, {9: CONTROL})
    ends = end_tokens(Path(header.name), header, CorpusSettings())
    assert ends == {tiny_vocab.EOS_ID, tiny_vocab.EOT_ID, 9}
    assert choose(header, embeddings, (), ()) == 9
    assert choose(header, embeddings, ends, ()) == 3
    with pytest.raises(TrainError, match=r"the mask token ends a text: got 9, expected a reserved one, such as 3 \("):
        choose(header, embeddings, ends, (), 9)


def test_a_vocabulary_without_a_spare_token_is_told(tiny_target: Path, embeddings: np.ndarray, tmp_path: Path) -> None:
    """The only one stands in a text, or there is none at all."""
    for asked in (None, 3):
        with pytest.raises(TrainError, match=r"could be the mask: 3 \(`.*`\) stands in the texts .*; leave out the pr"):
            choose(read_header(tiny_target), embeddings, (), {3}, asked)
        with pytest.raises(TrainError, match=r"could be the mask; train for a target whose tokenizer has spare"):
            choose(header_of(tmp_path, {}, {3: 1, 4: 1}), embeddings, (), (), asked)
