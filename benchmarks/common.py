"""What every benchmark shares: CPU time side by side, and results as JSON with their machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def cpu_ms(call: Callable[[], object], *, repeat: int = 1) -> float:
    """CPU milliseconds of this process (all its threads) per call."""
    start = time.process_time()
    for _ in range(repeat):
        call()
    return (time.process_time() - start) * 1000.0 / repeat


def side_by_side(
    calls: Mapping[str, Callable[[], object]], *, rounds: int = 11, warmup: int = 1
) -> dict[str, float]:
    """Run the contenders in turns, so that noise hits all alike; median CPU ms of each."""
    for _ in range(warmup):
        for call in calls.values():
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(cpu_ms(call))
    return {name: statistics.median(values) for name, values in times.items()}


def machine(*packages: str) -> dict[str, object]:
    """What the figures depend on: processor, cores, Python and package versions."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if lines:
            model = lines[0].partition(":")[2].strip()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("llama-index-core", "numpy", *packages)},
    }


def save(name: str, figures: Mapping[str, object], *packages: str) -> Path:
    """Write ``results/NAME.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(
        json.dumps({"machine": machine(*packages), **figures}, indent=2, sort_keys=True) + "\n"
    )
    return path
