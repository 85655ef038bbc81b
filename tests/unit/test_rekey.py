"""Re-keying: names, taps, what cannot be, and the file itself, on files of a few kB."""

from __future__ import annotations

import struct

import forks
import gguf
import gguf_bytes as raw
import numpy as np
import pytest
from gguf_bytes import Memory

from dflash_gguf.errors import GGUFError, OutputError
from dflash_gguf.gguf_header import read_header
from dflash_gguf.rekeying.answers import QUESTIONS, Answers
from dflash_gguf.rekeying.api import planned, rekey
from dflash_gguf.rekeying.forks import KEYS, TYPES, bare, upstream_key
from dflash_gguf.rekeying.plan import plan_rekey
from dflash_gguf.rekeying.tensors import moved_tensors

BUUN = forks.STYLES["buun"]


@pytest.fixture(scope="module")
def files():
    """A native file, buun's of it and lucebox's, and their target, whose own mask token is 3."""
    return forks.small_files()


def header_of(*names, keys=()):
    """A header with F32 tensors of these names."""
    rows = tuple(raw.tensor(name, (8,), 0, 32 * index) for index, name in enumerate(names))
    return read_header(Memory(raw.gguf(keys, rows, bytes(32 * len(names)))))


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("dflash_fc.weight", "fc.weight"),
        ("dflash.fc.weight", "fc.weight"),
        ("dspark.fc.weight", "fc.weight"),
        ("dflash.fc.scale", "fc.scale"),
        ("dflash_hidden_norm.weight", "enc.output_norm.weight"),
        ("dflash.hidden_norm.weight", "enc.output_norm.weight"),
        ("dspark.hidden_norm.weight", "enc.output_norm.weight"),
        ("hidden_norm.weight", "enc.output_norm.weight"),
        ("dspark.markov_head_a.weight", "markov_w1.weight"),
        ("dspark.markov_head_b.weight", "markov_w2.weight"),
        ("dflash.dspark.markov.w1", "markov_w1.weight"),
        ("dflash.dspark.markov.w2", "markov_w2.weight"),
        ("dspark.confidence_head.weight", "conf_proj.weight"),
        ("dspark.confidence_head.bias", "conf_proj.bias"),
        ("dflash.dspark.confidence.weight", "conf_proj.weight"),
        ("confidence_proj.weight", "conf_proj.weight"),
        ("selector_pred", "selector_predecessor.weight"),
        ("selector_succ", "selector_successor.weight"),
        ("selector_hproj.weight", "selector_hidden.weight"),
        ("selector_predecessor", "selector_predecessor.weight"),
        ("blk.12.attn_conv_base.weight", "blk.12.attn_conv_base"),
        ("blk.0.ffn_conv_base.weight", "blk.0.ffn_conv_base"),
        ("blk.0.ffn_conv_proj", "blk.0.ffn_conv_proj.weight"),
        ("blk.3.post_attention_norm.weight", "blk.3.ffn_norm.weight"),
        ("blk.0.attn_q.weight", "blk.0.attn_q.weight"),
        ("fc.weight", "fc.weight"),
        ("dflash_fc.weightier", "dflash_fc.weightier"),
    ],
)
def test_each_tensor_gets_upstreams_name(theirs, ours):
    (moved,) = moved_tensors(header_of(theirs))
    assert (moved.old, moved.name) == (theirs, ours)


def test_the_norm_after_attention_stays_beside_the_one_before_the_feed_forward_part():
    names = ("blk.0.post_attention_norm.weight", "blk.0.ffn_norm.weight")
    assert [tensor.name for tensor in moved_tensors(header_of(*names))] == list(names)


def test_two_tensors_of_one_name_are_refused():
    with pytest.raises(GGUFError, match=r"`fc.weight` and `dflash_fc.weight` would both be `fc.weight`"):
        moved_tensors(header_of("fc.weight", "dflash_fc.weight"))


@pytest.mark.parametrize(
    ("key", "architecture", "ours"),
    [
        ("dflash-draft.dflash.target_layer_ids", "dflash-draft", "dflash.target_layers"),
        ("dflash-draft.target_layer_ids", "dflash-draft", "dflash.target_layers"),
        ("dspark.dspark.target_layers", "dspark", "dflash.target_layers"),
        ("dspark.dspark.mask_token_id", "dspark", "tokenizer.ggml.mask_token_id"),
        ("dflash-draft.dflash2.conv_taps", "dflash-draft", "dflash.conv_kernel_size"),
        ("gemma4-dflash-draft.dflash.logit_softcap", "gemma4-dflash-draft", "dflash.final_logit_softcapping"),
        ("gemma4-dflash-draft.dflash.sliding_window", "gemma4-dflash-draft", "dflash.attention.sliding_window"),
        ("dspark.attention.head_count", "dspark", "dflash.attention.head_count"),
    ],
)
def test_each_key_gets_upstreams_name(key, architecture, ours):
    assert upstream_key(bare(key, architecture)) == ours


def test_every_renamed_key_has_a_type():
    assert set(KEYS.values()) <= set(TYPES)
    assert {question.key for question in QUESTIONS} <= set(TYPES)


def test_private_keys_are_dropped_and_named(files):
    decided = planned(files["lucebox"], files["target"])
    assert not any("vocab_size" in pair.key for pair in decided.keys)
    (note,) = [note for note in decided.notes if "does not read" in note]
    assert "`qwen35-dflash-draft.vocab_size`, `qwen35-dflash-draft.dflash.n_target_layers`" in note


@pytest.mark.parametrize(
    ("value", "kind"),
    [(8, gguf.GGUFValueType.INT32), (8, gguf.GGUFValueType.UINT64), (8, gguf.GGUFValueType.UINT8)],
)
def test_integers_become_what_llama_cpp_reads(files, tmp_path, value, kind):
    style = forks.Style(
        "dflash", {}, {}, ("dflash.block_size",), {"dflash.block_size": (value, kind)}, 0, vocabulary=True
    )
    old = forks.write_fork(files["native"], tmp_path / "old.gguf", style)
    decided = planned(old)
    assert [(change.old, change.new, change.value) for change in decided.changes] == [
        ("dflash.block_size", "dflash.block_size", "8")
    ]
    header = read_header(rekey(old, tmp_path / "new.gguf").path)
    assert header.raw("dflash.block_size") == read_header(files["native"]).raw("dflash.block_size")


@pytest.mark.parametrize("value", [(-8, gguf.GGUFValueType.INT32), (8.5, gguf.GGUFValueType.FLOAT32)])
def test_values_that_do_not_fit_are_refused(files, tmp_path, value):
    style = forks.Style("dflash", {}, {}, ("dflash.block_size",), {"dflash.block_size": value}, 0, vocabulary=True)
    with pytest.raises(GGUFError, match=r"key `dflash.block_size`: got .*, expected uint32"):
        planned(forks.write_fork(files["native"], tmp_path / "old.gguf", style))


# ---------------------------------------------------------------- taps


def test_taps_are_shifted_exactly_once(files, tmp_path):
    """Checkpoint [1, 3], fork [1, 3], re-keyed [2, 4], and so ever after."""
    assert read_header(files["buun"]).integers("dflash-draft.dflash.target_layer_ids") == [1, 3]
    once = rekey(files["buun"], tmp_path / "once.gguf").path
    assert read_header(once).integers("dflash.target_layers") == [2, 4]
    twice = rekey(once, tmp_path / "twice.gguf").path
    assert twice.read_bytes() == once.read_bytes()


def early(files, folder):
    """As the branch of llama.cpp's pull request 22105 wrote it."""
    style = forks.Style("dflash", {forks.TAPS: "dflash.target_layer_ids"}, {}, vocabulary=True)
    return forks.write_fork(files["native"], folder / "early.gguf", style)


def test_a_list_of_unknown_numbering_is_asked_for(files, tmp_path):
    with pytest.raises(GGUFError, match=r"`dflash.target_layer_ids` \(pass `--taps`\)$"):
        planned(early(files, tmp_path))


@pytest.mark.parametrize(
    ("answers", "taps"),
    [
        (Answers(taps="raw"), [2, 4]),
        (Answers(taps="shifted"), [1, 3]),
        (Answers(target_layers=(0, 2)), [1, 3]),
        (Answers(target_layers=(-1, 2)), [0, 3]),
    ],
)
def test_the_numbering_is_as_given(files, tmp_path, answers, taps):
    done = rekey(early(files, tmp_path), tmp_path / "new.gguf", None, answers)
    header = read_header(done.path)
    assert header.integers("dflash.target_layers") == taps
    assert "dflash.target_layer_ids" not in header.keys


def test_a_forks_numbering_can_be_overruled(files):
    (taps,) = [pair for pair in planned(files["buun"], None, Answers(taps="shifted")).keys if pair.key == forks.TAPS]
    assert taps.raw == read_header(files["buun"]).raw("dflash-draft.dflash.target_layer_ids")


def test_upstreams_own_taps_are_never_shifted(files):
    with pytest.raises(GGUFError, match="leave `--taps` out"):
        planned(files["native"], None, Answers(taps="raw"))


def test_beellamas_own_script_left_a_mark(files, tmp_path):
    extra = {"dflash.n_target_features": (128, forks.UINT32)}
    style = forks.Style("dflash", {}, {}, extra=extra, tap=0, vocabulary=True)
    decided = planned(forks.write_fork(files["native"], tmp_path / "old.gguf", style))
    assert not decided.changed
    assert any("taps one too low" in note for note in decided.notes)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("tensor", "what"),
    [
        ("dflash.aux_hidden_norm.0.weight", "Laguna"),
        ("enc.aux_norm.weight", "Laguna"),
        ("blk.0.attn_gate.weight", "Laguna"),
        ("dspark.log_snr_fc1.weight", "noise"),
        ("dflash.domino.start", "Domino"),
        ("blk.1.ssm_conv1d.weight", "recurrent"),
        ("lilicorr.weight", "does not load"),
    ],
)
def test_what_llama_cpp_has_no_part_for_is_refused_by_name(files, tmp_path, tensor, what):
    with pytest.raises(GGUFError) as caught:
        planned(forks.small_drafter(tmp_path, tensors={tensor: np.ones(8, np.float32)}))
    assert what in str(caught.value)
    assert f"`{tensor}`" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("confidence_bias", 0.5, forks.FLOAT32),
        ("log_snr_conditioning", True, gguf.GGUFValueType.BOOL),
        ("domino.enabled", 1, forks.UINT32),
    ],
)
def test_keys_of_what_llama_cpp_does_not_compute(files, tmp_path, key, value, kind):
    for given, refused in ((value, True), (type(value)(0), False)):
        extra = {f"dflash-draft.dspark.{key}": (given, kind)}
        style = forks.Style("dflash-draft", BUUN.keys, BUUN.tensors, BUUN.drop, extra, vocabulary=True)
        old = forks.write_fork(files["native"], tmp_path / "old.gguf", style)
        if refused:
            with pytest.raises(GGUFError, match=f"has no part for .*{key}"):
                planned(old)
        else:
            assert planned(old).changed


def test_a_scaling_of_no_kind_is_refused(files, tmp_path):
    extra = {"dflash-draft.rope.scaling.factor": (64.0, forks.FLOAT32)}
    style = forks.Style("dflash-draft", BUUN.keys, BUUN.tensors, BUUN.drop, extra, vocabulary=True)
    with pytest.raises(GGUFError, match=r"does not say how .*; convert the drafter's checkpoint again"):
        planned(forks.write_fork(files["native"], tmp_path / "old.gguf", style))


def test_norms_that_are_not_f32_need_a_conversion(files):
    """16-bit norms have no kernel; their data would have to change."""
    data = bytearray(files["native"].read_bytes())
    name = raw.text("output_norm.weight") + struct.pack("<IQ", 1, 64)
    start = data.index(name)
    assert data[start + len(name) : start + len(name) + 4] == struct.pack("<I", 0)
    data[start + len(name) : start + len(name) + 4] = struct.pack("<I", 26)  # I32: as many bytes
    with pytest.raises(
        GGUFError, match=r"`output_norm.weight` .*F32 is needed.*convert the drafter's checkpoint again"
    ):
        plan_rekey(read_header(Memory(bytes(data))))


@pytest.mark.parametrize("architecture", ["llama", "deepseek4-dflash-draft", "qwen3'"])
def test_other_architectures_are_refused(architecture):
    keys = (("general.architecture", raw.string(architecture)),)
    with pytest.raises(
        GGUFError, match=r"no architecture that can be re-keyed: got `(\S+)`, expected one of `dflash`, "
    ) as caught:
        plan_rekey(header_of("a", keys=keys))
    assert f"got `{architecture}`," in str(caught.value)


@pytest.mark.parametrize("keys", [(), (("general.architecture", raw.string("")),)])
def test_no_architecture_is_said_so(keys):
    with pytest.raises(GGUFError, match=r"`general.architecture` is missing"):
        plan_rekey(header_of("a", keys=keys))


@pytest.mark.parametrize("name", ["native", "buun", "lucebox"])
def test_a_drafter_is_no_target(files, name):
    with pytest.raises(GGUFError, match="is itself a drafter"):
        planned(files["buun"], files[name])


def test_shards_are_refused():
    keys = (("general.architecture", raw.string("dflash")), ("split.count", raw.u32(2)))
    with pytest.raises(GGUFError, match="one of several shards"):
        plan_rekey(header_of("a", keys=keys))


def test_keys_that_contradict_each_other_are_refused(files, tmp_path):
    extra = {"dflash-draft.block_size": (16, forks.UINT32)}
    style = forks.Style("dflash-draft", BUUN.keys, BUUN.tensors, BUUN.drop, extra, vocabulary=True)
    with pytest.raises(GGUFError, match=r"`dflash-draft.dflash.block_size` and `dflash-draft.block_size` contradict"):
        planned(forks.write_fork(files["native"], tmp_path / "old.gguf", style))
    style.extra["dflash-draft.block_size"] = (8, forks.UINT32)
    assert planned(forks.write_fork(files["native"], tmp_path / "old.gguf", style)).changed


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("name", ["buun", "lucebox"])
def test_a_second_run_copies_the_first_ones_file(files, tmp_path, name):
    first = rekey(files[name], tmp_path / "first.gguf", files["target"])
    second = rekey(first.path, tmp_path / "second.gguf", files["target"])
    assert first.plan.changed
    assert not second.plan.changed
    assert second.path.read_bytes() == first.path.read_bytes()
    assert forks.tensor_bytes(first.path) == forks.tensor_bytes(files["native"])


def test_a_good_file_is_copied_with_whatever_else_it_holds(files, tmp_path):
    """Trailing bytes and keys that nobody reads stay."""
    extra = {"dflash.vocab_size": 300, "dflash.something": "else", "x.y": 1.5}
    old = forks.small_drafter(tmp_path, extra_keys=extra)
    old.write_bytes(old.read_bytes() + b"trailing")
    done = rekey(old, tmp_path / "new.gguf")
    assert done.path.read_bytes() == old.read_bytes()
    assert done.n_bytes == old.stat().st_size


def test_another_alignment_becomes_the_usual(files, tmp_path):
    reader = gguf.GGUFReader(files["buun"])
    writer = gguf.GGUFWriter(tmp_path / "old.gguf", "dflash-draft")
    writer.add_custom_alignment(256)
    for key, value in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, value.contents(), value.types[0], sub_type=value.types[-1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    done = rekey(tmp_path / "old.gguf", tmp_path / "new.gguf")
    assert read_header(done.path).alignment == 32
    assert forks.tensor_bytes(done.path) == forks.tensor_bytes(files["native"])
    assert done.path.read_bytes() == rekey(files["buun"], tmp_path / "other.gguf").path.read_bytes()


def test_progress_counts_up_to_the_whole(files, tmp_path):
    seen = []
    done = rekey(files["buun"], tmp_path / "new.gguf", progress=lambda *pair: seen.append(pair))
    assert [count for count, _ in seen] == sorted(count for count, _ in seen)
    assert seen[-1] == (done.n_bytes, done.n_bytes) == (done.path.stat().st_size,) * 2


def test_the_old_file_is_never_the_new_one(files, tmp_path):
    old = tmp_path / "old.gguf"
    old.write_bytes(files["buun"].read_bytes())
    link = tmp_path / "link.gguf"
    link.symlink_to(old)
    for new in (old, link):
        with pytest.raises(OutputError, match="is one of the inputs"):
            rekey(old, new, force=True)
    with pytest.raises(OutputError, match="is one of the inputs"):
        rekey(old, files["target"], files["target"], force=True)
    assert old.read_bytes() == files["buun"].read_bytes()


def test_a_file_in_the_way_needs_force(files, tmp_path):
    new = tmp_path / "new.gguf"
    new.write_bytes(b"x")
    with pytest.raises(OutputError, match="`--force`"):
        rekey(files["buun"], new)
    assert new.read_bytes() == b"x"
    rekey(files["buun"], new, force=True)
    assert read_header(new).string("general.architecture") == "dflash"


@pytest.mark.parametrize("cut", [3, 100, 20_000, -1])
def test_a_truncated_file_leaves_nothing(files, tmp_path, cut):
    old = tmp_path / "old.gguf"
    old.write_bytes(files["buun"].read_bytes()[:cut])
    if cut == -1:
        # The last tensor's data ends before the file does, by its padding.
        old.write_bytes(files["buun"].read_bytes()[:-300])
    with pytest.raises(GGUFError):
        rekey(old, tmp_path / "new.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["old.gguf"]


def test_a_file_that_shrinks_after_it_was_planned_leaves_nothing(files, tmp_path):
    from dflash_gguf.rekeying.write import write_rekeyed

    old = tmp_path / "old.gguf"
    old.write_bytes(files["buun"].read_bytes())
    decided = planned(old)
    old.write_bytes(old.read_bytes()[:-400])
    with pytest.raises(GGUFError, match="was changed while it was read"):
        write_rekeyed(decided, old, tmp_path / "new.gguf", force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["old.gguf"]


def test_nothing_is_left_when_there_is_no_old_file(tmp_path):
    with pytest.raises(GGUFError, match="cannot be read"):
        rekey(tmp_path / "none.gguf", tmp_path / "new.gguf")
    assert not list(tmp_path.iterdir())
