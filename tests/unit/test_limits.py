"""Numbers that a user may ask for, in the session and in the command line alike."""

import pytest
from click.testing import CliRunner

from dflash_gguf import DflashError
from dflash_gguf.cli import root
from dflash_gguf.limits import RANGES, checked

FLAGS = {
    "n_ctx": "-c",
    "n_ubatch": "-ub",
    "n_threads": "-t",
    "n_gpu_layers": "-ngl",
    "spec_draft_n_max": "--spec-draft-n-max",
    "max_tokens": "-n",
    "n_threads_draft": "-td",
    "n_batch": "-b",
    "n_ctx_draft": "-cd",
    "main_gpu": "-mg",
    "spec_draft_n_min": "--spec-draft-n-min",
    "top_k": "--top-k",
    "repeat_last_n": "--repeat-last-n",
    "dry_allowed_length": "--dry-allowed-length",
    "dry_penalty_last_n": "--dry-penalty-last-n",
}


@pytest.mark.parametrize("name", RANGES)
def test_both_ends_are_allowed_and_nothing_beyond(name):
    allowed = RANGES[name]
    assert checked(name, allowed.least) == allowed.least
    assert checked(name, allowed.most) == allowed.most
    for value in (allowed.least - 1, allowed.most + 1):
        with pytest.raises(DflashError, match=rf"`{name}` is out of range: got {value}, expected"):
            checked(name, value)
        if name not in FLAGS:
            continue
        words = ["run", "-m", "x", "-md", "y", "-p", "z", FLAGS[name], str(value)]
        result = CliRunner().invoke(root, words)
        assert result.exit_code == 2
        assert "range" in result.output


def test_all_numbers_have_a_flag_of_run_but_those_that_are_no_business_of_it():
    assert RANGES.keys() - FLAGS.keys() == {"last_n_tokens_size", "logprobs", "min_keep", "parallel"}
