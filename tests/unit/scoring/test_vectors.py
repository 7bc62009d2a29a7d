from __future__ import annotations

import numpy as np
import pytest

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.scoring.vectors import as_matrix

ROWS = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        ROWS.tolist(),
        list(ROWS),
        [*ROWS[:2].tolist(), *ROWS[2:]],
        [*ROWS[:2], *ROWS[2:].tolist()],
        tuple(map(tuple, ROWS.tolist())),
    ],
)
def test_every_form_gives_the_same_numbers(given: object) -> None:
    assert np.array_equal(as_matrix(given), ROWS)


def test_a_float_array_is_not_copied_and_others_are_converted() -> None:
    assert as_matrix(ROWS) is ROWS
    wide = ROWS.astype(np.float64)
    assert as_matrix(wide) is wide
    assert as_matrix(ROWS.astype(np.float16)).dtype == np.float64
    assert as_matrix([[1, 2], [3, 4]]).tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("rows", [[[1.0, 2.0], [1.0]], [["a"], ["b"]], [[1.0], 2.0]])
def test_rows_that_are_no_vectors_of_one_length_are_refused(rows: object) -> None:
    with pytest.raises(ConfigError, match="array of numbers"):
        as_matrix(rows)


def test_no_vectors_make_an_empty_array() -> None:
    assert as_matrix([]).size == 0
    assert as_matrix([[], []]).shape == (2, 0)
