"""Retrievers with fixed answers, for tests of what joins and narrows retrievers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


def hit(
    node_id: str, score: float | None = None, text: str | None = None, **metadata
) -> NodeWithScore:
    """Return a hit around a new node."""
    node = TextNode(id_=node_id, text=node_id if text is None else text, metadata=metadata)
    return NodeWithScore(node=node, score=score)


class Static(BaseRetriever):
    """Gives the same hit objects to every query, so that writing into them shows."""

    def __init__(self, hits: Sequence[NodeWithScore], *, delay: float = 0.0) -> None:
        super().__init__()
        self.hits = list(hits)
        self.delay = delay
        self.queries: list[QueryBundle] = []
        self.threads: list[str] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.queries.append(query_bundle)
        self.threads.append(threading.current_thread().name)
        time.sleep(self.delay)
        return list(self.hits)


class AsyncStatic(Static):
    """Has a true async path."""

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.queries.append(query_bundle)
        await asyncio.sleep(self.delay)
        return list(self.hits)


class Failing(Static):
    """Raises what it was given."""

    def __init__(self, error: Exception) -> None:
        super().__init__([])
        self.error = error

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.queries.append(query_bundle)
        raise self.error


class AsyncFailing(Failing):
    """Raises in its true async path."""

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await asyncio.sleep(0)
        raise self.error


def ranked(*node_ids: str) -> Static:
    """Return a retriever of these nodes without scores."""
    return Static([hit(node_id) for node_id in node_ids])


def ids(hits: Sequence[NodeWithScore]) -> list[str]:
    """Return the node ids in order."""
    return [found.node_id for found in hits]
