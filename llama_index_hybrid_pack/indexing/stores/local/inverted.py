"""Beyond a million vectors: 8-bit codes in inverted lists, of which a query reads a part.

The lists are trained once and kept in ``inverted.faiss`` beside the vector file; what was added
since is put into them at opening. They are trained anew when the store has doubled. A filtered
search reads all lists, restricted to the filter's rows, so it stays exact.
"""

from __future__ import annotations

import importlib
import logging
import math
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.stores.local.files import read_state, write_state
from llama_index_hybrid_pack.indexing.stores.local.quantizer import (
    Prepared,
    QuantizedVectors,
    Range,
)
from llama_index_hybrid_pack.indexing.stores.local.vectors import MappedVectors

logger = logging.getLogger(__name__)

_FORMAT = 1
#: Vectors per list that k-means sees.
_SAMPLE = 64
#: An unfiltered query reads as many lists as it takes to find this share of the true best 100 ...
_RECALL = 0.98
#: ... measured on so many of the stored vectors when the lists are trained.
_TRIALS = 64


class InvertedVectors(QuantizedVectors):
    """Codes in inverted lists; an unfiltered search reads some of them."""

    exhaustive = False

    def __init__(self, span: Range, index: Any, size: int, probes: int) -> None:
        super().__init__(span, index)
        self.size = size
        self._probes = probes

    # The lists are found by the vectors as they are, so neither they nor queries are rescaled.
    def _codes(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return vectors

    def prepare(self, query: NDArray[np.float32]) -> Prepared:
        """Bring a unit vector of shape ``(dimension,)`` to the form in which codes are asked."""
        spread = float(np.square(query * self._step).sum())
        return Prepared(query[None, :], 1.0, 0.0, 6.0 * math.sqrt(spread / 12.0))

    def describe(self) -> str:
        """Return the engine in words."""
        return (
            f"FAISS 8-bit scalar quantiser in {self._index.nlist} inverted lists, "
            f"{self._probes} of them read, rescored in float32"
        )

    def _parameters(self, allowed: NDArray[np.uint8] | None, *, every: bool) -> Any:
        faiss: Any = importlib.import_module("faiss")
        options: dict[str, Any] = {"nprobe": int(self._index.nlist) if every else self._probes}
        if allowed is not None:
            options["sel"] = faiss.IDSelectorBitmap(allowed)
        return faiss.SearchParametersIVF(**options)


class InvertedFile:
    """Trains, keeps and loads the lists; only the holder of the write lock writes."""

    def __init__(self, folder: Path, *, threshold: int | None) -> None:
        self._folder = folder
        self._threshold = threshold

    def fits(self, mapped: MappedVectors) -> bool:
        """Return whether there are lists of the mapped vectors, and they are wanted."""
        if self._threshold is None or len(mapped.rows) <= self._threshold:
            return False
        state = read_state(self._folder / "inverted.json") or {}
        return (state.get("format"), state.get("epoch")) == (_FORMAT, mapped.epoch)

    def load(self, mapped: MappedVectors) -> InvertedVectors | None:
        """Return the lists of the mapped vectors' first rows, if there are any."""
        import faiss

        if not self.fits(mapped):
            return None
        state = read_state(self._folder / "inverted.json") or {}
        try:
            span = Range(
                np.array(state["low"], dtype=np.float32), np.array(state["high"], dtype=np.float32)
            )
            index = faiss.read_index(str(self._folder / state["file"]))
            size, probes = int(state["count"]), int(state["probes"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            logger.warning("The inverted lists at %s are damaged (%s).", self._folder, error)
            return None
        if index.ntotal != size or size > len(mapped.rows):
            return None
        return InvertedVectors(span, index, size, probes)

    def catch_up(self, mapped: MappedVectors) -> None:
        """Train and save lists when the vectors have become many, or twice as many."""
        count = len(mapped.rows)
        if self._threshold is None or count <= self._threshold:
            return
        state = read_state(self._folder / "inverted.json") or {}
        if self.fits(mapped) and count < 2 * int(state.get("count", 0)):
            return
        faiss: Any = importlib.import_module("faiss")
        logger.info("Training inverted lists for %d vectors at %s.", count, self._folder)
        span = Range.around(mapped.extent.low, mapped.extent.high, count)
        index = _trained(mapped, span)
        for _, vectors in mapped.blocks(0):
            index.add(np.ascontiguousarray(vectors))
        name = f"inverted-{mapped.epoch}-{uuid.uuid4().hex}.faiss"
        faiss.write_index(index, str(self._folder / name))
        write_state(
            self._folder / "inverted.json",
            {
                "format": _FORMAT,
                "epoch": mapped.epoch,
                "file": name,
                "count": count,
                "probes": _probes(index, mapped),
                "low": span.low.tolist(),
                "high": span.high.tolist(),
            },
        )
        for other in self._folder.glob("inverted-*.faiss"):
            if other.name != name:
                other.unlink()


def _trained(mapped: MappedVectors, span: Range) -> Any:
    # The bindings' type hints do not know all that is used here.
    faiss: Any = importlib.import_module("faiss")
    count, dimension = mapped.vectors.shape
    lists = max(1, int(2 * np.sqrt(count)))
    coarse = faiss.IndexFlatIP(dimension)
    index = faiss.IndexIVFScalarQuantizer(
        coarse,
        dimension,
        lists,
        faiss.ScalarQuantizer.QT_8bit,
        faiss.METRIC_INNER_PRODUCT,
        False,
    )
    index.own_fields = True  # the coarse quantiser lives as long as the index that points to it
    coarse.this.disown()
    sample = np.random.default_rng(0).choice(count, min(count, _SAMPLE * lists), replace=False)
    kmeans = faiss.Clustering(dimension, lists)
    kmeans.spherical = True
    kmeans.min_points_per_centroid = 1
    kmeans.train(np.ascontiguousarray(mapped.vectors[np.sort(sample)]), coarse)
    # Not train(): the codes must span later vectors too.
    faiss.copy_array_to_vector(np.concatenate([span.low, span.high - span.low]), index.sq.trained)
    index.is_trained = True
    return index


def _probes(index: Any, mapped: MappedVectors) -> int:
    """Return how many lists must be read to find what reading all of them finds."""
    faiss: Any = importlib.import_module("faiss")
    count = len(mapped.rows)
    trials = np.random.default_rng(1).choice(count, min(count, _TRIALS), replace=False)
    queries = np.ascontiguousarray(mapped.vectors[np.sort(trials)])
    k = min(100, count)
    every = faiss.SearchParametersIVF(nprobe=int(index.nlist))
    wanted = [set(found) for found in index.search(queries, k, params=every)[1].tolist()]
    probes = min(8, int(index.nlist))
    while probes < index.nlist:
        some = faiss.SearchParametersIVF(nprobe=probes)
        got = index.search(queries, k, params=some)[1].tolist()
        shares = [
            len(best.intersection(found)) / k for best, found in zip(wanted, got, strict=True)
        ]
        if sum(shares) / len(shares) >= _RECALL:
            return probes
        probes = min(2 * probes, int(index.nlist))
    return probes
