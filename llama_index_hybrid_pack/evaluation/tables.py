"""Tables for a terminal and for Markdown, and the names of metrics in them."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index_hybrid_pack.evaluation.metrics import parse_metric

_LABELS = {
    "hit_rate": "hit rate",
    "recall": "recall",
    "precision": "precision",
    "mrr": "MRR",
    "map": "MAP",
    "ndcg": "nDCG",
}


def headline_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the few metrics that fit into a line: recall at each k, MRR, nDCG at one k.

    Example:
        >>> headline_metrics(["recall@5", "precision@5", "recall@50", "mrr", "ndcg@5"])
        ('recall@5', 'recall@50', 'mrr', 'ndcg@5')
    """
    gains = [name for name in metrics if name.startswith("ndcg")]
    gain = ["ndcg@10"] if "ndcg@10" in gains else gains[-1:]
    chosen = [name for name in metrics if name.startswith("recall") or name == "mrr"]
    return (*chosen, *gain) or tuple(metrics[:5])


def metric_label(name: str) -> str:
    """Return a metric's usual spelling.

    Example:
        >>> metric_label("ndcg@10")
        'nDCG@10'
    """
    base, k = parse_metric(name)
    return _LABELS[base] if k is None else f"{_LABELS[base]}@{k}"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a terminal.

    Example:
        >>> print(text_table(["a", "b"], [["one", "2"]]))
        a    b
        ---  -
        one  2
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a Markdown table.

    Example:
        >>> print(markdown_table(["a", "b"], [["x|y", "2"]]))
        | a | b |
        | --- | --- |
        | x\|y | 2 |
    """
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
