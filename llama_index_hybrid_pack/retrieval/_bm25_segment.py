"""Postings of a set of nodes: built once, never changed."""

from __future__ import annotations

import copy
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llama_index.core.schema import BaseNode
from numpy.typing import NDArray

from llama_index_hybrid_pack.metadata import STAGES_KEY

#: Filters whose decisions a segment remembers; one byte per node each.
_REMEMBERED_FILTERS = 32
#: Types of values that cannot be changed, so that a copy may share them.
_PLAIN = frozenset({str, int, float, bool, type(None)})
UNDECIDED, REFUSED, PASSED = -1, 0, 1


@dataclass(frozen=True)
class NodeFilter:
    """A compiled metadata filter and a text that is equal for equal filters."""

    key: str
    passes: Callable[[Mapping[str, Any]], bool]


class _Decisions:
    """What each filter said about each node; metadata never changes within a segment."""

    def __init__(self) -> None:
        self._arrays: OrderedDict[str, NDArray[np.int8]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: str, size: int) -> NDArray[np.int8]:
        """Return the array of a filter, made on first use."""
        with self._lock:
            found = self._arrays.get(key)
            if found is None:
                found = self._arrays[key] = np.full(size, UNDECIDED, dtype=np.int8)
                if len(self._arrays) > _REMEMBERED_FILTERS:
                    self._arrays.popitem(last=False)
            else:
                self._arrays.move_to_end(key)
            return found

    def __reduce__(self) -> tuple[type[_Decisions], tuple[()]]:
        return _Decisions, ()


@dataclass(frozen=True, eq=False)
class Segment:
    """Nodes and their postings, sorted by term and then by position of the node.

    Args:
        nodes: The nodes, owned by the segment.
        lengths: Number of terms of each node, repeats counted; shape ``(nodes,)``.
        vocabulary: Term → row.
        starts: Where the postings of each row begin; shape ``(rows + 1,)``.
        docs: Position of the node of each posting; shape ``(postings,)``.
        counts: How often the node has the term; shape ``(postings,)``.
    """

    nodes: Sequence[BaseNode]
    lengths: NDArray[np.int32]
    vocabulary: Mapping[str, int]
    starts: NDArray[np.int64]
    docs: NDArray[np.int32]
    counts: NDArray[np.float32]
    decisions: _Decisions = field(default_factory=_Decisions, repr=False)

    def frequencies(self) -> NDArray[np.int32]:
        """Return in how many nodes each term occurs; shape ``(rows,)``."""
        return np.diff(self.starts).astype(np.int32)

    def rows(self) -> NDArray[np.int32]:
        """Return the row of each posting; shape ``(postings,)``."""
        size = len(self.starts) - 1
        return np.repeat(np.arange(size, dtype=np.int32), np.diff(self.starts))


class _Rows(dict[str, int]):
    """Gives every new term the next number."""

    def __missing__(self, term: str) -> int:
        row = self[term] = len(self)
        return row


def build(nodes: Sequence[BaseNode], terms: Iterable[Sequence[str]]) -> Segment:
    """Count terms and sort them into postings.

    Args:
        nodes: The nodes; the segment keeps these objects.
        terms: The terms of each node, in the same order.

    Returns:
        A new segment.
    """
    vocabulary = _Rows()
    rows = array("i")
    lengths = np.zeros(len(nodes), dtype=np.int32)
    for position, found in enumerate(terms):
        lengths[position] = len(found)
        rows.extend(map(vocabulary.__getitem__, found))
    size = max(len(nodes), 1)
    # One number per occurrence that sorts by term and then by node.
    keys = np.frombuffer(rows, dtype=np.int32).astype(np.int64) if rows else np.zeros(0, np.int64)
    keys *= size
    keys += np.repeat(np.arange(len(nodes), dtype=np.int64), lengths)
    postings, counts = np.unique(keys, return_counts=True)
    starts = np.searchsorted(postings, np.arange(len(vocabulary) + 1, dtype=np.int64) * size)
    return Segment(
        nodes=tuple(nodes),
        lengths=lengths,
        vocabulary=dict(vocabulary),
        starts=starts.astype(np.int64),
        docs=(postings % size).astype(np.int32),
        counts=counts.astype(np.float32),
    )


@dataclass(frozen=True, eq=False)
class Part:
    """A segment as one state of the index sees it.

    Args:
        segment: The postings.
        alive: Which nodes are not deleted; ``None`` means all.
        frequencies: In how many nodes that are not deleted each term occurs.
        first: Position of the segment's first node in the whole index.
    """

    segment: Segment
    alive: NDArray[np.bool_] | None
    frequencies: NDArray[np.int32]
    first: int

    @property
    def span(self) -> slice:
        """Positions of the segment's nodes in the whole index."""
        return slice(self.first, self.first + len(self.segment.nodes))

    def size(self) -> int:
        """Return the number of nodes that are not deleted."""
        return len(self.segment.nodes) if self.alive is None else int(self.alive.sum())

    def total_length(self) -> int:
        """Return the number of terms of the nodes that are not deleted."""
        lengths = self.segment.lengths
        return int((lengths if self.alive is None else lengths[self.alive]).sum(dtype=np.int64))

    def without(self, positions: Sequence[int]) -> Part:
        """Return the part with more nodes deleted.

        Args:
            positions: Positions within the segment, of nodes that are not deleted yet.

        Returns:
            A new part on the same segment.
        """
        size = len(self.segment.nodes)
        dead = np.zeros(size, dtype=np.bool_)
        dead[list(positions)] = True
        alive = ~dead if self.alive is None else self.alive & ~dead
        lost = self.segment.rows()[dead[self.segment.docs]]
        gone = np.bincount(lost, minlength=len(self.frequencies)).astype(np.int32)
        return Part(self.segment, alive, self.frequencies - gone, self.first)


def merge(parts: Sequence[Part]) -> Segment:
    """Write several parts as one segment, without what is deleted.

    Args:
        parts: Parts in the order of the index.

    Returns:
        The same postings as :func:`build` over the remaining nodes.
    """
    vocabulary = _Rows()
    nodes: list[BaseNode] = []
    lengths: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
    rows: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
    docs: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
    counts: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)]
    for part in parts:
        segment = part.segment
        size = len(segment.nodes)
        kept = np.arange(size) if part.alive is None else np.flatnonzero(part.alive)
        moved = np.full(size, -1, dtype=np.int32)
        moved[kept] = np.arange(len(nodes), len(nodes) + len(kept), dtype=np.int32)
        renumbered = np.full(len(part.frequencies), -1, dtype=np.int64)
        for term, row in segment.vocabulary.items():
            if part.frequencies[row] > 0:
                renumbered[row] = vocabulary[term]
        here = moved[segment.docs]
        stays = here >= 0
        rows.append(renumbered[segment.rows()[stays]])
        docs.append(here[stays])
        counts.append(segment.counts[stays])
        lengths.append(segment.lengths[kept])
        nodes.extend(segment.nodes[int(position)] for position in kept)
    all_rows = np.concatenate(rows)
    # Stable, and parts follow each other: within a term the nodes stay in order.
    order = np.argsort(all_rows, kind="stable")
    return Segment(
        nodes=tuple(nodes),
        lengths=np.concatenate(lengths),
        vocabulary=dict(vocabulary),
        starts=np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(np.bincount(all_rows, minlength=len(vocabulary)))]
        ).astype(np.int64),
        docs=np.concatenate(docs)[order],
        counts=np.concatenate(counts)[order],
    )


def private_copy(node: BaseNode) -> BaseNode:
    """Return a copy that shares nothing that can be changed with the given node.

    Left behind are the embedding, by far the largest part of a node and of no use to a lexical
    index, and what the stages of an earlier search wrote.

    Args:
        node: Any node; it is not changed.

    Returns:
        A node of the same class with the same content.
    """
    own = copy.copy(node)
    values = vars(own)
    values["embedding"] = None
    values["metadata"] = {
        key: value for key, value in values["metadata"].items() if key != STAGES_KEY
    }
    for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys"):
        values[name] = [key for key in values[name] if key != STAGES_KEY]
    detach(own)
    return own


def detach(node: BaseNode) -> None:
    """Give a copy that has a metadata dictionary of its own the rest of its containers too.

    Args:
        node: The copy; links to other nodes stay shared, as values, and so does the record of
            stage scores, which every stage writes anew.
    """
    values = vars(node)
    values["relationships"] = {**values["relationships"]}
    metadata = values["metadata"]
    for key, value in metadata.items():
        if type(value) not in _PLAIN and key != STAGES_KEY:
            metadata[key] = copy.deepcopy(value)
    resource = values.get("text_resource")  # the text of a Document
    if resource is not None:
        values["text_resource"] = copy.copy(resource)
