"""Store contract: capability flags, fixtures, and both colours of a store's calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import pytest
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_index_hybrid_pack.testing.builders import embed

T = TypeVar("T")
Mode = VectorStoreQueryMode
#: Opens the store of one test; every call opens the same data.
StoreFactory = Callable[[], BasePydanticVectorStore]

#: Ids that only differ where wildcards, case folding or word splitting would not see it.
LOOKALIKES = [
    "handbook",
    "handbook-archive",
    "old/handbook",
    "Handbook",
    "handbook ",
    "hand%",
    "hand_ook",
    "hand*",
]
#: Ids that break stores which build queries or paths from them.
ODD_IDS = [
    "doc1#0",
    "a'b\"c",
    "x'; DROP TABLE nodes; --",
    "100% _sure_",
    "näive/日本語/🙂",
    "../../etc/passwd",
    "line\nbreak\ttab",
    '{"json": [1]}',
    "l" * 1000,
    " ",
]


@dataclass(frozen=True)
class Answer:
    """Result of a query as parallel lists."""

    ids: list[str]
    scores: list[float] = field(default_factory=list)
    nodes: list[BaseNode] = field(default_factory=list)


class Calls:
    """Calls a store's methods, or their async twins in an event loop of its own.

    Args:
        colour: ``"sync"`` or ``"async"``.
    """

    def __init__(self, colour: str) -> None:
        self.colour = colour
        self._loop = asyncio.new_event_loop() if colour == "async" else None

    def close(self) -> None:
        """Close the event loop."""
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _call(
        self,
        sync: Callable[..., T],
        twin: Callable[..., Coroutine[Any, Any, T]],
        *args: Any,
        **kwargs: Any,
    ) -> T:
        if self._loop is None:
            return sync(*args, **kwargs)
        return self._loop.run_until_complete(twin(*args, **kwargs))

    def add(self, store: BasePydanticVectorStore, nodes: Sequence[BaseNode]) -> list[str]:
        """Add nodes."""
        return self._call(store.add, store.async_add, list(nodes))

    def delete(self, store: BasePydanticVectorStore, doc_id: str) -> None:
        """Delete the nodes of a document."""
        self._call(store.delete, store.adelete, doc_id)

    def delete_nodes(
        self,
        store: BasePydanticVectorStore,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
    ) -> None:
        """Delete nodes by id, by filter, or by both."""
        self._call(store.delete_nodes, store.adelete_nodes, node_ids=node_ids, filters=filters)

    def get_nodes(
        self,
        store: BasePydanticVectorStore,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[BaseNode]:
        """Return nodes by id, by filter, or by both."""
        found = self._call(store.get_nodes, store.aget_nodes, node_ids=node_ids, filters=filters)
        return list(found)

    def clear(self, store: BasePydanticVectorStore) -> None:
        """Remove everything."""
        self._call(store.clear, store.aclear)

    def query(
        self, store: BasePydanticVectorStore, query: VectorStoreQuery, **kwargs: Any
    ) -> Answer:
        """Run a query object."""
        result = self._call(store.query, store.aquery, query, **kwargs)
        nodes = list(result.nodes or [])
        ids = [node.node_id for node in nodes] if result.ids is None else list(result.ids)
        return Answer(ids=ids, scores=list(result.similarities or []), nodes=nodes)

    def ask(
        self,
        store: BasePydanticVectorStore,
        text: str = "",
        *,
        mode: Mode = Mode.DEFAULT,
        k: int = 10,
        embedding: list[float] | None = None,
        **fields: Any,
    ) -> Answer:
        """Query by a text, with its vector or another one.

        Args:
            store: The store.
            text: Query text.
            mode: Query mode.
            k: ``similarity_top_k``.
            embedding: Query vector; by default the text's own.
            **fields: Further fields of ``VectorStoreQuery``.

        Returns:
            The answer.
        """
        query = VectorStoreQuery(
            query_str=text,
            query_embedding=embed(text) if embedding is None else embedding,
            similarity_top_k=k,
            mode=mode,
            **fields,
        )
        return self.query(store, query)


class ContractBase:
    """Flags and fixtures of the store contract; see :class:`StoreContract`."""

    #: Mode TEXT_SEARCH is BM25 over the node's text.
    supports_text_search: ClassVar[bool] = True
    #: Mode HYBRID fuses both searches and honours ``alpha``.
    supports_hybrid: ClassVar[bool] = True
    #: Mode MMR exists.
    supports_mmr: ClassVar[bool] = True
    #: ``get_nodes`` exists, and queries return nodes, not only ids (``stores_text``).
    supports_get_nodes: ClassVar[bool] = True
    #: Filter groups may hold groups.
    supports_nested_filters: ClassVar[bool] = True
    #: One metadata field may hold texts, numbers, single values and lists in different nodes.
    supports_mixed_types: ClassVar[bool] = True
    #: A filter on a field that no node has is an error, not an empty result.
    raises_on_unknown_field: ClassVar[bool] = True
    #: Data outlives the object: ``make_store()`` opens them again.
    supports_reopen: ClassVar[bool] = True
    #: ``make_store()`` may be called while another handle is open.
    supports_second_handle: ClassVar[bool] = True
    #: The store can be pickled and deep-copied; the copy works on the same data or a copy of them.
    supports_pickle: ClassVar[bool] = True
    #: One store may be read and written by several threads.
    supports_threads: ClassVar[bool] = True
    #: Modes that the store does not have, so that it must refuse them.
    unsupported_modes: ClassVar[tuple[Mode, ...]] = (
        Mode.SVM,
        Mode.LOGISTIC_REGRESSION,
        Mode.LINEAR_REGRESSION,
    )
    #: Raised for a vector that does not fit.
    embedding_error: ClassVar[type[Exception]] = ValueError
    #: Raised for a filter that cannot be honoured.
    filter_error: ClassVar[type[Exception]] = ValueError
    #: Raised for an impossible query.
    query_error: ClassVar[tuple[type[Exception], ...]] = (ValueError, NotImplementedError)
    #: How far a score may be from the exact one, for stores that keep rounded vectors.
    score_tolerance: ClassVar[float] = 1e-3

    @pytest.fixture
    def make_store(self) -> StoreFactory:
        """Return a function that opens this test's store; override it in your class."""
        pytest.fail("Override the fixture 'make_store' (or 'store') in your test class.")

    @pytest.fixture
    def store(self, make_store: StoreFactory) -> Iterator[BasePydanticVectorStore]:
        """Open an empty store, and close it after the test if it has ``close``."""
        opened = make_store()
        yield opened
        self.close(opened)

    @pytest.fixture(params=["sync", "async"])
    def calls(self, request: pytest.FixtureRequest) -> Iterator[Calls]:
        """Give every test both colours of the store's methods."""
        calls = Calls(request.param)
        yield calls
        calls.close()

    @staticmethod
    def close(store: BasePydanticVectorStore) -> None:
        """Close a store that can be closed."""
        close = getattr(store, "close", None)
        if callable(close):
            close()

    def require(self, *flags: str) -> None:
        """Skip the test if the store declares that it lacks one of these capabilities.

        Args:
            *flags: Names of flags of this class.
        """
        for flag in flags:
            if not getattr(self, flag):
                pytest.skip(f"the store declares {flag} = False")

    def modes(self) -> list[Mode]:
        """Return the modes that the store declares."""
        modes = [Mode.DEFAULT]
        if self.supports_text_search:
            modes.append(Mode.TEXT_SEARCH)
        if self.supports_hybrid:
            modes.append(Mode.HYBRID)
        if self.supports_mmr:
            modes.append(Mode.MMR)
        return modes

    def require_mode(self, mode: Mode) -> None:
        """Skip the test if the store declares that it lacks a mode."""
        if mode not in self.modes():
            pytest.skip(f"the store declares that it has no mode {mode.value!r}")


def outcome(call: Callable[[], T]) -> T | str:
    """Return what a call returns, or what it raises as a text that can be compared."""
    try:
        return call()
    except Exception as error:  # a test compares many outcomes at once, errors among them
        return f"raised {type(error).__name__}: {error}"[:200]


#: Every mode of the contract, for parametrising.
MODES = [Mode.DEFAULT, Mode.TEXT_SEARCH, Mode.HYBRID, Mode.MMR]
each_mode = pytest.mark.parametrize("mode", MODES, ids=[mode.value for mode in MODES])
