"""The header that is shown again before the later rows of a table that was cut."""

from __future__ import annotations

import re

_CELL_BORDER = re.compile(r"(?<!\\)\|")
_SEPARATOR_CELL = re.compile(r"\s*:?-+:?\s*")
#: Characters per cell that are tried in turn when a header takes too much of the budget.
CELL_WIDTHS = (32, 16, 8, 4)


class TableHeader:
    """Header lines of a table and what they cost.

    Args:
        text: The lines as they are shown before the rows.
        tokens: Tokens of the text and of the line break behind it.
    """

    __slots__ = ("text", "tokens")

    def __init__(self, text: str, tokens: int) -> None:
        self.text = text
        self.tokens = tokens


def shortened_header(header: str, width: int) -> str:
    """Return header lines whose cells have at most ``width`` characters."""
    lines = []
    for line in header.splitlines():
        cells = _CELL_BORDER.split(line.strip().strip("|"))
        if all(_SEPARATOR_CELL.fullmatch(cell) for cell in cells):
            cells = ["---"] * len(cells)
        else:
            cells = [cell.strip() for cell in cells]
            cells = [c if len(c) <= width else f"{c[: width - 1].rstrip()}…" for c in cells]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
