"""Reading a folder of Markdown and text files, with a reason for every file that is left out."""

from __future__ import annotations

import codecs
import datetime as dt
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from llama_index.core.schema import Document
from tqdm import tqdm

from llama_index_hybrid_pack.chunking.formats import SUFFIXES
from llama_index_hybrid_pack.errors import ConfigError, DocumentError

#: Names of the files that are read by default.
DEFAULT_PATTERNS = tuple(f"*{suffix}" for suffix in SUFFIXES)
#: Metadata that is for people and filters; it says nothing that a question asks for.
_SILENT_KEYS = ["file_name", "file_path", "file_size", "last_modified_date"]
_MEGABYTE = 1_000_000
#: Byte order mark → encoding; UTF-32's begins with UTF-16's, so it stands first.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class SkippedFile(NamedTuple):
    """A file that was not read.

    Args:
        path: Path relative to the folder, with forward slashes.
        reason: Why it was not read and what can be done about it.
    """

    path: str
    reason: str


class FolderContents(NamedTuple):
    """What a folder holds.

    Args:
        documents: One document per readable file, ordered by path.
        skipped: Every other file that was looked at, ordered by path.
    """

    documents: list[Document]
    skipped: list[SkippedFile]


class _Found(NamedTuple):
    """A directory entry: its path on disk, its name as text, and why it cannot be read."""

    path: str
    name: str
    problem: str | None = None


def read_folder(
    path: str | os.PathLike[str],
    *,
    patterns: Sequence[str] = DEFAULT_PATTERNS,
    encoding: str = "utf-8",
    max_file_mb: float = 64.0,
    include_hidden: bool = False,
    show_progress: bool = False,
) -> FolderContents:
    """Read every matching file below a folder into a document.

    Use it to get documents from disk for :class:`StructureNodeParser` or ``HybridPack``. One bad
    file never stops the others: it is listed with the reason. Links to folders are not followed,
    so loops do no harm.

    Args:
        path: The folder.
        patterns: Shell patterns, matched without regard to case against a file's name, or against
            its relative path when the pattern holds a slash. Default: Markdown and text files.
        encoding: Encoding of files without a byte order mark. Files that begin with the mark of
            UTF-8, UTF-16 or UTF-32 are read by it.
        max_file_mb: Largest file in megabytes (1 MB = 1,000,000 bytes), above 0. Default 64: a
            larger text file is far more often a dump than a document.
        include_hidden: Whether to read files and folders whose name begins with a dot.
        show_progress: Whether to show a progress bar, when the output is a terminal.

    Returns:
        The documents, and the files that were not read. A document's id is its path relative to
        the folder; its metadata holds ``file_name``, ``file_path``, ``file_size`` (bytes) and
        ``last_modified_date`` (ISO, UTC), none of them embedded or shown to the LLM.

    Raises:
        DocumentError: If the folder is missing, is none, cannot be listed, or holds no file that
            matches.
        ConfigError: If an option is out of range or the encoding is unknown.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "refunds.md").write_text("# Refunds")
        ...     _ = (Path(folder) / "empty.md").write_text("")
        ...     documents, skipped = read_folder(folder)
        >>> documents[0].id_, skipped[0].path
        ('refunds.md', 'empty.md')
    """
    _check_options(patterns, encoding, max_file_mb)
    root = os.fspath(path)
    found = sorted(_walk(root, include_hidden=include_hidden), key=lambda entry: entry.name)
    matching = [entry for entry in found if _matches(entry.name, patterns)]
    if not matching:
        others = f"{len(found)} other files" if found else "no files"
        msg = (
            f"Nothing to read in {root!r}: it holds {others}, and none matches "
            f"{', '.join(patterns)}. Give the folder of the documents, or other patterns."
        )
        raise DocumentError(msg)
    wanted = set(matching)
    documents = []
    skipped = [
        SkippedFile(entry.name, f"its name matches none of {', '.join(patterns)}")
        for entry in found
        if entry not in wanted
    ]
    progress = tqdm(matching, desc="Reading files", disable=None if show_progress else True)
    for entry in progress:
        try:
            documents.append(_read(entry, encoding=encoding, limit=int(max_file_mb * _MEGABYTE)))
        except DocumentError as problem:
            skipped.append(SkippedFile(entry.name, str(problem)))
    return FolderContents(documents, sorted(skipped))


def _check_options(patterns: Sequence[str], encoding: str, max_file_mb: float) -> None:
    if isinstance(patterns, str) or not patterns:
        msg = f"patterns is {patterns!r}; give a list of shell patterns, for example ['*.md']."
        raise ConfigError(msg)
    if not max_file_mb > 0:
        msg = f"max_file_mb is {max_file_mb}; give a number of megabytes above 0."
        raise ConfigError(msg)
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        msg = f"Unknown encoding {encoding!r}; give one that Python knows, for example 'cp1252'."
        raise ConfigError(msg) from error


def _walk(root: str, *, include_hidden: bool) -> Iterator[_Found]:
    """Yield every file below ``root``, and every folder that cannot be entered."""
    try:
        mode = os.stat(root).st_mode  # noqa: PTH116
    except OSError as error:
        msg = f"Cannot read the folder {root!r}: {_reason(error)}. Give an existing folder."
        raise DocumentError(msg) from error
    if not stat.S_ISDIR(mode):
        msg = f"{root!r} is not a folder. Give the folder that holds the documents."
        raise DocumentError(msg)
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError as error:
            if folder == root:
                msg = f"Cannot list the folder {root!r}: {_reason(error)}."
                raise DocumentError(msg) from error
            yield _Found(folder, _relative(folder, root), f"cannot be listed: {_reason(error)}")
            continue
        for entry in entries:
            if entry.name.startswith(".") and not include_hidden:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_symlink() and Path(entry.path).is_dir():
                name = _relative(entry.path, root)
                yield _Found(entry.path, name, "a link to a folder; links are not followed")
            else:
                yield _Found(entry.path, _relative(entry.path, root))


def _relative(path: str, root: str) -> str:
    """Return a path below ``root`` with forward slashes, as text that can be stored anywhere."""
    name = Path(os.path.relpath(path, root)).as_posix()
    # Bytes of a name that are no UTF-8 are held as surrogates, which no database takes.
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    lowered = name.lower()
    last = lowered.rsplit("/", 1)[-1]
    return any(
        fnmatch(lowered if "/" in pattern else last, pattern.lower()) for pattern in patterns
    )


def _read(entry: _Found, *, encoding: str, limit: int) -> Document:
    """Return the document of a file; a ``DocumentError`` says why there is none."""
    if entry.problem:
        raise DocumentError(entry.problem)
    content, modified = _load(entry.path, limit)
    text = _decode(content, encoding)
    if not text.strip():
        raise DocumentError("holds white space only" if text else "empty")
    return Document(
        id_=entry.name,
        text=text,
        metadata={
            "file_name": entry.name.rsplit("/", 1)[-1],
            "file_path": entry.name,
            "file_size": len(content),
            "last_modified_date": modified.isoformat(timespec="seconds"),
        },
        excluded_embed_metadata_keys=list(_SILENT_KEYS),
        excluded_llm_metadata_keys=list(_SILENT_KEYS),
    )


def _load(path: str, limit: int) -> tuple[bytes, dt.datetime]:
    """Return a file's bytes and when it was changed."""
    try:
        state = os.stat(path)  # noqa: PTH116
        if not stat.S_ISREG(state.st_mode):
            raise DocumentError("not a regular file")  # noqa: EM101
        if state.st_size > limit:
            msg = (
                f"{state.st_size / _MEGABYTE:.1f} MB is over the limit of "
                f"{limit / _MEGABYTE:g} MB (max_file_mb)"
            )
            raise DocumentError(msg)
        content = Path(path).read_bytes()
    except OSError as error:
        msg = f"cannot be read: {_reason(error)}"
        raise DocumentError(msg) from error
    return content, dt.datetime.fromtimestamp(state.st_mtime, tz=dt.timezone.utc)


def _decode(content: bytes, encoding: str) -> str:
    """Return the text of a file's bytes."""
    marked = next((name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), None)
    chosen = marked or encoding
    wide = codecs.lookup(chosen).name.startswith(("utf-16", "utf-32"))
    zero = -1 if wide else content.find(b"\0")
    if zero >= 0:
        msg = (
            f"a binary file: byte {zero} is NUL (text in UTF-16 without a byte order mark can be "
            "read with encoding='utf-16-le')"
        )
        raise DocumentError(msg)
    try:
        return content.decode(chosen)
    except UnicodeDecodeError as error:
        msg = (
            f"not valid {chosen}: byte {error.start} is 0x{content[error.start]:02x} "
            f"({error.reason}); give its encoding, for example encoding='cp1252', or convert it"
        )
        raise DocumentError(msg) from error
    except (LookupError, UnicodeError) as error:  # a codec that gives no text, or its own error
        msg = f"cannot be decoded as {chosen}: {error}"
        raise DocumentError(msg) from error


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "its links lead in a circle"
    return (error.strerror or str(error)).lower()
