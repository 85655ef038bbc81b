"""What libllama demands of a drafter's file, whatever its target.

Comes in: the header of a ``dflash`` file, and where its tensors' data lies. Goes out: every finding. Knows nothing of
the target, and reads no weights: only ``d2t``, a table of rows.
Source: llama.cpp src/models/dflash.cpp (0.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dflash_gguf.contract.drafter_tensors import STAGE_SLOTS, sizes_of, slots_for
from dflash_gguf.contract.hparams import BLOCK, LAYERS, LENGTH, Sizes, check_windows_heads, read_sizes
from dflash_gguf.contract.reader import I32_MAX, Bounds, Reader
from dflash_gguf.contract.shards import check_alignments
from dflash_gguf.contract.streams import check_streams
from dflash_gguf.contract.tables import TensorData, check_tables
from dflash_gguf.contract.tensors import check_factors, check_slots
from dflash_gguf.contract.vocabulary import check_vocabulary, repeated
from dflash_gguf.facts import DFLASH2, DSPARK, drafter_kind
from dflash_gguf.rekeying.answers import QUESTIONS, TAPS
from dflash_gguf.schema import ARCHITECTURE, Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dflash_gguf.findings import Finding
    from dflash_gguf.gguf_header import GGUFHeader

CONVERT_AGAIN: Final = "convert the drafter's checkpoint again with `dflash-gguf convert --target`"
REKEY: Final = "mend the file with `dflash-gguf rekey`"
FLAGS: Final = {question.key: question.usage for question in QUESTIONS if question is not TAPS} | dict.fromkeys(
    (Keys.TOKENIZER_MODEL, Keys.TOKENS), "--target"
)
"""Key -> the flag of ``rekey`` that settles it."""
REKEY_FLAGS: Final = {key: f"{REKEY} and `{flag}`, or {CONVERT_AGAIN}" for key, flag in FLAGS.items()} | {
    Keys.SELECTOR_TOP_K: f"{REKEY} and `{FLAGS[Keys.SELECTOR_TOP_K]}` if it was trained with fewer; otherwise its "
    "checkpoint itself is wrong: get the drafter again"
}
"""Key -> what helps against a fault of it in a file."""
ACTIVATIONS: Final = ("silu", "gelu", "gelu_pytorch_tanh")
SELECTOR_KEYS: Final = (Keys.CONV_KERNEL_SIZE, Keys.CONV_GROUP_SIZE, Keys.SELECTOR_RANK, Keys.SELECTOR_TOP_K)


def drafter_findings(
    header: GGUFHeader, data: TensorData | None = None, remedies: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Everything for which libllama would refuse the file, abort, or draft nothing.

    ``data`` says where the tensors lie when ``header`` is that of a file which is not written yet. ``remedies`` are
    what helps against a fault of a key; by default `REKEY_FLAGS` for a file, and for one not written none.
    """
    reader = Reader(header, "drafter", CONVERT_AGAIN)
    reader.remedies = (REKEY_FLAGS if header.path is not None else {}) if remedies is None else remedies
    kind = drafter_kind(header.tensors)
    sizes = read_sizes(reader, ARCHITECTURE)
    n_vocab = check_vocabulary(reader)
    check_alignments(reader)
    _mask(reader, n_vocab)
    _reduced(reader, kind, TensorData.of(header) if data is None else data)
    for rule in RULES:
        rule(reader, kind, sizes)
    check_factors(reader)
    if sizes.n_layers is not None:
        stages = Keys.HYPER_CONNECTIONS in header.keys
        slots = STAGE_SLOTS if stages else slots_for(kind, reduced="d2t" in header.tensors)
        check_slots(reader, slots, sizes_of(header, sizes, n_vocab), sizes.n_layers)
    return tuple(reader.findings)


def _heads(reader: Reader, _kind: str, sizes: Sizes) -> None:
    """Every layer is shaped by the first one's heads, but cached by its own."""
    for key, heads in ((Keys.HEAD_COUNT, sizes.n_heads), (Keys.HEAD_COUNT_KV, sizes.n_kv_heads)):
        if heads is not None and (len(set(heads)) != 1 or not heads[0]):
            reader.fault(f"`{key}` is not one number above 0 for all layers", heads if len(heads) < 9 else len(heads))
    if sizes.key_length != sizes.value_length:
        what = f"heads are not as long for keys ({sizes.key_length}) as for values"
        reader.fault(what, sizes.value_length)
    check_windows_heads(reader, ARCHITECTURE, sizes)


def _always(reader: Reader, _kind: str, sizes: Sizes) -> None:
    if Keys.HYPER_CONNECTIONS not in reader.header.keys:
        reader.a_layer(Keys.FEED_FORWARD_LENGTH, sizes.n_layers or 1, LENGTH, required=True)
    if Keys.RMS_EPS not in reader.header.keys:
        reader.fault(f"`{Keys.RMS_EPS}` is missing", "none", key=Keys.RMS_EPS)
    if not reader.whole:
        reader.fault("file is one of several shards", "split", remedy="join them with llama.cpp's `llama-gguf-split`")
    reader.text(Keys.HIDDEN_ACTIVATION, ACTIVATIONS)
    reader.flag(Keys.SAMPLE_FROM_ANCHOR)
    reader.flag(Keys.HAS_CONFIDENCE_HEAD)
    if Keys.CAUSAL not in reader.header.keys:
        what = f"`{Keys.CAUSAL}` is missing, llama.cpp assumes false"
        reader.fault(what, "none", warning=True, remedy=f"{REKEY}, or check how the drafter was trained")
    else:
        reader.flag(Keys.CAUSAL)


def _mask(reader: Reader, n_vocab: int | None) -> None:
    """Without it, or with one outside the vocabulary, libllama has none and says nothing."""
    reader.integer(Keys.MASK_TOKEN_ID, Bounds(0, (n_vocab or I32_MAX) - 1), required=True)


def _block_size(reader: Reader, _kind: str, _sizes: Sizes) -> None:
    """llama.cpp takes 16 when a file names none, whatever the drafter was trained with."""
    if Keys.BLOCK_SIZE in reader.header.keys:
        reader.integer(Keys.BLOCK_SIZE, BLOCK)
    else:
        reader.fault(f"`{Keys.BLOCK_SIZE}` is missing", "none", key=Keys.BLOCK_SIZE)


def _taps(reader: Reader, _kind: str, _sizes: Sizes) -> None:
    taps = reader.integers(Keys.TARGET_LAYERS, LAYERS, Bounds(0, I32_MAX), required=True)
    twice = next(repeated(taps or ()), None)
    if twice is not None:
        reader.fault(f"`{Keys.TARGET_LAYERS}` names a layer twice", twice, key=Keys.TARGET_LAYERS)


def _window(reader: Reader, _kind: str, sizes: Sizes) -> None:
    window = reader.integer(Keys.SLIDING_WINDOW)
    if not window or sizes.n_layers is None or Keys.HYPER_CONNECTIONS in reader.header.keys:
        return
    pattern = reader.booleans(Keys.SLIDING_WINDOW_PATTERN, sizes.n_layers, required=True)
    if pattern is not None and not any(pattern):
        reader.fault(f"`{Keys.SLIDING_WINDOW_PATTERN}` names no layer", "none of them", key=Keys.SLIDING_WINDOW_PATTERN)


def _sections(reader: Reader, _kind: str, sizes: Sizes) -> None:
    """Their presence makes libllama count positions in sections; one of the first three must turn something."""
    if Keys.ROPE_DIMENSION_SECTIONS not in reader.header.keys:
        return
    sections = reader.integers(Keys.ROPE_DIMENSION_SECTIONS, 4, Bounds(0, LENGTH.most))
    turned = reader.integer(Keys.ROPE_DIMENSION_COUNT) or sizes.key_length
    longest = (sizes.key_length or 0) // 2
    if sections and turned and (not any(sections[:3]) or not turned // 2 <= sum(sections) <= longest):
        what = f"`{Keys.ROPE_DIMENSION_SECTIONS}` does not cover half of the {turned} values that are turned"
        reader.fault(what, sections)


def _selector(reader: Reader, kind: str, sizes: Sizes) -> None:
    _, group, _, top_k = (
        reader.integer(key, Bounds(1, LENGTH.most), required=kind == DFLASH2) for key in SELECTOR_KEYS
    )
    if kind != DFLASH2:
        if set(SELECTOR_KEYS) & reader.header.keys.keys():
            reader.fault("file has DFlash 2's keys but not its selector: it is an incomplete DFlash 2", "no selector")
        return
    n_embd = sizes.n_embd
    if n_embd and group and n_embd % group:
        reader.fault(f"`{Keys.CONV_GROUP_SIZE}` does not divide its hidden size of {n_embd}", group)
    n_vocab = reader.header.keys[Keys.TOKENS].count if Keys.TOKENS in reader.header.keys else 0
    if n_vocab and top_k and top_k > n_vocab:
        reader.fault(f"`{Keys.SELECTOR_TOP_K}` is more than its {n_vocab} tokens", top_k, key=Keys.SELECTOR_TOP_K)
    if n_embd and top_k and top_k * (top_k + 1) > n_embd:
        what = f"`{Keys.SELECTOR_TOP_K}` is too large: top_k * (top_k + 1) may be at most the hidden size, {n_embd}"
        reader.fault(what, top_k, key=Keys.SELECTOR_TOP_K)


def widest_kernel(n_layers: int, n_tensors: int) -> int:
    """The most taps of a DFlash 2 drafter's convolutions whose graph libllama has room for; see `_graph`."""
    return ((max(1024, 12 * n_tensors) - 60) // n_layers - 59) // 32


def _graph(reader: Reader, kind: str, sizes: Sizes) -> None:
    """Libllama plans a graph's size by the number of tensors; what does not fit ends the process.

    Source: ``llama_context::graph_max_nodes``; counted on the graphs of src/models/dflash.cpp. DeepSeek-V4's layers are
    given 40 nodes a row, of which the longest chain of DSpark's takes 20, and four times as many a tensor.
    """
    if Keys.HYPER_CONNECTIONS in reader.header.keys:
        return
    n_layers, tensors = sizes.n_layers or 0, reader.header.tensors
    if kind == DFLASH2:
        kernel = reader.integer(Keys.CONV_KERNEL_SIZE) or 0
        if n_layers and kernel > widest_kernel(n_layers, len(tensors)):
            what = f"`{Keys.CONV_KERNEL_SIZE}` makes a graph that libllama has no room for in {n_layers} layers"
            reader.fault(what, kernel)
    elif kind == DSPARK:
        block = reader.integer(Keys.BLOCK_SIZE) or 0
        links = 6 + 7 * ("conf_proj.weight" in tensors) + 7 * ("d2t" in tensors)
        if links * block + 50 * n_layers + 24 > max(1024, 8 * len(tensors)):
            reader.fault(f"`{Keys.BLOCK_SIZE}` makes a graph that libllama has no room for", block, key=Keys.BLOCK_SIZE)


def _reduced(reader: Reader, kind: str, data: TensorData) -> None:
    """A list of tokens that the drafter may write, where it is not the whole vocabulary."""
    tensors = reader.header.tensors
    if "d2t" not in tensors:
        return
    if "output.weight" not in tensors:
        reader.fault("file drafts a part of the vocabulary (`d2t`) but has no head of its own", "no `output.weight`")
    n_vocab = reader.header.keys[Keys.TOKENS].count if Keys.TOKENS in reader.header.keys else None
    check_tables(reader, data, ["d2t"], n_vocab)
    if kind == DFLASH2:
        reader.fault("file drafts a part of the vocabulary (`d2t`), which DFlash 2's code books cannot", "`d2t`")


def _stages(reader: Reader, kind: str, sizes: Sizes) -> None:
    """DeepSeek-V4's layers."""
    if Keys.HYPER_CONNECTIONS not in reader.header.keys:
        return
    check_streams(reader, ARCHITECTURE, sizes)
    for name in ("attention.q_lora_rank", "attention.output_lora_rank", "expert_shared_count"):
        reader.integer(f"{ARCHITECTURE}.{name}", LENGTH, required=True)
    if sizes.n_experts == 0:
        reader.fault("`dflash.expert_count` is missing or 0", 0)
    if kind == DFLASH2:
        reader.fault("file mixes DeepSeek-V4's layers with DFlash 2's selector", kind)


RULES: Final[tuple[Callable[[Reader, str, Sizes], None], ...]] = (
    _heads,
    _always,
    _block_size,
    _taps,
    _window,
    _sections,
    _selector,
    _graph,
    _stages,
)
"""Each notes what is wrong with one matter."""
