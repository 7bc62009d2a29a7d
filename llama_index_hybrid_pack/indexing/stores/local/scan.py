"""Dense search at one generation: 8-bit candidates, judged again with the float32 vectors.

Exactness: a row that the scan did not return has an approximate score no higher than the last one
returned. While the k-th exact score does not clear that bound by more than the error that the
codes can have, the scan is repeated with four times as many candidates. So clusters of near-equal
vectors, and ties at the k-th place, cost time and not recall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.stores.local.quantizer import QuantizedVectors
from llama_index_hybrid_pack.indexing.stores.local.records import unit
from llama_index_hybrid_pack.indexing.stores.local.rowsets import RowSet
from llama_index_hybrid_pack.indexing.stores.local.table import Generation, Snapshot
from llama_index_hybrid_pack.indexing.stores.local.vectors import MappedVectors

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]

#: Row sets up to this share of all rows are gathered and scored exactly, without the scan.
_GATHER_SHARE = 0.02
_GATHER_LEAST = 2000
#: float32 rounding of a score.
_ROUNDING = 1e-6


class _Chosen(NamedTuple):
    """Positions of a row set, and the same as bits where a scan is to read them."""

    positions: Rows
    bits: NDArray[np.uint8] | None


@dataclass(frozen=True)
class DenseView:
    """The dense index at one generation; it does not change when the index grows."""

    generation: Generation
    last_row: int
    """Highest row of the table so far; it may have been removed before it was ever coded."""
    codes: QuantizedVectors
    rows: Rows
    dead: NDArray[np.bool_] | None
    """Positions of removed rows; ``None`` if there are none."""
    live: NDArray[np.uint8] | None
    """The others as bits, for the scan."""
    mapped: MappedVectors | None
    aligned: bool
    """Whether a position is also the place in the mapped file."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        codes: QuantizedVectors,
        rows: Rows,
        dead: NDArray[np.bool_] | None,
        mapped: MappedVectors | None,
    ) -> DenseView:
        """Return the view of a snapshot."""
        live = None if dead is None else np.packbits(~dead, bitorder="little")
        aligned = mapped is not None and np.array_equal(rows, mapped.rows[: len(rows)])
        return cls(snapshot.generation, snapshot.last_row, codes, rows, dead, live, mapped, aligned)

    def search(
        self, snapshot: Snapshot, query: NDArray[np.float32], k: int, allowed: RowSet | None
    ) -> tuple[Rows, Scores]:
        """Return the rows that can be among the best k, by exact cosine.

        Args:
            snapshot: The table at this view's generation.
            query: Unit vector.
            k: Number of rows wanted.
            allowed: Rows that may be returned; ``None`` for all.

        Returns:
            Rows and scores, best first; more than k when scores tie at the k-th place.
        """
        if allowed is None:
            return self._scan(snapshot, query, k, self.live, every=self.codes.exhaustive)
        chosen = allowed.derived(self, self._choose)
        if chosen.bits is None:
            return self._gather(snapshot, query, k, chosen.positions)
        return self._scan(snapshot, query, k, chosen.bits, every=True)

    def _choose(self, rows: Rows) -> _Chosen:
        """Return which positions the rows have, and their bits if they are to be scanned."""
        if not len(self.rows):
            return _Chosen(np.zeros(0, dtype=np.int64), None)
        positions = np.searchsorted(self.rows, rows)
        positions[positions == len(self.rows)] = 0
        positions = positions[self.rows[positions] == rows]
        if self.dead is not None:
            positions = positions[~self.dead[positions]]
        if len(positions) <= max(_GATHER_LEAST, _GATHER_SHARE * len(self.rows)):
            return _Chosen(positions, None)
        flags = np.zeros(len(self.rows), dtype=np.bool_)
        flags[positions] = True
        return _Chosen(positions, np.packbits(flags, bitorder="little"))

    def describe(self) -> dict[str, Any]:
        """Return engine and sizes."""
        return {
            "engine": self.codes.describe(),
            "bytes_in_memory": self.codes.size * self.codes.dimension + self.rows.nbytes,
            "rows": len(self.rows),
            "removed_rows": 0 if self.dead is None else int(self.dead.sum()),
            "mapped_rows": 0 if self.mapped is None else len(self.mapped.rows),
        }

    def _scan(
        self,
        snapshot: Snapshot,
        query: NDArray[np.float32],
        k: int,
        bits: NDArray[np.uint8] | None,
        *,
        every: bool,
    ) -> tuple[Rows, Scores]:
        size = len(self.rows)
        wanted = k + max(100, k)
        asked = self.codes.prepare(query)
        while True:
            # What was added after this view was taken is in the codes too, and is dropped here.
            later = self.codes.size - size if bits is None else 0
            count = min(wanted + later, self.codes.size)
            positions, rough = self.codes.search(asked, count, bits, every=every)
            worst = float(rough[-1]) if len(rough) else 0.0
            mine = positions < size
            positions = positions[mine]
            rows, exact = self.rows[positions], self._exact(snapshot, positions, query)
            if every:
                exhausted = len(rough) < count or count >= self.codes.size
                bound = worst + asked.error + _ROUNDING
                if exhausted or (len(exact) > k and _kth(exact, k) > bound):
                    return _best(rows, exact, k)
                wanted *= 4
            elif len(rows) >= k:
                return _best(rows, exact, k)
            every = True

    def _gather(
        self, snapshot: Snapshot, query: NDArray[np.float32], k: int, positions: Rows
    ) -> tuple[Rows, Scores]:
        if len(positions) > 4 * k + 100:
            rough = self._matrix(snapshot, positions) @ query
            positions = positions[rough >= _kth(rough, k) - 10 * _ROUNDING]
        return _best(self.rows[positions], self._exact(snapshot, positions, query), k)

    def _exact(self, snapshot: Snapshot, positions: Rows, query: NDArray[np.float32]) -> Scores:
        # In double precision and then rounded: equal vectors get equal scores, whatever else is
        # in the batch, so that ties are broken by node id and not by the order of summation.
        wide = self._matrix(snapshot, positions).astype(np.float64) @ query.astype(np.float64)
        return wide.astype(np.float32)

    def _matrix(self, snapshot: Snapshot, positions: Rows) -> NDArray[np.float32]:
        """Return the unit vectors at these positions, from the mapped file or the table."""
        if self.mapped is not None and self.aligned:
            return self.mapped.vectors[positions]
        rows = self.rows[positions]
        if self.mapped is None:
            return _from_table(snapshot, rows, self.codes.dimension)
        found = self.mapped.locate(rows)
        missing = found < 0
        if not missing.any():
            return self.mapped.vectors[found]
        matrix = np.empty((len(rows), self.codes.dimension), dtype=np.float32)
        matrix[~missing] = self.mapped.vectors[found[~missing]]
        matrix[missing] = _from_table(snapshot, rows[missing], self.codes.dimension)
        return matrix


def _kth(scores: Scores, k: int) -> float:
    """Return the k-th largest of more than k scores."""
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])


def _best(rows: Rows, scores: Scores, k: int) -> tuple[Rows, Scores]:
    """Return the best k, and everything that ties with the k-th."""
    if len(rows) > k:
        keep = scores >= _kth(scores, k)
        rows, scores = rows[keep], scores[keep]
    order = np.argsort(-scores, kind="stable")
    return rows[order], scores[order]


def _from_table(snapshot: Snapshot, rows: Rows, dimension: int) -> NDArray[np.float32]:
    found = snapshot.vectors(rows.tolist())
    empty = bytes(4 * dimension)
    joined = b"".join(found.get(row, empty) for row in rows.tolist())
    return unit(np.frombuffer(joined, dtype=np.float32).reshape(len(rows), dimension))
