"""The dense index in memory, which follows the table from generation to generation."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.stores.local.inverted import InvertedFile
from llama_index_hybrid_pack.indexing.stores.local.quantizer import QuantizedVectors, Range
from llama_index_hybrid_pack.indexing.stores.local.scan import DenseView, Rows
from llama_index_hybrid_pack.indexing.stores.local.table import Snapshot
from llama_index_hybrid_pack.indexing.stores.local.vectors import (
    BLOCK,
    DamagedFileError,
    Extent,
    MappedVectors,
    VectorFile,
    table_blocks,
)

logger = logging.getLogger(__name__)

#: Removed rows above this share are swept out of the codes.
_SWEEP_SHARE = 0.25


class DenseIndex:
    """Keeps the codes in memory in step with the table; never writes to disk."""

    def __init__(self, file: VectorFile, inverted: InvertedFile) -> None:
        self._file = file
        self._inverted = inverted
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
        if view.codes.exhaustive and mapped is not None and self._inverted.fits(mapped):
            return self._load(snapshot, dimension)  # the store has outgrown the full scan
        added = _Added(snapshot, mapped, view.last_row, dimension)
        if not view.codes.span.holds(added.extent.low, added.extent.high):
            return self._load(snapshot, dimension)
        rows = [view.rows]
        for block_rows, vectors in added.blocks():
            view.codes.add(vectors)
            rows.append(block_rows)
        all_rows = np.concatenate(rows)
        dead = _mark(all_rows, snapshot.removed_after(view.generation.number), view.dead)
        swept = view.codes.exhaustive and dead is not None and len(dead) > BLOCK
        if swept and dead is not None and dead.mean() > _SWEEP_SHARE:
            return self._load(snapshot, dimension)
        return DenseView.of(snapshot, view.codes, all_rows, dead, mapped or view.mapped)

    def _load(self, snapshot: Snapshot, dimension: int) -> DenseView:
        mapped = self._file.map(snapshot, dimension)
        codes = None if mapped is None else self._inverted.load(mapped)
        if mapped is not None and codes is not None:
            added = _Added(snapshot, mapped, int(mapped.rows[codes.size - 1]), dimension)
            if codes.span.holds(added.extent.low, added.extent.high):
                return _filled(snapshot, mapped, codes, added)
        added = _Added(snapshot, mapped, 0, dimension)
        extent = added.extent
        flat = QuantizedVectors.flat(Range.around(extent.low, extent.high, extent.count))
        return _filled(snapshot, mapped, flat, added)


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
            self.extent.count = len(mapped.rows)
        for _, vectors in table_blocks(snapshot, self._table_after, dimension):
            self.extent.include(vectors)

    def blocks(self) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """Yield rows and unit vectors in rising order of rows."""
        if self._mapped is not None:
            for rows, vectors in self._mapped.blocks(self._last):
                new = rows > self._last
                yield (rows, vectors) if new.all() else (rows[new], vectors[new])
        yield from table_blocks(self._snapshot, self._table_after, self._dimension)


def _filled(
    snapshot: Snapshot, mapped: MappedVectors | None, codes: QuantizedVectors, added: _Added
) -> DenseView:
    """Put what was added into the codes, without what was removed again."""
    removed = snapshot.removed_after(-1)
    rows = [np.zeros(0, dtype=np.int64) if mapped is None else mapped.rows[: codes.size]]
    for block_rows, vectors in added.blocks():
        keep = np.isin(block_rows, removed, assume_unique=True, invert=True)
        codes.add(vectors if keep.all() else vectors[keep])
        rows.append(block_rows[keep])
    all_rows = np.concatenate(rows)
    return DenseView.of(snapshot, codes, all_rows, _mark(all_rows, removed, None), mapped)


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
