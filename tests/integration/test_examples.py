"""The scripts in examples/ run as a user would run them, and say what they are there to say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

#: Script → what its output holds, in this order; each is the point of a part of the script.
KEY_LINES = {
    "01_quickstart.py": [
        r"38 documents became \d+ passages",
        r"\[1\] (devices/hub-error-codes\.md|troubleshooting/missing-readings\.md|getting-.*)",
        r"E-504",
        r"1\. +[\d.]+ +billing/payment-failures\.md",
        r"Leg dense \(weight 0\.5\): \d+ hits",
        r"0 embedded, 0 updated, \d+ unchanged, 0 removed",
    ],
    "02_any_vector_store.py": [
        # Each leg misses a passage that the other finds; the fusion misses none.
        r"- +1 +\d+ +May an Operator mark ranges",
        r"1 +- +\d+ +A developer accidentally published",
        r"Leg dense \(weight 1\): [1-9]\d* hits",
        r"Leg bm25 \(weight 1\): \d+ hits",
        r"deleted; found by BM25 now: -",
    ],
    "03_filters.py": [
        r"two versions of the policy compete",
        r"policies/refunds-2023\.md",
        r"status != superseded[^\n]*\n(  [\d.]+  (?!policies/refunds-2023)[^\n]+\n)+",
        r"updated since June 2024",
        r"FilterError: Unknown filter field 'ctegory'\. Did you mean 'category'\?",
    ],
    "04_reranking_chain.py": [
        # Two near-copies lead until MMR keeps one of them.
        r"Fusion: 30 passages\n.*What the light says\n.*What the light says\n",
        r"LateInteractionReranker: 30 passages",
        r"ScoreThreshold: [12]?\d passages",
        r"MMRPostprocessor: 5 passages\n.*What the light says\n(?!.*What the light says)",
        r"Leg dense \(weight 0\.5\): [1-9]\d* hits",
        r"Leg bm25 \(weight 0\.5\): [1-9]\d* hits",
        r"0 passages: nothing in the help centre is near",
        r"ScoreScaleError: The cut-off 0\.5 is a probability",
    ],
    "05_evaluate.py": [
        r"BM25 +0\.\d{3}",
        r"dense +0\.\d{3}",
        r"hybrid +0\.\d{3}",
        r"n = 54 questions, matched by span; 6 unanswerable ones left out",
        r"semantic +20",
        r"on the 28 others: nDCG@10 0\.\d{3}",
    ],
}


def test_every_numbered_script_is_tested() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("[0-9]*.py")) == sorted(KEY_LINES)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.usefixtures("model_path")
@pytest.mark.parametrize("script", KEY_LINES)
def test_a_script_runs_offline_and_shows_its_point(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Warning" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "a script leaves nothing behind"
    position = 0
    for pattern in KEY_LINES[script]:
        found = re.compile(pattern).search(done.stdout, position)
        assert found, f"{pattern!r} is not in the rest of:\n{done.stdout[position:]}"
        position = found.start()
