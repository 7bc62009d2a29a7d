from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from llama_index_hybrid_pack.scoring.probability import logit, sigmoid


def test_case_b23_good_hits_stay_strictly_ordered_as_probabilities(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B23.json").read_text(encoding="utf-8"))
    logits = case["input"]["logits"]
    mapped = [sigmoid(x) for x in logits]
    assert all(a < b for a, b in pairwise(mapped))
    assert [x for x, p in zip(logits, mapped, strict=True) if p >= case["input"]["cutoff"]] == case[
        "expected"
    ]["kept"]


def test_strictly_ordered_where_32_and_16_bits_tie() -> None:
    mapped = [sigmoid(x / 4) for x in range(-400, 129)]
    assert all(a < b for a, b in pairwise(mapped))


@pytest.mark.parametrize("x", [-1e300, -800.0, 800.0, 1e300, math.inf, -math.inf])
def test_extreme_logits_neither_overflow_nor_leave_the_interval(x: float) -> None:
    assert sigmoid(x) == (1.0 if x > 0 else 0.0)


@pytest.mark.parametrize("p", [1e-300, 1e-9, 0.2, 0.5, 0.9, 1 - 1e-12])
def test_logit_undoes_sigmoid(p: float) -> None:
    assert sigmoid(logit(p)) == pytest.approx(p, rel=1e-9)


def test_the_ends_are_infinite() -> None:
    assert logit(0.0) == -math.inf
    assert logit(1.0) == math.inf
