"""Laws of the metrics, and agreement with ranx's own way in on random runs."""

from __future__ import annotations

import itertools
import random
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_hybrid_pack.evaluation.matching import Ranking, score
from llama_index_hybrid_pack.evaluation.metrics import score_rankings, standard_metrics
from llama_index_hybrid_pack.evaluation.significance import holm

ranx = pytest.importorskip("ranx", reason="needs pip install 'llama-index-hybrid-pack[eval]'")
METRICS = standard_metrics([1, 3, 10])

items = st.sampled_from([f"d{i}" for i in range(8)])
rankings = st.lists(items, max_size=12)
relevant = st.dictionaries(items, st.integers(1, 4), min_size=1)


@given(relevant, rankings)
@settings(deadline=None)
def test_every_value_is_within_0_and_1_and_repeats_do_not_matter(relevant, ranking) -> None:
    scores = score_rankings({"q": relevant}, {"q": ranking}, METRICS)
    once = score_rankings({"q": relevant}, {"q": list(dict.fromkeys(ranking))}, METRICS)
    assert scores == once
    assert all(0.0 <= values["q"] <= 1.0 for values in scores.values())
    if not set(ranking) & set(relevant):
        assert all(values["q"] == 0.0 for values in scores.values())


@given(relevant, st.permutations([f"d{i}" for i in range(8)]))
@settings(deadline=None)
def test_the_best_order_has_the_best_values(relevant, ranking) -> None:
    best = sorted(ranking, key=lambda item: -relevant.get(item, 0))
    given_, ideal = (
        score_rankings({"q": relevant}, {"q": order}, METRICS) for order in (ranking, best)
    )
    assert all(given_[name]["q"] <= ideal[name]["q"] + 1e-12 for name in METRICS)
    assert ideal["ndcg@10"]["q"] == ideal["mrr"]["q"] == ideal["map"]["q"] == 1.0


@given(relevant, rankings, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_names_and_other_questions_do_not_matter(relevant, ranking, rng: random.Random) -> None:
    names = [f"d{i}" for i in range(8)]
    new = dict(zip(names, rng.sample([f"x\u00e9{i}" for i in range(20)], 8), strict=True))
    renamed = score_rankings(
        {"other": {"y": 1}, "q": {new[name]: grade for name, grade in relevant.items()}},
        {"q": [new[name] for name in ranking], "other": ["z"] * 30},
        METRICS,
    )
    plain = score_rankings({"q": relevant}, {"q": ranking}, METRICS)
    assert {name: values["q"] for name, values in renamed.items()} == {
        name: values["q"] for name, values in plain.items()
    }


@given(relevant, rankings)
@settings(deadline=None)
def test_hits_that_are_one_item_each_score_the_same_either_way(relevant, ranking) -> None:
    once = tuple(dict.fromkeys(ranking))
    plain = Ranking(items=once, ends=tuple(range(1, len(once) + 1)))
    # A second question whose first hit finds two spans takes the other way through the code.
    double = Ranking(items=("s1", "s2"), ends=(2,))
    qrels = {"q": relevant, "r": {"s1": 1, "s2": 1}}
    alone = score({"q": relevant}, {"q": plain}, METRICS)
    beside = score(qrels, {"q": plain, "r": double}, METRICS)
    assert {name: values["q"] for name, values in beside.items()} == pytest.approx(
        {name: values["q"] for name, values in alone.items()}
    )


def test_random_runs_score_as_ranx_scores_them() -> None:
    rng = random.Random(0)
    documents = [f"d{i}" for i in range(40)]
    qrels = {
        f"q{i}": {name: rng.randint(1, 3) for name in rng.sample(documents, rng.randint(1, 12))}
        for i in range(200)
    }
    run = {name: rng.sample(documents, rng.randint(1, 30)) for name in qrels}
    ours = score_rankings(qrels, run, METRICS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ranx.Run(
            {name: {d: 100.0 - i for i, d in enumerate(found)} for name, found in run.items()}
        )
        names = {"mrr": "mrr", "map": "map"}
        ranx.evaluate(ranx.Qrels(qrels), theirs, [names.get(name, name) for name in METRICS])
    for name in METRICS:
        assert ours[name] == pytest.approx(dict(theirs.scores[name]), abs=1e-12), name


@given(st.lists(st.floats(0, 1), max_size=8), st.randoms(use_true_random=False))
def test_holm_keeps_order_raises_p_and_ignores_the_order_given(p_values, rng) -> None:
    adjusted = holm(p_values)
    assert all(before <= after <= 1.0 for before, after in zip(p_values, adjusted, strict=True))
    order = list(range(len(p_values)))
    rng.shuffle(order)
    assert holm([p_values[i] for i in order]) == [adjusted[i] for i in order]
    ranked = sorted(zip(p_values, adjusted, strict=True))
    assert all(a[1] <= b[1] for a, b in itertools.pairwise(ranked))
