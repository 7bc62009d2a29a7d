"""Events of our own, beside the ones that LlamaIndex emits; they carry ids and counts, no text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent

dispatcher = get_dispatcher(__name__)


class StageEndEvent(BaseEvent):
    """A stage of retrieval, ranking or indexing has finished."""

    stage: str
    latency_ms: float
    n_in: int = 0
    n_out: int = 0
    cache_hits: int = 0
    tokens: int = 0

    @classmethod
    def class_name(cls) -> str:
        """Return the event's name for event handlers."""
        return "HybridPackStageEndEvent"


class FallbackEvent(BaseEvent):
    """A quality step failed, and the step before it stands instead."""

    stage: str
    error_type: str
    message: str
    fallback: str

    @classmethod
    def class_name(cls) -> str:
        """Return the event's name for event handlers."""
        return "HybridPackFallbackEvent"


class StageTimer:
    """Counts of one running stage; the event is emitted by :func:`stage` at its end."""

    def __init__(self, name: str, n_in: int) -> None:
        self.name = name
        self.n_in = n_in
        self.n_out = 0
        self.cache_hits = 0
        self.tokens = 0
        self.latency_ms = 0.0


@contextmanager
def stage(name: str, *, n_in: int = 0) -> Iterator[StageTimer]:
    """Time a stage and emit one :class:`StageEndEvent` when it ends without an exception.

    Args:
        name: Name of the stage, for example ``"fusion"``.
        n_in: Number of items that enter the stage.

    Yields:
        A record to which the stage writes ``n_out``, ``cache_hits`` and ``tokens``.
    """
    timer = StageTimer(name, n_in)
    start = perf_counter()
    yield timer
    timer.latency_ms = (perf_counter() - start) * 1000.0
    dispatcher.event(
        StageEndEvent(
            stage=name,
            latency_ms=timer.latency_ms,
            n_in=timer.n_in,
            n_out=timer.n_out,
            cache_hits=timer.cache_hits,
            tokens=timer.tokens,
        )
    )


def emit_fallback(name: str, error: BaseException, *, fallback: str) -> None:
    """Record that a quality step failed and what stands in its place.

    Args:
        name: Name of the stage that failed.
        error: What it raised.
        fallback: What is used instead, for example ``"order of the previous stage"``.
    """
    dispatcher.event(
        FallbackEvent(
            stage=name,
            error_type=type(error).__name__,
            message=str(error),
            fallback=fallback,
        )
    )
