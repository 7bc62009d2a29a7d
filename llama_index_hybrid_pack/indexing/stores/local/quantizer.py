"""The 8-bit scan: FAISS's scalar quantiser over unit vectors, grown in place."""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.stores.local.gate import Gate

#: Share of the seen range that is added on both sides, so that later vectors rarely fall outside.
_MARGIN = 0.25
_FEW = 1000
#: Steps of a code to each side of the middle.
_STEPS = 127
#: Standard deviations after which an error counts as impossible.
_DEVIATIONS = 6.0


@contextmanager
def one_thread() -> Iterator[None]:
    """Let FAISS use one thread in this Python thread, and put its setting back afterwards.

    A single query has nothing to share out, and waking a pool costs more than it saves. OpenMP
    keeps the setting per thread, so nobody else is touched.
    """
    import faiss

    before = faiss.omp_get_max_threads()
    if before == 1:
        yield
        return
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class Range:
    """Values that the 8-bit codes span, per dimension."""

    def __init__(self, low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
        self.low = low
        self.high = high

    @classmethod
    def around(cls, low: NDArray[np.float32], high: NDArray[np.float32], count: int) -> Range:
        """Return a range with room for vectors that come later.

        Args:
            low: Smallest value per dimension so far.
            high: Largest value per dimension so far.
            count: Number of vectors so far. Few say little about those to come: a component of a
                random unit vector spreads by 1/sqrt(d), and four times that is spanned at least.
        """
        room = _MARGIN * (high - low) + 1e-6
        if count < _FEW:
            least = min(1.0, 4.0 / np.sqrt(len(low)))
            low, high = np.minimum(low, -least), np.maximum(high, least)
        return cls(
            np.maximum(low - room, -1.0).astype(np.float32),
            np.minimum(high + room, 1.0).astype(np.float32),
        )

    def holds(self, low: NDArray[np.float32], high: NDArray[np.float32]) -> bool:
        """Return whether vectors within ``low`` and ``high`` are coded without clipping."""
        slack = 1e-6  # unit vectors may exceed 1 by rounding
        return bool((low >= self.low - slack).all() and (high <= self.high + slack).all())


class Prepared(NamedTuple):
    """A query in the form in which the codes are asked."""

    weights: NDArray[np.float32]
    """Shape ``(1, dimension)``."""
    scale: float
    """What the index's scores are to be multiplied by ..."""
    shift: float
    """... and what is to be added, to give cosines."""
    error: float
    """Bound on the error of a score that is hardly ever exceeded."""


class QuantizedVectors:
    """8-bit codes of unit vectors, searched by inner product; positions count from 0.

    A code is the number of steps, -127 to 127, from the middle of its dimension's range. A query
    is brought to whole numbers too: then FAISS multiplies bytes, a quarter faster than floats.
    """

    #: Whether every search reads every code.
    exhaustive = True

    def __init__(self, span: Range, index: Any) -> None:
        self.span = span
        self.dimension = len(span.low)
        self.size = 0
        self._index = index
        self._gate = Gate()
        self._growing = threading.Lock()
        self._middle: NDArray[np.float32] = ((span.low + span.high) / 2.0).astype(np.float32)
        self._step: NDArray[np.float32] = ((span.high - span.low) / (2.0 * _STEPS)).astype(
            np.float32
        )
        self._longest = 0.0  # the largest sum of squares of a row's codes

    @classmethod
    def flat(cls, span: Range) -> QuantizedVectors:
        """Return empty codes that are scanned in full."""
        import faiss

        index = faiss.IndexScalarQuantizer(
            len(span.low), faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
        )
        index.is_trained = True
        return cls(span, index)

    def describe(self) -> str:
        """Return the engine in words."""
        return "FAISS 8-bit scalar quantiser, scanned in full, rescored in float32"

    def add(self, vectors: NDArray[np.float32]) -> None:
        """Append vectors that lie within the span."""
        codes = self._codes(vectors)
        with self._growing, one_thread(), self._gate.writing():
            self._index.add(np.ascontiguousarray(codes))
            self.size += len(codes)

    def _codes(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        codes = np.subtract(vectors, self._middle, dtype=np.float32)
        codes /= self._step
        np.rint(codes, out=codes)
        np.clip(codes, -_STEPS, _STEPS, out=codes)
        squares = np.einsum("ij,ij->i", codes, codes)
        self._longest = max(self._longest, float(squares.max(initial=0.0)))
        return codes

    def prepare(self, query: NDArray[np.float32]) -> Prepared:
        """Bring a unit vector of shape ``(dimension,)`` to the form in which codes are asked."""
        weights = query * self._step
        scale = float(np.abs(weights).max()) / _STEPS or 1.0
        # Codes and query err by half a step at most, evenly spread; the variance of the sum.
        variance = (float(weights @ weights) + scale * scale * self._longest) / 12.0
        return Prepared(
            np.rint(weights / scale)[None, :],
            scale,
            float(query @ self._middle),
            _DEVIATIONS * math.sqrt(variance),
        )

    def search(
        self, query: Prepared, count: int, allowed: NDArray[np.uint8] | None, *, every: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the positions of the best codes and their approximate scores.

        Args:
            query: What :meth:`prepare` returned.
            count: Positions wanted.
            allowed: One bit per position, lowest bit first; ``None`` allows all.
            every: Read every code, even where that is not the habit.
        """
        parameters = self._parameters(allowed, every=every)
        with one_thread(), self._gate.reading():
            scores, positions = self._index.search(query.weights, count, params=parameters)
        found = positions[0] >= 0
        rough: NDArray[np.float32] = scores[0][found] * np.float32(query.scale) + np.float32(
            query.shift
        )
        return positions[0][found], rough

    def _parameters(self, allowed: NDArray[np.uint8] | None, *, every: bool) -> Any:  # noqa: ARG002
        if allowed is None:
            return None
        # The bindings' type hints leave out what their constructors take.
        faiss: Any = importlib.import_module("faiss")
        return faiss.SearchParameters(sel=faiss.IDSelectorBitmap(allowed))
