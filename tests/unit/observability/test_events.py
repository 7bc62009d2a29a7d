"""Stages report their time and counts; failures report what stands in their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import BaseEventHandler

from llama_index_hybrid_pack.observability.events import (
    FallbackEvent,
    StageEndEvent,
    emit_fallback,
    stage,
)


class Recorder(BaseEventHandler):
    events: list[BaseEvent] = []

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self.events.append(event)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    root = get_dispatcher("root")
    handler = Recorder(events=[])
    before = list(root.event_handlers)
    root.add_event_handler(handler)
    yield handler
    root.event_handlers = before


def test_a_stage_reports_time_and_counts(recorder: Recorder) -> None:
    with stage("fusion", n_in=4) as timer:
        timer.n_out = 2
    (event,) = recorder.events
    assert isinstance(event, StageEndEvent)
    assert (event.stage, event.n_in, event.n_out) == ("fusion", 4, 2)
    assert event.latency_ms >= 0


def test_a_stage_that_raises_reports_no_end(recorder: Recorder) -> None:
    with pytest.raises(KeyError), stage("fusion"):
        raise KeyError("x")
    assert recorder.events == []


def test_a_fallback_names_the_error_and_what_stands_instead(recorder: Recorder) -> None:
    emit_fallback("rerank", TimeoutError("slow"), fallback="order of the previous stage")
    (event,) = recorder.events
    assert isinstance(event, FallbackEvent)
    assert (event.stage, event.error_type, event.message) == ("rerank", "TimeoutError", "slow")
