"""Which format a document is in, and its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Literal

from llama_index_hybrid_pack.chunking.blocks import ParsedText
from llama_index_hybrid_pack.chunking.markdown import parse_markdown
from llama_index_hybrid_pack.chunking.plain_text import parse_plain_text

#: Formats that can be read.
Format = Literal["markdown", "text"]

#: Ends of file names → format.
SUFFIXES: Mapping[str, Format] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdown": "markdown",
    ".mkd": "markdown",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
}
_MIME_TYPES: Mapping[str, Format] = {
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/plain": "text",
}
_NAME_KEYS = ("file_name", "file_path", "filename", "source")
_MIME_KEYS = ("mimetype", "mime_type", "file_type")


def detect_format(metadata: Mapping[str, object]) -> Format:
    """Tell a document's format by its metadata.

    Args:
        metadata: The document's metadata; ``file_name`` or ``file_path`` decide by their end,
            else ``mimetype`` or LlamaIndex's ``file_type``.

    Returns:
        The format; Markdown when nothing tells, because plain paragraphs are Markdown too.

    Example:
        >>> detect_format({"file_name": "notes.TXT"})
        'text'
    """
    for key in _NAME_KEYS:
        suffix = PurePosixPath(str(metadata.get(key, ""))).suffix.lower()
        if suffix in SUFFIXES:
            return SUFFIXES[suffix]
    for key in _MIME_KEYS:
        mime_type = str(metadata.get(key, "")).split(";")[0].strip().lower()
        if mime_type in _MIME_TYPES:
            return _MIME_TYPES[mime_type]
    return "markdown"


def parse_text(text: str, text_format: Format, *, front_matter: bool) -> ParsedText:
    """Read a text in a known format into blocks.

    Args:
        text: The text.
        text_format: Its format.
        front_matter: Whether the text begins where its document begins, so that a format that
            knows front matter looks for it.

    Returns:
        Blocks and the metadata that the text states about itself.
    """
    readers: Mapping[Format, Callable[[], ParsedText]] = {
        "markdown": lambda: parse_markdown(text, front_matter=front_matter),
        "text": lambda: parse_plain_text(text),
    }
    return readers[text_format]()
