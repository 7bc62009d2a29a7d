"""One state of a BM25 index: what a search sees from its first step to its last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from llama_index.core.schema import BaseNode
from numpy.typing import NDArray

from llama_index_hybrid_pack.retrieval._bm25_segment import (
    PASSED,
    REFUSED,
    UNDECIDED,
    NodeFilter,
    Part,
)

#: From one node in so many on, adding a full column is cheaper than adding postings.
_DENSE_SHARE = 8
#: Fewest nodes that a filter new to them is applied to before looking whether k have passed.
_FIRST_STEP = 512
#: Scores per block when the best k are looked for.
_BLOCK = 128


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Parts of the index with the statistics over all of them; never changed.

    Args:
        parts: The parts, in order.
        n_nodes: Number of nodes that are not deleted.
        total_length: Number of their terms.
        generation: Number of changes so far.
        k1: Saturation of term frequency.
        b: Share of length normalisation.
    """

    parts: tuple[Part, ...]
    n_nodes: int
    total_length: int
    generation: int
    k1: float
    b: float
    _norms: dict[int, NDArray[np.float32]] = field(default_factory=dict, repr=False)
    _weights: dict[tuple[int, int], NDArray[np.float32]] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[type[Snapshot], tuple[object, ...]]:
        state = (self.parts, self.n_nodes, self.total_length, self.generation, self.k1, self.b)
        return Snapshot, state

    def search(
        self, terms: Sequence[str], k: int, node_filter: NodeFilter | None
    ) -> list[tuple[BaseNode, float]]:
        """Return the best nodes and their scores, score descending, then node id.

        Args:
            terms: Terms of the query; a repeated term counts as often as it stands there.
            k: Most nodes to return, at least 1.
            node_filter: Only nodes that pass are ranked; scores stay what they are without it.

        Returns:
            Up to ``k`` nodes that hold at least one term, with scores above 0.
        """
        scores = self._scores(terms)
        if scores is None:
            return []
        if node_filter is None:
            found = _candidates(scores, k)
        else:
            found = self._passing(scores, k, node_filter)
            found = found[_candidates(scores[found], k)]
        nodes = self._nodes(found)
        losses = (-scores[found]).tolist()
        best = sorted(zip(losses, [node.node_id for node in nodes], nodes, strict=True))[:k]
        return [(node, -loss) for loss, _, node in best]

    def _nodes(self, found: NDArray[np.intp]) -> list[BaseNode]:
        if len(self.parts) == 1:
            nodes = self.parts[0].segment.nodes
            return [nodes[position] for position in found.tolist()]
        firsts = [part.first for part in self.parts]
        owners = np.searchsorted(firsts, found, side="right") - 1
        return [
            self.parts[owner].segment.nodes[position - firsts[owner]]
            for owner, position in zip(owners.tolist(), found.tolist(), strict=True)
        ]

    def _scores(self, terms: Sequence[str]) -> NDArray[np.float32] | None:
        """Sum the weights of the terms per node; ``None`` when no term occurs anywhere."""
        scores: NDArray[np.float32] | None = None
        for term, repeats in Counter(terms).items():
            places = [
                (number, row)
                for number, part in enumerate(self.parts)
                if (row := part.segment.vocabulary.get(term)) is not None
            ]
            frequency = sum(int(self.parts[number].frequencies[row]) for number, row in places)
            if frequency == 0:
                continue
            if scores is None:
                last = self.parts[-1].span.stop
                scores = np.zeros(last, dtype=np.float32)
            for number, row in places:
                self._add(scores[self.parts[number].span], number, row, frequency, repeats)
        if scores is not None:
            for part in self.parts:
                if part.alive is not None:
                    scores[part.span] *= part.alive
        return scores

    def _add(
        self, scores: NDArray[np.float32], number: int, row: int, frequency: int, repeats: int
    ) -> None:
        """Add the weights of one term to the scores of one part."""
        weights = self._weights.get((number, row))
        if weights is None:
            weights = self._weights[number, row] = self._weigh(number, row, frequency)
        if repeats > 1:
            weights = weights * np.float32(repeats)
        if len(weights) == len(scores):
            scores += weights
        else:
            segment = self.parts[number].segment
            docs = segment.docs[segment.starts[row] : segment.starts[row + 1]]
            np.add.at(scores, docs.astype(np.intp), weights)

    def _weigh(self, number: int, row: int, frequency: int) -> NDArray[np.float32]:
        """Return the weight of a term per posting, or per node where most nodes have it.

        Lucene's variant: ``ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b *
        length / mean length))`` (Kamphuis et al. 2020, "Which BM25 do you mean?").
        """
        segment = self.parts[number].segment
        norms = self._norms.get(number)
        if norms is None:
            mean = self.total_length / max(self.n_nodes, 1) or 1.0
            lengths = segment.lengths.astype(np.float64)
            norms = (self.k1 * (1.0 - self.b + self.b * lengths / mean)).astype(np.float32)
            self._norms[number] = norms
        span = slice(segment.starts[row], segment.starts[row + 1])
        docs, counts = segment.docs[span], segment.counts[span]
        rarity = math.log(1.0 + (self.n_nodes - frequency + 0.5) / (frequency + 0.5))
        weights: NDArray[np.float32] = counts / (counts + norms[docs]) * np.float32(rarity)
        if len(docs) * _DENSE_SHARE < len(segment.nodes):
            return weights
        column = np.zeros(len(segment.nodes), dtype=np.float32)
        column[docs] = weights
        return column

    def _passing(
        self, scores: NDArray[np.float32], k: int, node_filter: NodeFilter
    ) -> NDArray[np.intp]:
        """Return positions that pass and hold the best ``k`` of all that do, ties included."""
        known = [
            part.segment.decisions.of(node_filter.key, len(part.segment.nodes))
            for part in self.parts
        ]
        decisions = np.concatenate(known) if len(known) > 1 else known[0]
        found = np.flatnonzero((scores > 0) & (decisions != REFUSED))
        if not (decisions[found] == UNDECIDED).any():
            return found
        # Deciding costs much more than scoring: go down the ranking only as far as k needs.
        ranking = found[np.argsort(-scores[found], kind="stable")]
        passed: NDArray[np.intp] = ranking[:0]
        done = 0
        while done < len(ranking):
            step = ranking[done : done + max(_FIRST_STEP, 4 * k, done)]
            self._decide(step[decisions[step] == UNDECIDED], known, decisions, node_filter)
            passed = np.concatenate([passed, step[decisions[step] == PASSED]])
            done += len(step)
            if len(passed) >= k and (scores[ranking[done:][:1]] < scores[passed[k - 1]]).all():
                break
        return passed

    def _decide(
        self,
        positions: NDArray[np.intp],
        known: list[NDArray[np.int8]],
        decisions: NDArray[np.int8],
        node_filter: NodeFilter,
    ) -> None:
        """Apply the filter to these nodes and remember what it said."""
        for part, memory in zip(self.parts, known, strict=True):
            span = part.span
            here = positions[(positions >= span.start) & (positions < span.stop)]
            for position in here.tolist():
                passes = node_filter.passes(part.segment.nodes[position - span.start].metadata)
                memory[position - span.start] = PASSED if passes else REFUSED
            decisions[here] = memory[here - span.start]


def _candidates(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Return the positions of the best ``k`` scores above 0, and of all that tie with the last.

    The k-th best of the blocks' maxima is a lower bound of the k-th best score, so that only
    few scores are left to look at closely.
    """
    bound = np.float32(0.0)
    blocks = len(scores) // _BLOCK
    if blocks >= 2 * k:
        maxima = scores[: blocks * _BLOCK].reshape(_BLOCK, blocks).max(axis=0)
        bound = np.partition(maxima, blocks - k)[blocks - k]
    found = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
    if len(found) <= k:
        return found
    values = scores[found]
    best: NDArray[np.intp] = found[values >= np.partition(values, len(found) - k)[len(found) - k]]
    return best
