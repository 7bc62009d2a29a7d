"""Runs every benchmark, one after the other, and writes the tables of README and docs.

``python -m benchmarks.run [--quick] [NAME ...]``. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ["imports", "parser", "fusion", "ranking", "bm25", "store", "quality"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, minutes")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(BENCHMARKS)}; all if none")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    failed = []
    for name in arguments.names or BENCHMARKS:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] * arguments.quick)]
        if subprocess.run(command, check=False, cwd=ROOT).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if not arguments.quick:
        subprocess.run([sys.executable, "-m", "benchmarks.tables"], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
