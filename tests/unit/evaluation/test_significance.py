"""Intervals and tests: exact small cases, and error rates by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from llama_index_hybrid_pack.errors import EvaluationError
from llama_index_hybrid_pack.evaluation import significance
from llama_index_hybrid_pack.evaluation.significance import bootstrap_intervals, holm, paired_test


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for trial in range(300):
        low, high = bootstrap_intervals(rng.binomial(1, 0.7, 60), n_resamples=1000, seed=trial)
        inside += low <= 0.7 <= high
    assert 0.90 <= inside / 300 <= 0.985


def test_the_interval_agrees_with_the_normal_theory_on_many_values() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.2, 2_000)
    low, high = bootstrap_intervals(values)
    half = 1.96 * values.std() / np.sqrt(2_000)
    assert low == pytest.approx(values.mean() - half, abs=5e-4)
    assert high == pytest.approx(values.mean() + half, abs=5e-4)


def test_columns_get_the_intervals_that_they_get_alone() -> None:
    table = np.random.default_rng(0).random((40, 3))
    together = bootstrap_intervals(table, n_resamples=500)
    assert together.shape == (2, 3)
    for i in range(3):
        assert together[:, i] == pytest.approx(bootstrap_intervals(table[:, i], n_resamples=500))


def test_blocks_do_not_change_the_shape_of_the_result(monkeypatch) -> None:
    values = np.random.default_rng(0).random(50)
    whole = bootstrap_intervals(values, n_resamples=4_000)
    monkeypatch.setattr(significance, "_BLOCK", 997)
    assert bootstrap_intervals(values, n_resamples=4_000) == pytest.approx(whole, abs=0.01)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.7, 1 / 3, 1.0])
def test_equal_values_give_exactly_themselves(value: float) -> None:
    assert bootstrap_intervals([value] * 7).tolist() == [value, value]
    assert bootstrap_intervals([value]).tolist() == [value, value]


def test_no_values_give_nan_and_no_error() -> None:
    assert np.isnan(bootstrap_intervals([])).all()
    assert np.isnan(bootstrap_intervals(np.empty((0, 2)))).all()
    assert bootstrap_intervals(np.empty((0, 2))).shape == (2, 2)


def test_the_same_seed_gives_the_same_result() -> None:
    values, others = np.random.default_rng(0).random((2, 60))
    assert bootstrap_intervals(values, seed=3).tolist() == (
        bootstrap_intervals(values, seed=3).tolist()
    )
    assert bootstrap_intervals(values, seed=3).tolist() != (
        bootstrap_intervals(values, seed=4).tolist()
    )
    assert paired_test(values, others, seed=3) == paired_test(values, others, seed=3)


def test_false_positives_of_the_paired_test_are_as_rare_as_they_should_be() -> None:
    rng = np.random.default_rng(7)
    p_values = []
    for trial in range(400):
        # Two systems of equal quality on the same questions; many ties, as with hit rates.
        hard = rng.random(40)
        first, second = (rng.random((2, 40)) > hard).astype(float)
        p_values.append(paired_test(first, second, n_permutations=1000, seed=trial))
    assert 0.02 <= np.mean(np.array(p_values) <= 0.05) <= 0.08


def test_a_real_difference_is_found() -> None:
    rng = np.random.default_rng(2)
    first = rng.random(100)
    assert paired_test(first, first + 0.05 + rng.normal(0, 0.1, 100)) < 0.01


def test_few_questions_are_counted_exactly() -> None:
    assert paired_test([0.0] * 5, [1.0] * 5) == 2 / 2**5
    assert paired_test([0.0, 1.0], [1.0, 0.0]) == 1.0
    # Questions that do not differ add nothing.
    assert paired_test([0.0] * 5 + [0.3] * 50, [1.0] * 5 + [0.3] * 50) == 2 / 2**5


def test_random_flips_agree_with_all_flips() -> None:
    rng = np.random.default_rng(5)
    first, second = rng.random((2, 12))
    exact = paired_test(first, second)
    sampled = paired_test(first, second, n_permutations=4_000)
    assert exact != sampled
    assert sampled == pytest.approx(exact, abs=0.03)


def test_the_test_does_not_care_which_system_is_first() -> None:
    first, second = np.random.default_rng(0).random((2, 10))
    assert paired_test(first, second) == paired_test(second, first)


def test_systems_that_do_not_differ_have_p_1() -> None:
    assert paired_test([0.1, 0.2], [0.1, 0.2]) == 1.0
    assert paired_test([], []) == 1.0
    assert paired_test([0.1 + 0.2] * 30, [0.3] * 30) == 1.0


def test_p_is_never_0() -> None:
    assert paired_test([0.0] * 200, [1.0] * 200, n_permutations=100) == 1 / 101


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == [0.03, 0.06, 0.06, 0.02]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_holm_keeps_families_of_true_nulls_quiet() -> None:
    rng = np.random.default_rng(3)
    wrong = sum(min(holm(rng.random(5).tolist())) <= 0.05 for _ in range(2_000))
    assert wrong / 2_000 <= 0.065


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bootstrap_intervals([float("nan")]), "NaN"),
        (lambda: bootstrap_intervals([1.0], confidence=1.0), "confidence"),
        (lambda: bootstrap_intervals([1.0], n_resamples=0), "n_resamples"),
        (lambda: paired_test([1.0], [1.0, 2.0]), "equally long"),
        (lambda: paired_test([float("inf")], [1.0]), "infinite"),
        (lambda: paired_test([1.0], [2.0], n_permutations=0), "n_permutations"),
        (lambda: holm([1.1]), "between 0 and 1"),
        (lambda: holm([float("nan")]), "between 0 and 1"),
    ],
)
def test_what_cannot_be_computed_is_refused(call, says: str) -> None:
    with pytest.raises(EvaluationError, match=says):
        call()
