"""Writes constraints.txt from environments in which the suite has passed.

``python tools/constraints.py PYTHON310 PYTHON311`` with the interpreters of two environments that
were made by ``make test CONSTRAINTS=`` on Python 3.10 and on a newer Python. Versions that differ
get a marker: libraries drop old Pythons at different times.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEADER = """\
# Exact versions that the suite passed with; used by the Makefile, not by users' installs.
# Names and versions only. Made by tools/constraints.py.
"""
TARGET = Path(__file__).resolve().parents[1] / "constraints.txt"


def installed(python: str) -> dict[str, str]:
    """Return name → version of what an environment holds, this package and pip left out."""
    command = [python, "-m", "pip", "list", "--format=freeze", "--exclude-editable"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    pairs = (line.split("==") for line in lines if "==" in line)
    skipped = {"pip", "setuptools", "llama-index-hybrid-pack"}
    return {name.lower(): version for name, version in pairs if name.lower() not in skipped}


def main() -> None:
    """Compare the two environments and write the file."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    old, new = installed(sys.argv[1]), installed(sys.argv[2])
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            lines.append(f"{name}=={old[name]}")
            continue
        if name in old:
            lines.append(f'{name}=={old[name]}; python_version < "3.11"')
        if name in new:
            lines.append(f'{name}=={new[name]}; python_version >= "3.11"')
    TARGET.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
