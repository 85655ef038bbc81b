"""
The native core: the loop and the quantizer on top of llama-cpp-python's libllama.
"""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


def quantize_rows(src: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], src_type: int, dst: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], dst_type: int, n_per_row: int, n_threads: int) -> None:
    """
    Turn rows of floats or blocks into rows of `dst_type`; both buffers hold whole rows.
    """

def quant_types(arch: str, n_embd: int, n_ff: int, n_layer: int, n_head: int, n_head_kv: int, head_dim: int, ftype: int, names: Sequence[str], shapes: Sequence[Sequence[int]], types: Sequence[int]) -> list[int]:
    """
    The type that llama-quantize gives to each tensor of a whole file, in its own order.
    """

class Target:
    """A target behind the loop's seam."""

class Drafter:
    """A drafter behind the loop's seam."""

    @property
    def n_max(self) -> int:
        """Tokens that one pass can propose."""

class LlamaTarget(Target):
    """A target in a libllama context."""

    def __init__(self, context: int, n_ctx: int, layers: Sequence[int], n_outputs: int) -> None:
        """
        context: address of a llama_context that outlives this; n_ctx: positions of it to use; layers: layer inputs to capture, in the drafter's order; n_outputs: rows of a pass that may ask for logits.
        """

    def decode(self, tokens: Sequence[int], pos: int, n_logits: int) -> None:
        """One pass over tokens from position pos on."""

    def features(self, first: int, n: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """Layer inputs of rows of the last pass: float32 [n, taps * n_embd]."""

class Kind(enum.Enum):
    """What a drafter's pass leaves to read."""

    dflash = 0
    """A row of logits for each position behind the anchor."""

    dflash2 = 1
    """A lattice of candidates and pairwise scores."""

    dspark = 2
    """Rows of logits, each conditioned on the best token of the one before."""

class LlamaDrafter(Drafter):
    """A drafter in a libllama context."""

    def __init__(self, context: int, kind: Kind, anchor_first: bool, n_ctx: int = 0) -> None:
        """
        context: address of a llama_context that outlives this; anchor_first: the anchor's own row is the first proposal; n_ctx: positions of it to use, 0: all.
        """

    def inject(self, features: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], pos: int) -> None:
        """Adds feature rows, float32 [n, n_features], from position pos on."""

    def lattice(self, last: int, pos: int, n: int) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None, None))], Annotated[NDArray[numpy.float32], dict(shape=(None, None, None))]]:
        """
        One pass of DFlash 2: (candidate ids int32 [n, top_k], scores float32 [n, top_k, top_k]).
        """

    def rows(self, last: int, pos: int, n: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """
        One pass of DFlash or DSpark: logits of the proposals, float32 [n, n_vocab].
        """

    def draft(self, last: int, pos: int, n: int) -> list[int]:
        """Proposes n tokens to follow `last` at position pos."""

class ScriptedTarget(Target):
    """A target whose passes are Python methods."""

    def __init__(self, script: object) -> None: ...

class ScriptedDrafter(Drafter):
    """A drafter whose passes are Python methods."""

    def __init__(self, script: object) -> None: ...

class Stats:
    """Counts, and seconds, since begin()."""

    @property
    def n_prompt(self) -> int: ...

    @property
    def n_injected(self) -> int: ...

    @property
    def n_drafts(self) -> int: ...

    @property
    def n_verify(self) -> int: ...

    @property
    def draft_n(self) -> int: ...

    @property
    def draft_n_accepted(self) -> int: ...

    @property
    def drafted_at(self) -> list[int]: ...

    @property
    def accepted_at(self) -> list[int]: ...

    @property
    def t_prefill(self) -> float: ...

    @property
    def t_draft(self) -> float: ...

    @property
    def t_verify(self) -> float: ...

    @property
    def t_accept(self) -> float: ...

    @property
    def t_inject(self) -> float: ...

class Loop:
    """
    The loop of one request; see cpp/session.hpp for the state between rounds.
    """

    def __init__(self, target: Target, drafter: Drafter | None, n_max: int) -> None: ...

    def begin(self, keep: int = 0) -> int:
        """
        Forgets the counts and all but the first `keep` positions; returns how many could be kept.
        """

    def prefill(self, tokens: Sequence[int], final: bool) -> int:
        """
        The next tokens of the prompt; with final, returns the first chosen token, else -1.
        """

    def mark(self) -> None:
        """Remembers a recurrent target's state here, for a later begin()."""

    def last_logits(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]:
        """The logits that the newest token was chosen from: float32 [n_vocab]."""

    def round(self, n_limit: int) -> list[int]:
        """
        Drafts at most n_limit tokens, verifies them, returns what the target wrote.
        """

    def commit(self, k: int) -> None:
        """Keeps the first k tokens of the round, at least one."""

    @property
    def n_ctx(self) -> int:
        """Positions that fit."""

    @property
    def n_vocab(self) -> int:
        """Size of the vocabulary."""

    @property
    def n_batch(self) -> int:
        """Tokens that one pass takes."""

    @property
    def n_past(self) -> int:
        """Positions in both caches."""

    @property
    def last(self) -> int:
        """
        The newest token, not yet through the target; -1 before the prompt is over.
        """

    @property
    def pending(self) -> bool:
        """Whether a round waits for commit(), or for begin() to drop it."""

    @property
    def recurrent(self) -> bool:
        """Whether the target can go back only to where it was marked."""

    @property
    def n_max(self) -> int:
        """Tokens drafted a round at the most."""

    @property
    def n_drafted(self) -> int:
        """Tokens proposed in the last round."""

    @property
    def stats(self) -> Stats:
        """A copy of the counts so far."""
