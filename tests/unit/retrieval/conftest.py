from __future__ import annotations

from collections.abc import Iterator

import pytest
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import BaseEventHandler


class Recorder(BaseEventHandler):
    events: list[BaseEvent] = []

    def handle(self, event: BaseEvent, **kwargs: object) -> None:
        self.events.append(event)


@pytest.fixture
def events() -> Iterator[list[BaseEvent]]:
    """Every event of LlamaIndex's instrumentation and of ours during the test."""
    recorder = Recorder(events=[])
    root = get_dispatcher("root")
    root.add_event_handler(recorder)
    yield recorder.events
    root.event_handlers.remove(recorder)
