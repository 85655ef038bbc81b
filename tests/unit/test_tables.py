"""The embeddings and the head: own, the target's, patched, or left to the target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import zoo
from families import changed, planned
from zoo.files import floats
from zoo.torch_file import mask_embedding

from dflash_gguf.convert.sources import Patched, Stored
from dflash_gguf.errors import CheckpointError

V1 = "zlab-v1-old"
EMBEDDINGS, HEAD = "embed_tokens.weight", "lm_head.weight"
H, V = 256, 512
OTHER = np.random.default_rng(9).standard_normal((V, H)).astype(np.float32)
TABLES = zoo.parts.target_tables(zoo.parts.BASE)
ROW = np.linspace(-1, 1, H, dtype=np.float32)


def drafter(*, mask=None, **tables):
    """A v1 drafter with tables: ``embed_tokens`` and ``lm_head``, each "own" or "copy"."""
    arrays = {f"{name}.weight": OTHER if kind == "own" else TABLES[f"{name}.weight"] for name, kind in tables.items()}
    content = changed(zoo.content(V1), tensors=floats(arrays))
    return replace(content, files={"mask_embedding.pt": mask}) if mask is not None else content


def sources(plan):
    """Source name of each table in the file."""
    wanted = {"token_embd.weight": "embed", "output.weight": "head"}
    return {wanted[tensor.name]: tensor.source.name for tensor in plan.tensors if tensor.name in wanted}


OWN, TAKEN, THEIRS = EMBEDDINGS, "output.weight", "token_embd.weight"


@pytest.mark.parametrize(
    ("tables", "tied", "expected"),
    [
        ({}, False, {}),
        ({"embed_tokens": "own"}, False, {"embed": OWN, "head": TAKEN}),
        ({"embed_tokens": "own"}, True, {"embed": OWN}),
        ({"embed_tokens": "copy"}, False, {}),
        ({"embed_tokens": "copy"}, True, {}),
        ({"lm_head": "own"}, False, {"head": HEAD}),
        ({"lm_head": "copy"}, False, {}),
        ({"embed_tokens": "own", "lm_head": "own"}, False, {"embed": OWN, "head": HEAD}),
        ({"embed_tokens": "copy", "lm_head": "own"}, False, {"head": HEAD}),
        ({"embed_tokens": "copy", "lm_head": "copy"}, False, {}),
        ({"embed_tokens": "own", "lm_head": "copy"}, False, {"embed": OWN, "head": HEAD}),
    ],
)
def test_which_tables_are_written(tmp_path, tables, tied, expected):
    plan = planned(tmp_path, V1, drafter(**tables), drop_tensors=("output.weight",) if tied else ())
    assert sources(plan) == expected


def test_taking_the_head_says_how_many_bytes(tmp_path):
    notes = planned(tmp_path, V1, drafter(embed_tokens="own")).notes
    assert any("`output.weight` (BF16, 262144 bytes) is taken from the target" in note for note in notes)


def test_leaving_a_table_out_says_how_many_bytes(tmp_path):
    notes = planned(tmp_path, V1, drafter(embed_tokens="copy")).notes
    assert any("it is the target's, and 262144 bytes long" in note for note in notes)


def test_a_target_that_is_known_not_to_be_tied_outweighs_an_inherited_key(tmp_path):
    content = changed(drafter(embed_tokens="own"), tie_word_embeddings=True)
    assert sources(planned(tmp_path, V1, content)) == {"embed": OWN, "head": TAKEN}


def test_a_target_without_weights_is_not_taken_for_tied(tmp_path):
    bare = {"drop_tensors": ("token_embd.weight", "output.weight")}
    with pytest.raises(CheckpointError, match=r"needs the target's `output.weight`"):
        planned(tmp_path, V1, drafter(embed_tokens="own"), **bare)
    says_so = changed(drafter(embed_tokens="own"), tie_word_embeddings=True)
    assert sources(planned(tmp_path, V1, says_so, **bare)) == {"embed": OWN}


@pytest.mark.parametrize(("key", "name"), [("has_embed_tokens", "embed_tokens"), ("has_lm_head", "lm_head")])
def test_a_table_that_the_config_promises_must_be_there(tmp_path, key, name):
    with pytest.raises(CheckpointError, match=rf"promises `{name}.weight` \(`{key}`\)"):
        planned(tmp_path, V1, changed(drafter(), **{key: True}))


def test_embeddings_that_the_config_disowns(tmp_path):
    content = changed(drafter(embed_tokens="own"), has_embed_tokens=False)
    plan = planned(tmp_path, V1, content)
    assert sources(plan) == {}
    assert any("`has_embed_tokens` is false" in note for note in plan.notes)


def test_a_quantized_target_gives_its_head_as_it_is(tmp_path):
    plan = planned(tmp_path, V1, drafter(embed_tokens="own"), quant="Q8_0", type="Q8_0")
    head = next(tensor for tensor in plan.tensors if tensor.name == "output.weight")
    assert (head.source.type, head.type) == (8, 8)
    assert any("(Q8_0, 139264 bytes)" in note for note in plan.notes)


def test_a_target_that_lacks_the_table(tmp_path):
    split = (("split.count", 2),)
    with pytest.raises(CheckpointError, match=r"needs the target's `output\.weight`"):
        planned(tmp_path, V1, drafter(embed_tokens="own"), drop_tensors=("output.weight",), extra_keys=split)


MASK = mask_embedding(3, ROW)


@pytest.mark.parametrize(
    ("tables", "tied", "expected"),
    [
        ({}, False, {"embed": THEIRS, "head": TAKEN}),
        ({}, True, {"embed": THEIRS, "head": THEIRS}),
        ({"embed_tokens": "own"}, False, {"embed": OWN, "head": TAKEN}),
        ({"lm_head": "copy"}, False, {"embed": THEIRS, "head": HEAD}),
        ({"embed_tokens": "copy", "lm_head": "copy"}, False, {"embed": OWN, "head": HEAD}),
    ],
)
def test_a_mask_embedding_needs_both_tables(tmp_path, tables, tied, expected):
    plan = planned(tmp_path, V1, drafter(mask=MASK, **tables), drop_tensors=("output.weight",) if tied else ())
    assert sources(plan) == expected
    patched = {tensor.name: tensor.source for tensor in plan.tensors}
    assert isinstance(patched["token_embd.weight"], Patched)
    assert isinstance(patched["output.weight"], Stored)
    assert patched["token_embd.weight"].row == 3


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (mask_embedding(4, ROW), "`mask_token_id` of the mask embedding: got 4, expected 3"),
        (mask_embedding(3, ROW[:64]), "values of the mask embedding: got 64, expected 256"),
        (b"", "is no mask embedding"),
    ],
)
def test_mask_embeddings_that_do_not_fit(tmp_path, mask, message):
    with pytest.raises(CheckpointError, match=message):
        planned(tmp_path, V1, drafter(mask=mask))
