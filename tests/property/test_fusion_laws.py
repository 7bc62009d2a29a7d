"""Laws that hold for every fusion, and agreement with ranx where the definitions agree."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_hybrid_pack.scoring.fusion import reciprocal_rank_fusion, weighted_fusion
from llama_index_hybrid_pack.scoring.normalization import normalize

ids = st.sampled_from([f"n{i}" for i in range(12)])
scores = st.one_of(st.none(), st.floats(-1e6, 1e6, allow_nan=False))
scored_lists = st.lists(
    st.lists(st.tuples(ids, scores), max_size=12, unique_by=lambda hit: hit[0]),
    min_size=1,
    max_size=4,
)
relative = st.sampled_from(["min_max", "z_score", "dist_based"])


def names(lists):
    return [[name for name, _ in hits] for hits in lists]


@given(scored_lists, st.data())
@settings(deadline=None)
def test_the_order_of_the_lists_does_not_matter(lists, data) -> None:
    weights = data.draw(
        st.lists(st.floats(0.01, 10), min_size=len(lists), max_size=len(lists)), label="weights"
    )
    order = data.draw(st.permutations(range(len(lists))), label="order")
    turned, turned_weights = [lists[i] for i in order], [weights[i] for i in order]
    assert reciprocal_rank_fusion(names(turned), weights=turned_weights) == (
        reciprocal_rank_fusion(names(lists), weights=weights)
    )
    assert weighted_fusion(turned, weights=turned_weights) == weighted_fusion(
        lists, weights=weights
    )


@given(scored_lists, relative)
@settings(deadline=None)
def test_every_id_comes_back_once_in_the_one_order(lists, method) -> None:
    for fused in (
        reciprocal_rank_fusion(names(lists)),
        weighted_fusion(lists, normalization=method),
    ):
        assert sorted(name for name, _ in fused) == sorted(
            {n for hits in names(lists) for n in hits}
        )
        assert fused == sorted(fused, key=lambda hit: (-hit[1], hit[0]))
        assert all(math.isfinite(score) and score >= 0.0 for _, score in fused)


@given(scored_lists, relative, st.floats(0.01, 100), st.floats(-100, 100))
@settings(deadline=None)
def test_unit_and_zero_of_the_scores_do_not_matter(lists, method, factor, offset) -> None:
    for hits in lists:
        given_scores = [None if s is None else float(round(s)) for _, s in hits]
        moved = [None if s is None else s * factor + offset for s in given_scores]
        assert normalize(moved, method) == pytest.approx(normalize(given_scores, method), abs=1e-6)


@given(scored_lists)
@settings(deadline=None)
def test_fused_scores_stay_between_0_and_1(lists) -> None:
    assert all(s <= 1.0 + 1e-9 for _, s in weighted_fusion(lists, normalization="min_max"))


@given(scored_lists)
@settings(deadline=None)
def test_a_list_of_weight_0_is_the_same_as_no_list(lists) -> None:
    extra = [[("other", 1.0)], *lists]
    weights = [0.0, *[1.0] * len(lists)]
    assert weighted_fusion(extra, weights=weights) == weighted_fusion(lists)
    assert reciprocal_rank_fusion(names(extra), weights=weights) == reciprocal_rank_fusion(
        names(lists)
    )


@given(st.lists(st.lists(ids, max_size=12, unique=True), min_size=1, max_size=4), ids)
@settings(deadline=None)
def test_moving_up_in_one_list_never_lowers_the_rrf_score(rankings, name) -> None:
    before = dict(reciprocal_rank_fusion(rankings)).get(name, 0.0)
    moved = [[name, *(other for other in rankings[0] if other != name)], *rankings[1:]]
    assert dict(reciprocal_rank_fusion(moved))[name] >= before


def random_runs(seed: int, count: int) -> list[dict[str, float]]:
    rng = random.Random(seed)
    runs = []
    for _ in range(count):
        found = rng.sample(range(40), rng.randint(2, 20))
        values = rng.sample(range(1, 1000), len(found))
        runs.append({f"n{i:02}": value / 7 for i, value in zip(found, values, strict=True)})
    return runs


@pytest.mark.slow  # ranx compiles its kernels first
def test_rrf_equals_ranx_on_random_runs() -> None:
    ranx = pytest.importorskip("ranx", reason="needs the extra 'eval'")
    for seed in range(20):
        runs = random_runs(seed, 2 + seed % 2)
        theirs = ranx.fuse(
            runs=[ranx.Run({"q": run}) for run in runs], norm=None, method="rrf", params={"k": 60}
        ).to_dict()["q"]
        ours = reciprocal_rank_fusion(
            [sorted(run, key=run.__getitem__, reverse=True) for run in runs]
        )
        assert dict(ours) == pytest.approx(theirs)


@pytest.mark.slow
def test_min_max_with_weights_equals_ranx_on_random_runs() -> None:
    ranx = pytest.importorskip("ranx", reason="needs the extra 'eval'")
    for seed in range(20):
        runs = random_runs(seed, 2)
        theirs = ranx.fuse(
            runs=[ranx.Run({"q": run}) for run in runs],
            norm="min-max",
            method="wsum",
            params={"weights": (0.3, 0.7)},
        ).to_dict()["q"]
        ours = weighted_fusion([list(run.items()) for run in runs], weights=[0.3, 0.7])
        assert dict(ours) == pytest.approx(theirs)
