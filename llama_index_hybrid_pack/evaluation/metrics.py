"""Ranking metrics by ranx, right also for empty results, repeated ids and tied scores.

Every value is in [0, 1]. A question without a hit counts as 0 and is never left out.

==============  =================================================================
hit_rate@k      1 if one of the first k hits is relevant
recall@k        share of the relevant items among the first k hits
precision@k     share of the relevant hits among k places; missing hits are misses
mrr             1 / rank of the first relevant hit
map             mean of the precision at each relevant hit, misses count 0
ndcg@k          discounted gain of the grades, divided by the best that is possible
==============  =================================================================

``mrr`` and ``map`` take a cut-off as well. Without one the whole list counts.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack._optional import require
from llama_index_hybrid_pack.errors import EvaluationError

#: Our names → those of ``ranx.metrics``.
_FUNCTIONS = {
    "hit_rate": "hit_rate",
    "recall": "recall",
    "precision": "precision",
    "mrr": "reciprocal_rank",
    "map": "average_precision",
    "ndcg": "ndcg",
}
#: Metrics that mean something only up to a rank.
_NEED_CUTOFF = frozenset({"hit_rate", "recall", "precision", "ndcg"})

# numba's threads must not be entered from two of ours at once: it ends the process.
_LOCK = threading.Lock()


def parse_metric(name: str) -> tuple[str, int | None]:
    """Split ``"ndcg@10"`` into metric and cut-off.

    Args:
        name: A metric of this module, with ``@k`` where it needs one.

    Returns:
        The metric's name and k, or ``None`` without a cut-off.

    Raises:
        EvaluationError: If there is no such metric or its cut-off is missing or below 1.

    Example:
        >>> parse_metric("ndcg@10"), parse_metric("mrr")
        (('ndcg', 10), ('mrr', None))
    """
    base, at, cutoff = name.partition("@")
    if base not in _FUNCTIONS:
        msg = f"There is no metric {name!r}. Choose among {', '.join(sorted(_FUNCTIONS))}."
        raise EvaluationError(msg)
    if not at and base not in _NEED_CUTOFF:
        return base, None
    if not cutoff.isascii() or not cutoff.isdigit() or int(cutoff) < 1:
        msg = f"The metric {name!r} needs a cut-off of at least 1, for example '{base}@10'."
        raise EvaluationError(msg)
    return base, int(cutoff)


def standard_metrics(k_values: Sequence[int]) -> tuple[str, ...]:
    """Return every metric at every cut-off, then ``mrr`` and ``map``.

    Example:
        >>> standard_metrics([5])
        ('hit_rate@5', 'recall@5', 'precision@5', 'ndcg@5', 'mrr', 'map')
    """
    at = [f"{base}@{k}" for k in k_values for base in ("hit_rate", "recall", "precision", "ndcg")]
    return (*at, "mrr", "map")


def score_rankings(
    qrels: Mapping[str, Mapping[str, float]],
    run: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Score rankings against what is relevant, per question.

    Args:
        qrels: Question id → relevant item → grade; grades below 1 count as not relevant.
        run: Question id → items, best first. The given order is the rank, so scores and ties do
            not matter; a repeated item counts at its best rank. A question that is missing has
            no hits.
        metrics: Names such as ``"recall@5"``, ``"mrr"`` and ``"ndcg@10"``.

    Returns:
        Metric → question id → value in [0, 1]. Questions without a relevant item have no value
        and are left out.

    Raises:
        EvaluationError: If there is no such metric, or the run has questions that the qrels lack.
        MissingExtraError: If the extra ``eval`` is not installed.

    Note:
        ranx compiles its metrics at the first use ever, which takes most of a minute; later
        processes read what was compiled.

    Example:
        >>> scores = score_rankings({"q": {"x": 1}}, {"q": ["y", "x", "x"]}, ["mrr", "recall@1"])
        >>> scores["mrr"], scores["recall@1"]
        ({'q': 0.5}, {'q': 0.0})
    """
    parsed = [parse_metric(name) for name in metrics]
    unknown = [name for name in run if name not in qrels]
    if unknown:
        msg = f"The run has {len(unknown)} questions without qrels, for example {unknown[0]!r}."
        raise EvaluationError(msg)
    relevant = {
        question: {item: grade for item, grade in items.items() if grade >= 1}
        for question, items in qrels.items()
    }
    names = [question for question, items in relevant.items() if items]
    if not names:
        return {name: {} for name in metrics}
    expected, ranked = _as_arrays(
        [relevant[name] for name in names], [run.get(name, ()) for name in names]
    )
    values = _evaluate(expected, ranked, parsed)
    return {
        metric: dict(zip(names, column.tolist(), strict=True))
        for metric, column in zip(metrics, values, strict=True)
    }


def _as_arrays(
    relevant: Sequence[Mapping[str, float]], rankings: Sequence[Sequence[str]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ranx's own form of qrels and run: (number of the item, grade or score), padded.

    Numbers instead of names, since ranx would compare hashes cut to the precision of a float.
    Padding has grade 0 and numbers that match nothing.
    """
    lists = [list(dict.fromkeys(ranking)) for ranking in rankings]
    expected = np.zeros((len(relevant), max(map(len, relevant)), 2))
    ranked = np.zeros((len(lists), max(1, *map(len, lists)), 2))
    expected[:, :, 0], ranked[:, :, 0] = -1.0, -2.0
    for i, (items, ranking) in enumerate(zip(relevant, lists, strict=True)):
        # The best grades first: ranx takes the order as the ideal one.
        best = sorted(items, key=lambda item: -items[item])
        number = {item: float(place) for place, item in enumerate(best)}
        expected[i, : len(best), 0] = np.arange(len(best))
        expected[i, : len(best), 1] = [items[item] for item in best]
        ranked[i, : len(ranking), 0] = [number.get(item, -2.0) for item in ranking]
        # Scores that fall with the rank.
        ranked[i, : len(ranking), 1] = np.arange(len(ranking), 0, -1)
    return expected, ranked


def _evaluate(
    expected: NDArray[np.float64],
    ranked: NDArray[np.float64],
    metrics: Sequence[tuple[str, int | None]],
) -> list[NDArray[np.float64]]:
    with _LOCK, warnings.catch_warnings():
        # numba warns while it compiles ranx's code; nothing that a caller could change.
        warnings.simplefilter("ignore")
        ranx: ModuleType = require("ranx.metrics", extra="eval")
        return [
            np.clip(getattr(ranx, _FUNCTIONS[base])(expected, ranked, k or 0), 0.0, 1.0)
            for base, k in metrics
        ]
