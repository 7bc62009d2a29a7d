"""Tables of docs/quality.md, written from results/quality.json between marker lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS
from llama_index_hybrid_pack.evaluation.tables import markdown_table

DOCUMENT = Path(__file__).parents[1] / "docs" / "quality.md"
_BLOCK = re.compile(r"(<!-- quality: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
Figures = Mapping[str, Any]


def write_report() -> Path:
    """Put the tables of the JSON file into the document."""
    figures = json.loads((RESULTS / "quality.json").read_text())
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(fill(text, figures), encoding="utf-8")
    return DOCUMENT


def fill(text: str, figures: Figures) -> str:
    """Return the document with the tables between its markers."""
    return _BLOCK.sub(
        lambda found: f"{found[1]}{_TABLES[found['name']](figures)}\n{found[3]}", text
    )


def _sets(figures: Figures) -> str:
    rows = [
        [name, str(found["documents"]), str(found["n_development"]), str(found["n_held_out"])]
        for name, found in ((name, figures["sets"][name]) for name in figures["order"])
    ]
    return markdown_table(["set", "nodes", "development questions", "held-out questions"], rows)


def _development(figures: Figures) -> str:
    weights = dict(figures["development"]["weights"])
    means = {name: dict(rows) for name, rows in figures["development"]["means"].items()}
    rows = []
    for name in next(iter(means.values())):
        values = [means[corpus][name] for corpus in weights]
        mean = sum(v * w for v, w in zip(values, weights.values(), strict=True))
        rows.append([name, *map(_figure, values), _figure(mean / sum(weights.values()), 4)])
    return markdown_table(["", *weights, "mean"], rows)


def held_out(figures: Figures, names: Sequence[str], shown: Sequence[str] = ()) -> str:
    """Return nDCG@10 with intervals on the held-out questions of these sets.

    ``shown`` are the systems in the table; all of them when it is empty.
    """
    systems = [row["name"] for row in next(iter(figures["sets"].values()))["systems"]]
    rows = [
        [system, *(_with_interval(figures, name, system, "ndcg@10") for name in names)]
        for system in systems
        if not shown or system in shown
    ]
    return markdown_table(["", *names], rows)


def _documents(figures: Figures) -> str:
    weights = dict(figures["development"]["weights"])
    return held_out(figures, [name for name in figures["order"] if name in weights])


def _others(figures: Figures) -> str:
    weights = dict(figures["development"]["weights"])
    return held_out(figures, [name for name in figures["order"] if name not in weights])


def _recall(figures: Figures) -> str:
    shown = [
        "LlamaIndex BM25Retriever",
        "LlamaIndex VectorStoreIndex",
        "LlamaIndex dist_based_score",
        "BM25",
        "dense",
        "hybrid, 30 per leg",
        "hybrid",
        "hybrid + late interaction",
    ]
    rows = [
        [name, system, *(_with_interval(figures, name, system, f"recall@{k}") for k in _DEPTHS)]
        for name in figures["order"]
        for system in shown
    ]
    return markdown_table(["set", "", *(f"recall@{k}" for k in _DEPTHS)], rows)


def _claims(figures: Figures) -> str:
    rows = []
    for claim in figures["claims"]:
        label = f"{claim['second']} - {claim['first']}"
        together = claim["together"]
        if together is not None:
            cells = [_change(together), _p(together["p_holm"]), str(together["n"])]
            rows.append([f"**{label}**", "six sets together", *cells])
        for name in figures["order"]:
            row = claim["sets"][name]
            rows.append([label, name, _change(row), _p(row["p_holm"]), str(row["n"])])
    return markdown_table(["difference", "set", "nDCG@10 [95 %]", "p", "n"], rows)


def _together(figures: Figures) -> str:
    rows = []
    for claim in figures["claims"]:
        together = claim["together"]
        if together is None:
            continue
        sets = claim["sets"].values()
        better = sum(row["p_holm"] < 0.05 and row["difference"] > 0 for row in sets)
        worse = sum(row["p_holm"] < 0.05 and row["difference"] < 0 for row in sets)
        label = f"{claim['second']} - {claim['first']}"
        counts = f"{better} / {worse} of {len(claim['sets'])}"
        rows.append([label, _change(together), _p(together["p_holm"]), counts])
    header = ["difference", "six sets together [95 %]", "p", "sets significantly better / worse"]
    return markdown_table(header, rows)


def _cost(figures: Figures) -> str:
    found = figures["sets"]["scifact"]["milliseconds"]
    return markdown_table(
        ["scifact", "CPU ms per question"],
        [[name, f"{value:.1f}"] for name, value in found.items()],
    )


_DEPTHS = (5, 10, 20, 50)
_TABLES: dict[str, Callable[[Figures], str]] = {
    "sets": _sets,
    "development": _development,
    "held out": _documents,
    "held out others": _others,
    "recall": _recall,
    "claims": _claims,
    "together": _together,
    "cost": _cost,
}


def _with_interval(figures: Figures, name: str, system: str, metric: str) -> str:
    for row in figures["sets"][name]["systems"]:
        if row["name"] == system:
            found = row["metrics"][metric]
            low, high = _figure(found["low"], 2), _figure(found["high"], 2)
            return f"{_figure(found['mean'])} [{low}, {high}]"
    return ""


def _figure(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}"


def _change(row: Mapping[str, float]) -> str:
    return f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"


def _p(value: float) -> str:
    return "< .0001" if value < 0.0001 else f"{value:.4f}"
