"""What was done since the start, for Prometheus: under llama-server's names and under vLLM's.

Comes in: finished jobs, from the worker's thread. Goes out: the text of /metrics. Knows nothing of HTTP.
Source of the names: llama.cpp tools/server/server-task.cpp (0.5.0); vLLM's docs/usage/metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from dflash_gguf.runner.stats import RunStats
    from dflash_gguf.serve.engine import Engine
    from dflash_gguf.serve.job import Job

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280)


@dataclass(slots=True)
class Counts:
    """Of all answers since the start; times in seconds."""

    prompt_n: int = 0
    cache_n: int = 0
    prompt_s: float = 0.0
    predicted_n: int = 0
    predicted_s: float = 0.0
    passes: int = 0
    most_tokens: int = 0
    drafts: int = 0
    draft_n: int = 0
    accepted_n: int = 0
    accepted_at: list[int] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, stats: RunStats, reason: str) -> None:
        """Another answer."""
        self.prompt_n += stats.prompt_n
        self.cache_n += stats.cache_n
        self.prompt_s += stats.prompt_ms / 1e3
        self.predicted_n += stats.predicted_n
        self.predicted_s += stats.predicted_ms / 1e3
        self.passes += stats.verify_calls
        self.most_tokens = max(self.most_tokens, stats.cache_n + stats.prompt_n + stats.predicted_n)
        self.drafts += stats.drafted_at[0] if stats.drafted_at else 0
        self.draft_n += stats.draft_n
        self.accepted_n += stats.draft_n_accepted
        self.accepted_at += [0] * (len(stats.accepted_at) - len(self.accepted_at))
        for i, n in enumerate(stats.accepted_at):
            self.accepted_at[i] += n
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


Row = tuple[str, str, Callable[[Counts], float]]

_LLAMA: Final[tuple[Row, ...]] = (
    ("prompt_tokens", "Prompt tokens read.", lambda c: c.prompt_n),
    ("prompt_tokens_cached", "Prompt tokens kept from the prompt before.", lambda c: c.cache_n),
    ("prompt_seconds", "Seconds spent on prompts.", lambda c: c.prompt_s),
    ("tokens_predicted", "Tokens written.", lambda c: c.predicted_n),
    ("tokens_predicted_seconds", "Seconds spent on writing them.", lambda c: c.predicted_s),
    ("n_decode", "Target passes behind the prompts.", lambda c: c.passes),
    ("spec_decode_num_drafts", "Drafts that were verified.", lambda c: c.drafts),
    ("spec_decode_num_draft_tokens", "Drafted tokens that were verified.", lambda c: c.draft_n),
    ("spec_decode_num_accepted_tokens", "Drafted tokens that were accepted.", lambda c: c.accepted_n),
)
_LLAMA_GAUGES: Final[tuple[Row, ...]] = (
    ("n_tokens_max", "Most tokens of a prompt and its answer.", lambda c: c.most_tokens),
    ("prompt_tokens_seconds", "Prompt tokens read a second.", lambda c: _rate(c.prompt_n, c.prompt_s)),
    ("predicted_tokens_seconds", "Tokens written a second.", lambda c: _rate(c.predicted_n, c.predicted_s)),
)
_VLLM: Final[tuple[Row, ...]] = (
    ("prompt_tokens", "Prompt tokens, kept ones among them.", lambda c: c.prompt_n + c.cache_n),
    ("generation_tokens", "Tokens written.", lambda c: c.predicted_n),
    ("prefix_cache_queries", "Prompt tokens looked for in the cache.", lambda c: c.prompt_n + c.cache_n),
    ("prefix_cache_hits", "Prompt tokens found there.", lambda c: c.cache_n),
    ("spec_decode_num_drafts", "Drafts that were verified.", lambda c: c.drafts),
    ("spec_decode_num_draft_tokens", "Drafted tokens that were verified.", lambda c: c.draft_n),
    ("spec_decode_num_accepted_tokens", "Drafted tokens that were accepted.", lambda c: c.accepted_n),
)
_PER_POSITION: Final = "spec_decode_num_accepted_tokens_per_pos"
_TIMES: Final[dict[str, tuple[str, Callable[[Job], float]]]] = {
    "time_to_first_token_seconds": ("From a request to its first token.", lambda job: job.first_at - job.queued_at),
    "e2e_request_latency_seconds": ("From a request to its end.", lambda job: job.ended_at - job.queued_at),
    "request_queue_time_seconds": ("Waiting for the turn.", lambda job: job.started_at - job.queued_at),
    "request_prefill_time_seconds": ("From the turn to the first token.", lambda job: job.first_at - job.started_at),
    "request_decode_time_seconds": ("From the first token to the end.", lambda job: job.ended_at - job.first_at),
}


class Metrics:
    """State: counts, which the worker adds to and a scrape reads."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._counts = Counts()
        self._lock = threading.Lock()
        names = ("model_name", "engine")
        self._times = {
            name: Histogram(f"vllm:{name}", text, names, registry=self._registry, buckets=_SECONDS).labels(model, "0")
            for name, (text, _) in _TIMES.items()
        }
        self._registry.register(_Families(self, engine, model))

    def finished(self, job: Job) -> None:
        """Counts a job that has ended, however it did."""
        if job.stats is None:
            return
        with self._lock:
            self._counts.add(job.stats, job.reason)
        for name, (_, seconds) in _TIMES.items():
            if job.first_at:
                self._times[name].observe(max(0.0, seconds(job)))

    def families(self, engine: Engine, model: str) -> Iterator[Metric]:
        """All but the times."""
        with self._lock:
            yield from _llama(self._counts, engine)
            yield from _vllm(self._counts, engine, model)

    def text(self) -> bytes:
        """In Prometheus's format."""
        return generate_latest(self._registry)


class _Families(Collector):
    """What the registry asks."""

    def __init__(self, metrics: Metrics, engine: Engine, model: str) -> None:
        self._metrics, self._engine, self._model = metrics, engine, model

    def collect(self) -> Iterator[Metric]:
        """The families."""
        return self._metrics.families(self._engine, self._model)


def _llama(counts: Counts, engine: Engine) -> Iterator[Metric]:
    for name, text, value in _LLAMA:
        yield CounterMetricFamily(f"llamacpp:{name}", text, value(counts))
    for name, text, value in _LLAMA_GAUGES:
        yield GaugeMetricFamily(f"llamacpp:{name}", text, value(counts))
    yield GaugeMetricFamily("llamacpp:requests_processing", "Requests that are answered.", engine.running)
    yield GaugeMetricFamily("llamacpp:requests_deferred", "Requests that wait.", engine.waiting)
    yield _per_position("llamacpp", counts, {})


def _vllm(counts: Counts, engine: Engine, model: str) -> Iterator[Metric]:
    labels = {"model_name": model, "engine": "0"}
    for name, text, value in _VLLM:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=list(labels))
        family.add_metric(list(labels.values()), value(counts))
        yield family
    gauges = {
        "num_requests_running": ("Requests that are answered.", engine.running),
        "num_requests_waiting": ("Requests that wait.", engine.waiting),
    }
    for name, (text, number) in gauges.items():
        gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=list(labels))
        gauge.add_metric(list(labels.values()), number)
        yield gauge
    ended = CounterMetricFamily(
        "vllm:request_success", "Answers by how they ended.", labels=[*labels, "finished_reason"]
    )
    for reason, n in counts.reasons.items():
        ended.add_metric([*labels.values(), reason], n)
    yield ended
    yield _per_position("vllm", counts, labels)


def _per_position(prefix: str, counts: Counts, labels: dict[str, str]) -> Metric:
    text = "Accepted tokens at each position of a draft."
    family = CounterMetricFamily(f"{prefix}:{_PER_POSITION}", text, labels=[*labels, "position"])
    for i, n in enumerate(counts.accepted_at):
        family.add_metric([*labels.values(), str(i)], n)
    return family


def _rate(n: float, seconds: float) -> float:
    return n / seconds if seconds > 0 else 0.0
