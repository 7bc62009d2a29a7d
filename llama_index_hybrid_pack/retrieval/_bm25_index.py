"""A BM25 index that changes: writes make a new snapshot, reads keep the one they began with."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.retrieval._bm25_segment import (
    Part,
    Segment,
    build,
    merge,
    private_copy,
)
from llama_index_hybrid_pack.retrieval._bm25_snapshot import Snapshot

#: A part is merged with the one before it unless that one is so many times larger.
_GROWTH = 4


class BM25Index:
    """Nodes, postings and statistics; searches may run while one writer changes it.

    Like Lucene's, the index is a row of segments that are never changed: an addition makes a
    small one, a deletion only marks, and neighbours of like size are merged, so a change costs
    the logarithm of the number of nodes rather than a rebuild.

    Args:
        analyzer: Turns texts into terms.
        metadata_mode: Which content of a node is indexed.
        k1: Saturation of term frequency.
        b: Share of length normalisation.

    Raises:
        ConfigError: If ``k1`` or ``b`` is out of range.
    """

    def __init__(
        self,
        *,
        analyzer: Analyzer,
        metadata_mode: MetadataMode,
        k1: float,
        b: float,
    ) -> None:
        self.analyzer = analyzer
        self.metadata_mode = metadata_mode
        self._lock = threading.RLock()
        self._places: dict[str, tuple[Segment, int]] = {}
        self.snapshot = Snapshot(
            (), 0, 0, 0, k1=_in_range("k1", k1, math.inf), b=_in_range("b", b, 1.0)
        )

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {
                "analyzer": self.analyzer,
                "metadata_mode": self.metadata_mode,
                "snapshot": self.snapshot,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()
        self._places = {}
        for part in self.snapshot.parts:
            self._place(part)

    def __deepcopy__(self, memo: dict[int, Any]) -> BM25Index:
        # Snapshots are never changed, so both copies may start from the same one.
        twin = BM25Index.__new__(BM25Index)
        memo[id(self)] = twin
        twin.__setstate__(self.__getstate__())
        return twin

    def load(self, segment: Segment, generation: int) -> None:
        """Put a finished segment in the place of the whole content."""
        with self._lock:
            self._places = {}
            self._publish([_part(segment)], generation)

    def add(self, nodes: Sequence[BaseNode]) -> list[str]:
        """Add nodes; one whose id is there already takes its place. All or nothing.

        Args:
            nodes: The nodes; of several with one id the last stands.

        Returns:
            The ids, in the order given.

        Raises:
            ConfigError: If something else than a node is among them.
        """
        for number, node in enumerate(nodes):
            given: object = node
            if not isinstance(given, BaseNode):
                msg = f"nodes[{number}] is a {type(given).__name__}. Give LlamaIndex nodes."
                raise ConfigError(msg)
        own = {node.node_id: private_copy(node) for node in nodes}
        if not own:
            return []
        segment = build(
            list(own.values()),
            (self.analyzer.terms(node.get_content(self.metadata_mode)) for node in own.values()),
        )
        with self._lock:
            parts = self._without(own)
            parts.append(_part(segment))
            self._publish(_tidy(parts), self.snapshot.generation + 1)
        return [node.node_id for node in nodes]

    def delete(self, node_ids: Iterable[str]) -> int:
        """Delete nodes; ids that are not there are ignored.

        Args:
            node_ids: Ids of the nodes.

        Returns:
            How many nodes were deleted.
        """
        with self._lock:
            present = [node_id for node_id in dict.fromkeys(node_ids) if node_id in self._places]
            if present:
                self._publish(_tidy(self._without(present)), self.snapshot.generation + 1)
                for node_id in present:
                    del self._places[node_id]
            return len(present)

    def delete_ref_doc(self, ref_doc_id: str) -> int:
        """Delete every node of a source document.

        Args:
            ref_doc_id: Id of the document.

        Returns:
            How many nodes were deleted.
        """
        with self._lock:
            return self.delete(
                node.node_id for node in self.nodes() if node.ref_doc_id == ref_doc_id
            )

    def compacted(self) -> tuple[Snapshot, Segment]:
        """Return the current snapshot, and its whole content as one segment."""
        snapshot = self.snapshot
        if len(snapshot.parts) == 1 and snapshot.parts[0].alive is None:
            return snapshot, snapshot.parts[0].segment
        return snapshot, merge(snapshot.parts)

    def nodes(self) -> list[BaseNode]:
        """Return the nodes that are not deleted; they belong to the index."""
        return [
            node
            for part in self.snapshot.parts
            for position, node in enumerate(part.segment.nodes)
            if part.alive is None or part.alive[position]
        ]

    def _without(self, node_ids: Iterable[str]) -> list[Part]:
        """Return the parts without these nodes."""
        dead: dict[int, list[int]] = {}
        for node_id in node_ids:
            if node_id in self._places:
                segment, position = self._places[node_id]
                dead.setdefault(id(segment), []).append(position)
        return [
            part.without(dead[id(part.segment)]) if id(part.segment) in dead else part
            for part in self.snapshot.parts
        ]

    def _place(self, part: Part) -> None:
        """Note where the nodes of a part are."""
        for position, node in enumerate(part.segment.nodes):
            if part.alive is None or part.alive[position]:
                self._places[node.node_id] = (part.segment, position)

    def _publish(self, parts: Sequence[Part], generation: int) -> None:
        known = {id(part.segment) for part in self.snapshot.parts}
        placed: list[Part] = []
        first = 0
        for part in parts:
            if id(part.segment) not in known:
                self._place(part)
            placed.append(Part(part.segment, part.alive, part.frequencies, first))
            first = placed[-1].span.stop
        self.snapshot = Snapshot(
            parts=tuple(placed),
            n_nodes=sum(part.size() for part in placed),
            total_length=sum(part.total_length() for part in placed),
            generation=generation,
            k1=self.snapshot.k1,
            b=self.snapshot.b,
        )


def _part(segment: Segment) -> Part:
    return Part(segment, None, segment.frequencies(), 0)


def _tidy(parts: list[Part]) -> list[Part]:
    """Merge parts of like size, and rewrite one that is mostly deleted."""
    kept: list[Part] = []
    for part in parts:
        size = part.size()
        if size == 0:
            continue
        kept.append(part if 2 * size >= len(part.segment.nodes) else _part(merge([part])))
        while len(kept) > 1 and kept[-2].size() < _GROWTH * kept[-1].size():
            kept[-2:] = [_part(merge(kept[-2:]))]
    return kept


def _in_range(name: str, value: float, highest: float) -> float:
    given: object = value
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not math.isfinite(given)
        or not 0 <= given <= highest
    ):
        allowed = "of at least 0" if highest == math.inf else f"from 0 to {highest:g}"
        msg = f"{name} is {value!r}. Give a finite number {allowed}."
        raise ConfigError(msg)
    return float(value)
