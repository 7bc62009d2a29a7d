"""The command line as a user runs it: a real process, the packaged model, and a hand on Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llama_index_hybrid_pack import LocalHybridStore

pytestmark = [pytest.mark.integration, pytest.mark.slow]
pytest.importorskip(
    "sentence_transformers", reason="needs pip install 'llama-index-hybrid-pack[models]'"
)

COMMAND = [sys.executable, "-m", "llama_index_hybrid_pack.cli"]
# Above the batch that is committed at once, so that an interruption falls between commits.
DOCUMENTS = 600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(DOCUMENTS):
        (docs / f"guide-{number}.md").write_text(
            f"# Guide {number}\n\nThe part {100 + number}-200 belongs to model E-{number}. "
            + "It is fitted with two screws and needs no tools. " * 6
        )
    return docs


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=280,
        check=False,
    )


def committed(store: Path) -> bool:
    """Whether another process has stored something; looked at from outside, as a reader."""
    if not (store / "pack.json").exists():
        return False
    with LocalHybridStore(path=str(store), read_only=True) as reader:
        return reader.count() > 0


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_ingest_leaves_a_store_that_a_second_one_completes(
    folder: Path, tmp_path: Path, stop: signal.Signals
) -> None:
    store = tmp_path / "store"
    process = subprocess.Popen(
        [*COMMAND, "ingest", str(folder), "--store", str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    deadline = time.monotonic() + 200
    while not committed(store):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(stop)
    _, stderr = process.communicate(timeout=120)
    if stop is signal.SIGINT:
        assert process.returncode == 130
        assert "run the same command again" in stderr
        assert "Traceback" not in stderr

    done = run("ingest", folder, "--store", store, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["nodes"] == DOCUMENTS
    assert report["embedded"] + report["unchanged"] == DOCUMENTS
    assert report["unchanged"] > 0, "what was committed before is not embedded again"
    found = run("search", "E-417", "--store", store, "--json")
    assert json.loads(found.stdout)["hits"][0]["document"] == "guide-417.md"
