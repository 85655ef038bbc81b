"""
The native core: the loop and the quantizer on top of llama-cpp-python's libllama.
"""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


class Activations:
    """Sums of squares of what runs through named matrices of a context."""

    def __init__(self) -> None: ...

    def add(self, name: str, n_per_row: int, n_matrices: int) -> None:
        """Looks at a matrix, or at several behind one another."""

    def check(self) -> None:
        """
        Raises SessionError when a value was not finite, or a matrix not as named.
        """

    def sums(self, name: str) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """float32 [n_matrices, n_per_row]."""

    def counts(self, name: str) -> list[int]:
        """Rows that went through each matrix."""

    @property
    def callback(self) -> int:
        """Address for a context's cb_eval."""

    @property
    def address(self) -> int:
        """Address for its user data. This must outlive the context."""

def lead(row: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> float:
    """
    By how much the largest of a row of logits is larger than the next one.
    """

class DepthRound:
    """What a round did, and its seconds."""

    def __init__(self, n_drafted: int, n_verified: int, n_accepted: int, t_draft: float, t_verify: float, lead: float = 0.0) -> None: ...

class DepthControl:
    """How many tokens to draft and to verify; see cpp/depth.hpp."""

    def __init__(self, n_max: int, n_min: int = 0, p_min: float = 0.0, seed: int = 0) -> None: ...

    def measured_verify(self, width: int, seconds: float) -> None:
        """A target's pass over that many rows was timed."""

    def measured_draft(self, width: int, seconds: float) -> None:
        """A drafter's pass for that many proposals was timed."""

    def begin(self) -> None:
        """Another request."""

    def draft(self, n_limit: int) -> int:
        """How many tokens to draft; 0: a plain pass."""

    def verify(self, confidence: Sequence[float], n_limit: int) -> int:
        """How many of the drafted tokens to verify."""

    def observe(self, round: DepthRound) -> None: ...

    def judge(self, confidence: Sequence[float], agreed: int, judged: int) -> None:
        """How right the last draft was, as far as the text tells."""

    def cost_verify(self, width: int) -> float:
        """Seconds of a target's pass."""

    def cost_draft(self, width: int) -> float:
        """Seconds of a drafter's pass."""

    def chance(self, i: int) -> float:
        """That proposal i is right when those before it were."""

    @property
    def gain(self) -> float:
        """Expected tokens a second over plain decoding's."""

    @property
    def balance(self) -> float:
        """Seconds that drafting may lose now."""

    @property
    def interval(self) -> int:
        """Plain passes between two probes."""

def memory_breakdown(context: int, layers: Sequence[int], lattice: bool = False) -> list[tuple[str, int, int, int]]:
    """
    Bytes of a context whose `layers` inputs are captured, or that leaves DFlash 2's lattice: for each kind of buffer the device (empty: the host), and what weights, memory and passes take.
    """

def quantize_rows(src: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], src_type: int, dst: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], dst_type: int, n_per_row: int, n_threads: int, importance: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, lanes: int = 0) -> None:
    """
    Turn rows of floats or blocks into rows of `dst_type`; both buffers hold whole rows. `lanes`: of our kernels; 0: ggml's own code.
    """

def widen_fp8(src: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], mantissa_bits: int, factors: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], n_across: int, dst: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], n_per_row: int) -> None:
    """
    Rows of FP8, each group of `n_across` columns times its factor, as F32.
    """

def kernel_lanes() -> list[int]:
    """How many lanes our kernels can have on this processor, most first."""

def kernel_types() -> list[int]:
    """The types that our kernels make, by ggml's numbers."""

def kernel_is_exact(type: int, weighted: bool, lanes: int) -> bool:
    """
    Whether a kernel makes the same bytes as ggml on this machine; found out once.
    """

def kernel_makes(kernel_type: int, type: int, weighted: bool, lanes: int) -> bool:
    """
    Whether the kernel of one type makes ggml's bytes of another, whose blocks are as large.
    """

def quant_types(arch: str, n_embd: int, n_ff: int, n_layer: int, n_head: int, n_head_kv: int, n_expert: int, head_dim: int, ftype: int, names: Sequence[str], shapes: Sequence[Sequence[int]], types: Sequence[int], pure: bool = False, quantize_output_tensor: bool = True, output_tensor_type: int | None = None, token_embedding_type: int | None = None, tensor_types: Sequence[tuple[str, int]] = []) -> list[tuple[int, bool]]:
    """
    The type that llama-quantize gives to each tensor of a whole file, in its own order, without an importance matrix, and whether the mixture chose it, and no option.
    """

def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox4x32-10."""

def uniform(seed: int, pos: int, id: int) -> float:
    """The uniform number in (0, 1) of a token at a position."""

def gumbel(seed: int, pos: int, id: int) -> float:
    """The Gumbel noise of a token at a position."""

class FilterSettings:
    """Settings of the filters; as made, nothing is filtered."""

    def __init__(self) -> None: ...

    @property
    def temperature(self) -> float: ...

    @temperature.setter
    def temperature(self, arg: float, /) -> None: ...

    @property
    def dynatemp_range(self) -> float: ...

    @dynatemp_range.setter
    def dynatemp_range(self, arg: float, /) -> None: ...

    @property
    def dynatemp_exponent(self) -> float: ...

    @dynatemp_exponent.setter
    def dynatemp_exponent(self, arg: float, /) -> None: ...

    @property
    def top_k(self) -> int: ...

    @top_k.setter
    def top_k(self, arg: int, /) -> None: ...

    @property
    def top_p(self) -> float: ...

    @top_p.setter
    def top_p(self, arg: float, /) -> None: ...

    @property
    def min_p(self) -> float: ...

    @min_p.setter
    def min_p(self, arg: float, /) -> None: ...

    @property
    def typical_p(self) -> float: ...

    @typical_p.setter
    def typical_p(self, arg: float, /) -> None: ...

    @property
    def top_n_sigma(self) -> float: ...

    @top_n_sigma.setter
    def top_n_sigma(self, arg: float, /) -> None: ...

    @property
    def xtc_probability(self) -> float: ...

    @xtc_probability.setter
    def xtc_probability(self, arg: float, /) -> None: ...

    @property
    def xtc_threshold(self) -> float: ...

    @xtc_threshold.setter
    def xtc_threshold(self, arg: float, /) -> None: ...

    @property
    def min_keep(self) -> int: ...

    @min_keep.setter
    def min_keep(self, arg: int, /) -> None: ...

class PenaltySettings:
    """Settings of the penalties; as made, nothing is penalized."""

    def __init__(self) -> None: ...

    @property
    def last_n(self) -> int: ...

    @last_n.setter
    def last_n(self, arg: int, /) -> None: ...

    @property
    def repeat(self) -> float: ...

    @repeat.setter
    def repeat(self, arg: float, /) -> None: ...

    @property
    def frequency(self) -> float: ...

    @frequency.setter
    def frequency(self, arg: float, /) -> None: ...

    @property
    def presence(self) -> float: ...

    @presence.setter
    def presence(self, arg: float, /) -> None: ...

    @property
    def dry_multiplier(self) -> float: ...

    @dry_multiplier.setter
    def dry_multiplier(self, arg: float, /) -> None: ...

    @property
    def dry_base(self) -> float: ...

    @dry_base.setter
    def dry_base(self, arg: float, /) -> None: ...

    @property
    def dry_allowed_length(self) -> int: ...

    @dry_allowed_length.setter
    def dry_allowed_length(self, arg: int, /) -> None: ...

    @property
    def dry_last_n(self) -> int: ...

    @dry_last_n.setter
    def dry_last_n(self, arg: int, /) -> None: ...

    @property
    def dry_breakers(self) -> list[str]: ...

    @dry_breakers.setter
    def dry_breakers(self, arg: Sequence[str], /) -> None: ...

class Filters:
    """The filters alone."""

    def __init__(self, settings: FilterSettings) -> None: ...

    def apply(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], draw: float = 0.0) -> tuple[list[int], float]:
        """
        Ids of the survivors of a row, float32 [n], the best first; the temperature.
        """

class Sampler:
    """The choice at each position of one answer."""

    def __init__(self, n_vocab: int, filters: FilterSettings, seed: int = 0, logit_bias: Sequence[tuple[int, float]] = [], penalties: PenaltySettings = ..., prompt: Sequence[int] = [], grammar: str = '', vocab: int = 0) -> None:
        """
        prompt: ids that penalties look back at; grammar: GBNF, empty for none; vocab: address of a llama_vocab that outlives this, which a grammar and DRY need.
        """

    def choose(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], pos: int) -> int:
        """The token for position pos, from logits float32 [n_vocab]."""

    def accept(self, id: int) -> None:
        """Goes on with a token that was chosen."""

    def truncate(self, n: int) -> None:
        """Takes back all but the first n accepted tokens."""

class DraftRule(enum.Enum):
    """How a drafter picks from its candidates."""

    argmax = 0
    """The best score."""

    keyed = 1
    """The best with the target's own filters and noise."""

    auto = 2
    """Of the two the one of which more is accepted."""

class RuleChoice:
    """Which draft rule to use."""

    def __init__(self, rule: DraftRule) -> None: ...

    @property
    def keyed(self) -> bool:
        """Whether the next round is drafted by the keyed rule."""

    def observe(self, written: Sequence[int], argmax: Sequence[int], keyed: Sequence[int]) -> None:
        """What the target wrote in a round, and what each rule proposed for it."""

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

    @property
    def n_ctx(self) -> int:
        """Positions that fit."""

    @property
    def n_outputs(self) -> int:
        """Rows of a pass that may ask for logits."""

    def mark(self, pos: int) -> None:
        """Remembers a recurrent state at its end, pos, for rewind()."""

    def rewind(self, pos: int) -> int:
        """
        Goes back to pos, or as near before it as the memory allows; returns where it stands.
        """

    def logits(self, row: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]:
        """Logits of a row of the last pass: float32 [n_vocab]."""

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

    def __init__(self, context: int, kind: Kind, anchor_first: bool, n_ctx: int = 0, confidence_head: bool = False) -> None:
        """
        context: address of a llama_context that outlives this; anchor_first: the anchor's own row is the first proposal; n_ctx: positions of it to use, 0: all; confidence_head: DSpark rows say how likely they are right.
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
        """
        Proposes n tokens to follow `last` at position pos, the best at each place.
        """

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

    def __init__(self, target: Target, drafter: Drafter | None, n_max: int, rule: DraftRule = DraftRule.argmax, automatic: bool = False, n_min: int = 0, p_min: float = 0.0) -> None:
        """
        n_max: tokens drafted a round at the most; automatic: depth control decides how many; n_min, p_min: see cpp/depth.hpp.
        """

    def calibrate(self, seconds: float) -> None:
        """Times passes of every width for depth control; forgets the sequence."""

    @property
    def control(self) -> DepthControl:
        """Depth control; None at a fixed depth."""

    def begin(self, keep: int = 0, drafts: bool = True) -> int:
        """
        Forgets the counts and all but the first `keep` positions; returns how many could be kept. Without drafts the request that comes is decoded plainly.
        """

    def choose_by(self, sampler: Sampler | None) -> None:
        """
        Between begin() and the prompt: what chooses its answer; None: the best token is chosen.
        """

    def report(self, n_best: int) -> None:
        """
        Between begin() and the prompt: scores the answer's tokens and names so many others; below 0: not.
        """

    @property
    def scores(self) -> list[tuple[float, list[tuple[int, float]]]]:
        """
        Of the tokens that prefill() or round() returned last: log probability, and the likeliest ids with theirs.
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
