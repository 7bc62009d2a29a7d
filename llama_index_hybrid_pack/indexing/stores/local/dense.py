"""The dense leg: 8-bit candidates, judged again with the float32 vectors.

Exactness: a row that the scan did not return has an approximate score no higher than the last one
returned. While the k-th exact score does not clear that bound by more than the largest error seen
between approximate and exact scores, the scan is repeated with four times as many candidates. So
clusters of near-equal vectors, and ties at the k-th place, cost time and not recall.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.stores.local.quantizer import QuantizedVectors, Range
from llama_index_hybrid_pack.indexing.stores.local.records import unit
from llama_index_hybrid_pack.indexing.stores.local.table import Generation, Snapshot
from llama_index_hybrid_pack.indexing.stores.local.vectors import (
    BLOCK,
    DamagedFileError,
    Extent,
    MappedVectors,
    VectorFile,
    table_blocks,
)

logger = logging.getLogger(__name__)

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]

#: Row sets up to this share of all rows are gathered and scored exactly, without the scan.
_GATHER_SHARE = 0.02
_GATHER_LEAST = 2000
#: Removed rows above this share are swept out of the codes.
_SWEEP_SHARE = 0.25
#: float32 rounding of a score.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class DenseView:
    """The dense index at one generation; it does not change when the index grows."""

    generation: Generation
    last_row: int
    """Highest row of the table so far; it may have been removed before it was ever coded."""
    codes: QuantizedVectors
    rows: Rows
    dead: NDArray[np.bool_] | None
    mapped: MappedVectors | None

    def search(
        self, snapshot: Snapshot, query: NDArray[np.float32], k: int, allowed: Rows | None
    ) -> tuple[Rows, Scores]:
        """Return the rows that can be among the best k, by exact cosine.

        Args:
            snapshot: The table at this view's generation.
            query: Unit vector.
            k: Number of rows wanted.
            allowed: Rows that may be returned, in rising order; ``None`` for all.

        Returns:
            Rows and scores, best first; more than k when scores tie at the k-th place.
        """
        if allowed is None:
            return self._scan(snapshot, query, k, self._live(), len(self.rows))
        positions = np.searchsorted(self.rows, allowed)
        positions[positions == len(self.rows)] = 0
        positions = positions[self.rows[positions] == allowed] if len(self.rows) else positions[:0]
        if self.dead is not None:
            positions = positions[~self.dead[positions]]
        if len(positions) <= max(_GATHER_LEAST, _GATHER_SHARE * len(self.rows)):
            return self._gather(snapshot, query, k, positions)
        chosen = np.zeros(len(self.rows), dtype=np.bool_)
        chosen[positions] = True
        bits = np.packbits(chosen, bitorder="little")
        return self._scan(snapshot, query, k, bits, len(positions))

    def describe(self) -> dict[str, Any]:
        """Return engine and sizes."""
        return {
            "engine": "FAISS 8-bit scalar quantiser, scanned in full, rescored in float32",
            "bytes_in_memory": self.codes.size * self.codes.dimension + self.rows.nbytes,
            "rows": len(self.rows),
            "removed_rows": 0 if self.dead is None else int(self.dead.sum()),
            "mapped_rows": 0 if self.mapped is None else len(self.mapped.rows),
        }

    def _live(self) -> NDArray[np.uint8] | None:
        return None if self.dead is None else np.packbits(~self.dead, bitorder="little")

    def _scan(
        self,
        snapshot: Snapshot,
        query: NDArray[np.float32],
        k: int,
        bits: NDArray[np.uint8] | None,
        total: int,
    ) -> tuple[Rows, Scores]:
        size = len(self.rows)
        wanted = k + max(50, k // 2)
        while total:
            # What was added after this view was taken is in the codes too, and is dropped here.
            later = self.codes.size - size if bits is None else 0
            asked = min(wanted + later, self.codes.size)
            positions, rough = self.codes.search(query, asked, bits)
            exhausted = len(positions) < asked or asked >= self.codes.size
            worst = float(rough[-1]) if len(rough) else 0.0
            mine = positions < size
            positions, rough = positions[mine], rough[mine]
            rows = self.rows[positions]
            exact = self._exact(snapshot, rows, query)
            if exhausted or self._settled(exact, rough, k, worst):
                return _best(rows, exact, k)
            wanted *= 4
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)

    @staticmethod
    def _settled(exact: Scores, rough: Scores, k: int, worst: float) -> bool:
        if len(exact) <= k:
            return False
        error = float(np.abs(exact - rough).max())
        kth = float(np.partition(exact, len(exact) - k)[len(exact) - k])
        return kth > worst + error + _ROUNDING

    def _gather(
        self, snapshot: Snapshot, query: NDArray[np.float32], k: int, positions: Rows
    ) -> tuple[Rows, Scores]:
        rows = self.rows[positions]
        if len(rows) > 4 * k + 100:
            rough = self._matrix(snapshot, rows) @ query
            kth = np.partition(rough, len(rough) - k)[len(rough) - k]
            rows = rows[rough >= kth - 10 * _ROUNDING]
        return _best(rows, self._exact(snapshot, rows, query), k)

    def _exact(self, snapshot: Snapshot, rows: Rows, query: NDArray[np.float32]) -> Scores:
        # In double precision and then rounded: equal vectors get equal scores, whatever else is
        # in the batch, so that ties are broken by node id and not by the order of summation.
        wide = self._matrix(snapshot, rows).astype(np.float64) @ query.astype(np.float64)
        return wide.astype(np.float32)

    def _matrix(self, snapshot: Snapshot, rows: Rows) -> NDArray[np.float32]:
        if self.mapped is None:
            return _from_table(snapshot, rows, self.codes.dimension)
        found = self.mapped.locate(rows)
        missing = found < 0
        if not missing.any():
            return self.mapped.vectors[found]
        matrix = np.empty((len(rows), self.mapped.vectors.shape[1]), dtype=np.float32)
        matrix[~missing] = self.mapped.vectors[found[~missing]]
        matrix[missing] = _from_table(snapshot, rows[missing], matrix.shape[1])
        return matrix


class DenseIndex:
    """Keeps the codes in memory in step with the table; never writes to disk."""

    def __init__(self, file: VectorFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._view: DenseView | None = None

    def at(self, snapshot: Snapshot, dimension: int) -> DenseView | None:
        """Return the view of the snapshot's generation.

        Args:
            snapshot: The table as the caller sees it.
            dimension: Length of the vectors.

        Returns:
            The view, or ``None`` if the index is already at a later generation.
        """
        view = self._view
        if view is not None and view.generation == snapshot.generation:
            return view
        with self._lock:
            view = self._view
            if view is not None and view.generation.number > snapshot.generation.number:
                return None
            if view is not None and view.generation == snapshot.generation:
                return view
            self._view = None  # codes that grew only in part must not be used again
            try:
                self._view = self._follow(view, snapshot, dimension)
            except DamagedFileError as error:
                logger.warning("%s; the vectors are read from the table instead.", error)
                self._file.damaged = True
                self._view = self._load(snapshot, dimension)
            return self._view

    def forget(self) -> None:
        """Drop everything; the next search loads anew."""
        with self._lock:
            self._view = None

    def _follow(self, view: DenseView | None, snapshot: Snapshot, dimension: int) -> DenseView:
        if (
            view is None
            or view.codes.dimension != dimension
            or snapshot.last_row_of(view.generation) is None
        ):
            return self._load(snapshot, dimension)
        mapped = self._file.map(snapshot, dimension)
        added = _Added(snapshot, mapped, view.last_row, dimension)
        if not view.codes.span.holds(added.extent.low, added.extent.high):
            return self._load(snapshot, dimension)
        rows = [view.rows]
        for block_rows, vectors in added.blocks():
            view.codes.add(vectors)
            rows.append(block_rows)
        all_rows = np.concatenate(rows)
        dead = _mark(all_rows, snapshot.removed_after(view.generation.number), view.dead)
        if dead is not None and len(dead) > BLOCK and dead.mean() > _SWEEP_SHARE:
            return self._load(snapshot, dimension)
        return DenseView(
            generation=snapshot.generation,
            last_row=snapshot.last_row,
            codes=view.codes,
            rows=all_rows,
            dead=dead,
            mapped=mapped or view.mapped,
        )

    def _load(self, snapshot: Snapshot, dimension: int) -> DenseView:
        mapped = self._file.map(snapshot, dimension)
        added = _Added(snapshot, mapped, 0, dimension)
        codes = QuantizedVectors(Range.around(added.extent.low, added.extent.high))
        removed = snapshot.removed_after(-1)
        rows = [np.zeros(0, dtype=np.int64)]
        for block_rows, vectors in added.blocks():
            keep = np.isin(block_rows, removed, assume_unique=True, invert=True)
            codes.add(vectors if keep.all() else vectors[keep])
            rows.append(block_rows[keep])
        return DenseView(
            generation=snapshot.generation,
            last_row=snapshot.last_row,
            codes=codes,
            rows=np.concatenate(rows),
            dead=None,
            mapped=mapped,
        )


class _Added:
    """The rows above ``last``: from the mapped file where it has them, else from the table."""

    def __init__(
        self, snapshot: Snapshot, mapped: MappedVectors | None, last: int, dimension: int
    ) -> None:
        self._snapshot = snapshot
        self._mapped = mapped
        self._last = last
        self._dimension = dimension
        in_file = int(mapped.rows[-1]) if mapped is not None and len(mapped.rows) else 0
        self._table_after = max(last, in_file)
        self.extent = Extent(dimension)
        if mapped is not None and in_file > last:
            np.copyto(self.extent.low, mapped.extent.low)
            np.copyto(self.extent.high, mapped.extent.high)
        for _, vectors in table_blocks(snapshot, self._table_after, dimension):
            self.extent.include(vectors)

    def blocks(self) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """Yield rows and unit vectors in rising order of rows."""
        if self._mapped is not None:
            for rows, vectors in self._mapped.blocks(self._last):
                new = rows > self._last
                yield (rows, vectors) if new.all() else (rows[new], vectors[new])
        yield from table_blocks(self._snapshot, self._table_after, self._dimension)


def _mark(rows: Rows, removed: Rows, dead: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return which positions are dead: those marked before and those of the removed rows."""
    marked = np.zeros(len(rows), dtype=np.bool_)
    if dead is not None:
        marked[: len(dead)] = dead
    if len(rows):
        positions = np.searchsorted(rows, removed)
        positions[positions == len(rows)] = 0
        marked[positions[rows[positions] == removed]] = True
    return marked if marked.any() else None


def _best(rows: Rows, scores: Scores, k: int) -> tuple[Rows, Scores]:
    """Return the best k, and everything that ties with the k-th."""
    if len(rows) > k:
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        keep = scores >= kth
        rows, scores = rows[keep], scores[keep]
    order = np.argsort(-scores, kind="stable")
    return rows[order], scores[order]


def _from_table(snapshot: Snapshot, rows: Rows, dimension: int) -> NDArray[np.float32]:
    found = snapshot.vectors(rows.tolist())
    empty = bytes(4 * dimension)
    joined = b"".join(found.get(row, empty) for row in rows.tolist())
    return unit(np.frombuffer(joined, dtype=np.float32).reshape(len(rows), dimension))
