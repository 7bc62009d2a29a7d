"""What stands in front of a chunk when it is embedded, and how much of the budget that takes.

LlamaIndex embeds ``text_template`` filled with the visible metadata and the text. The rule for
metadata that is long: the body keeps at least half of the budget. The heading path goes first,
shortened from the document's side (``… > Refunds``) when it must be; then the document's own
entries in their order, each as long as it fits. What does not fit is excluded from the embedded
text of that node. It stays in the node's metadata, in the LLM's text and in filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from llama_index_hybrid_pack.chunking.drafts import Limits
from llama_index_hybrid_pack.chunking.measuring import Measure
from llama_index_hybrid_pack.chunking.sections import Path
from llama_index_hybrid_pack.metadata import BLOCK_KIND_KEY, HEADING_KEY, HEADING_SEPARATOR

_ELLIPSIS = "…"
#: Tokens that metadata and text may make together and not apart.
_JOIN = 1


@dataclass(frozen=True, slots=True)
class Templates:
    """The formats that a document hands down to its nodes.

    Args:
        text: LlamaIndex's ``text_template``.
        metadata: LlamaIndex's ``metadata_template``.
        separator: LlamaIndex's ``metadata_separator``.
    """

    text: str
    metadata: str
    separator: str

    def line(self, key: str, value: object) -> str:
        """Return one metadata entry as it is shown."""
        return self.metadata.format(key=key, value=str(value))

    def prefix(self, metadata: str) -> str:
        """Return what is shown around an empty text."""
        return self.text.format(metadata_str=metadata, content="")

    def with_table_header(self, header: str) -> str:
        """Return a text template that shows ``header`` directly before the text.

        Args:
            header: Header lines of a table, without a line break at the end.

        Returns:
            A template; the one given when it does not show the text.
        """
        literal = f"{header}\n".replace("{", "{{").replace("}", "}}")
        parts = []
        for text, name, spec, conversion in Formatter().parse(self.text):
            parts.append(text.replace("{", "{{").replace("}", "}}"))
            if name is None:
                continue
            if name == "content":
                parts.append(literal)
            converted = f"!{conversion}" if conversion else ""
            parts.append(f"{{{name}{converted}{f':{spec}' if spec else ''}}}")
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class SectionText:
    """What nodes under one heading path show besides their text.

    Args:
        heading: Value of the readable heading; ``None`` when there is no heading above.
        hidden: Metadata keys that do not fit and are excluded from the embedded text.
        limits: Tokens left for the chunk's own text.
    """

    heading: str | None
    hidden: tuple[str, ...]
    limits: Limits


class EmbedText:
    """Shares the budget between metadata and text, for the nodes of one document.

    Args:
        metadata: The document's entries that its nodes take over, in order.
        excluded: Keys that are never shown in the embedded text.
        templates: The document's formats.
        measure: Counts tokens.
        budget: Tokens of the embedded text, special tokens already taken off.
    """

    def __init__(
        self,
        *,
        metadata: Mapping[str, object],
        excluded: Iterable[str],
        templates: Templates,
        measure: Measure,
        budget: int,
    ) -> None:
        hidden = set(excluded)
        self._templates = templates
        self._measure = measure
        self._budget = budget
        self._most = budget // 2
        self._show_heading = HEADING_KEY not in hidden
        self._lines = {
            key: templates.line(key, value) + templates.separator
            for key, value in metadata.items()
            if key not in hidden and key != HEADING_KEY
        }
        whole = "".join(self._lines.values())
        self._own_tokens, self._empty_tokens, self._kind_tokens = self._count(
            [whole, templates.prefix(""), templates.prefix(templates.line(BLOCK_KIND_KEY, "table"))]
        )
        self._heading_tokens: dict[Path, int] = {(): self._empty_tokens}
        self._sections: dict[Path, SectionText] = {}
        self._line_tokens: dict[str, int] | None = None

    def prepare(self, paths: Iterable[Path]) -> None:
        """Count the headings of many paths at once."""
        new = [path for path in dict.fromkeys(paths) if path not in self._heading_tokens]
        if self._show_heading:
            counts = self._count([self._heading_prefix(_readable(path)) for path in new])
        else:
            counts = [self._empty_tokens] * len(new)
        self._heading_tokens.update(zip(new, counts, strict=True))

    def limits(self, path: Path) -> Limits:
        """Return the tokens left for text under ``path``."""
        return self.section(path).limits

    def section(self, path: Path) -> SectionText:
        """Return what is shown under ``path`` and what is left for text."""
        found = self._sections.get(path)
        if found is None:
            if path not in self._heading_tokens:
                self.prepare([path])
            found = self._sections[path] = self._share(path)
        return found

    def _share(self, path: Path) -> SectionText:
        heading = _readable(path) if path else None
        shown = bool(self._lines) or (bool(path) and self._show_heading)
        if not shown:
            overhead = min(self._kind_tokens + _JOIN, self._budget)
            return SectionText(heading, (), Limits(self._budget, overhead))
        used = self._heading_tokens[path]
        if used + self._own_tokens <= self._most:
            return self._section(heading, (), used + self._own_tokens)
        hidden: list[str] = []
        if used > self._most and path and self._show_heading:
            heading, used = self._shortened(path)
            if used > self._most:
                heading, used = _readable(path), self._empty_tokens
                hidden.append(HEADING_KEY)
        for key, tokens in self._tokens_by_key().items():
            if used + tokens <= self._most:
                used += tokens
            else:
                hidden.append(key)
        nothing = len(hidden) == len(self._lines) + (bool(path) and self._show_heading)
        return self._section(heading, tuple(hidden), 0 if nothing else used)

    def _section(self, heading: str | None, hidden: tuple[str, ...], used: int) -> SectionText:
        if not used:
            return SectionText(
                heading, hidden, Limits(self._budget, min(self._kind_tokens + _JOIN, self._budget))
            )
        return SectionText(heading, hidden, Limits(max(1, self._budget - used - _JOIN)))

    def _shortened(self, path: Path) -> tuple[str, int]:
        """Return the readable path without its first headings, so that it fits if it can."""
        candidates = [
            HEADING_SEPARATOR.join((_ELLIPSIS, *path[first:])) for first in range(1, len(path))
        ]
        counts = self._count([self._heading_prefix(text) for text in candidates])
        for text, tokens in zip(candidates, counts, strict=True):
            if tokens <= self._most:
                return text, tokens
        return _readable(path), self._most + 1

    def _heading_prefix(self, text: str) -> str:
        return self._templates.prefix(self._templates.line(HEADING_KEY, text))

    def _tokens_by_key(self) -> dict[str, int]:
        if self._line_tokens is None:
            counts = self._count(list(self._lines.values()))
            self._line_tokens = dict(zip(self._lines, counts, strict=True))
        return self._line_tokens

    def _count(self, texts: Sequence[str]) -> list[int]:
        return self._measure.count_texts(texts, self._most)


def _readable(path: Path) -> str:
    return HEADING_SEPARATOR.join(path)
