"""A reranker with scores that a test writes down, and small helpers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index_instrumentation.event_handlers import BaseEventHandler
from pydantic import Field, PrivateAttr

from llama_index_hybrid_pack.metadata import ScoreScale, annotate
from llama_index_hybrid_pack.ranking.reranker import BaseReranker


class ScriptedReranker(BaseReranker):
    stage_name: ClassVar[str] = "scripted"

    scores: dict[str, Any] = Field(default_factory=dict)
    error: Any = None
    _calls: list[tuple[str, list[str]]] = PrivateAttr(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "ScriptedReranker"

    @property
    def calls(self) -> list[tuple[str, list[str]]]:
        return self._calls

    @property
    def model_label(self) -> str:
        return "script"

    @property
    def own_scale(self) -> ScoreScale:
        return ScoreScale.LOGIT

    def score_texts(self, query: str, texts: list[str]) -> Sequence[float]:
        self._calls.append((query, list(texts)))
        if self.error is not None:
            raise self.error
        return [self.scores[text] for text in texts]


def hit(node_id: str, text: str, score: float | None = None, **node: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(id_=node_id, text=text, **node), score=score)


def scaled(node_id: str, score: float | None, scale: ScoreScale, stage: str) -> NodeWithScore:
    """A hit as a stage of ours leaves it."""
    return annotate(hit(node_id, node_id), stage, score=score, rank=1, scale=scale)


def ids(hits: Sequence[NodeWithScore]) -> list[str]:
    return [h.node.node_id for h in hits]


class _Collector(BaseEventHandler):
    events: list[Any] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "Collector"

    def handle(self, event: Any, **kwargs: Any) -> None:
        self.events.append(event)


@contextmanager
def recorded_events() -> Iterator[list[Any]]:
    """Collect every event that is emitted inside."""
    root = get_dispatcher()
    collector = _Collector()
    root.add_event_handler(collector)
    try:
        yield collector.events
    finally:
        root.event_handlers.remove(collector)
