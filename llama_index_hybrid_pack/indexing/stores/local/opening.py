"""The opening of a store's folder, and the making of a new one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llama_index_hybrid_pack.errors import StoreError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import FieldType, facets_fingerprint
from llama_index_hybrid_pack.indexing.stores.local.engine import (
    DENSE_FOLDER,
    LEXICAL_FOLDER,
    Engine,
)
from llama_index_hybrid_pack.indexing.stores.local.failures import translated
from llama_index_hybrid_pack.indexing.stores.local.lock import WriteLock
from llama_index_hybrid_pack.indexing.stores.local.settings import Settings, stored_schema
from llama_index_hybrid_pack.indexing.stores.local.table import FILE_NAME, Table

LOCK_NAME = "write.lock"
_OWN = (FILE_NAME, LOCK_NAME, LEXICAL_FOLDER, DENSE_FOLDER, ".")


def open_engine(
    path: Path,
    *,
    read_only: bool,
    analyzer: Analyzer | None,
    dimension: int | None,
    schema: Mapping[str, FieldType] | None,
    lock_timeout: float,
    inverted_above: int | None,
) -> Engine:
    """Open the store in a folder, and make it where there is none.

    Args:
        path: Folder of the store.
        read_only: Never write; the store must exist.
        analyzer: Must be the store's; ``None`` = the store's, the default one in a new store.
        dimension: Must be the store's; ``None`` = the store's, that of the first vector in a new
            store.
        schema: Must be the store's; ``None`` = the store's, no declared field in a new store.
        lock_timeout: Seconds to wait for another writer.
        inverted_above: Number of vectors above which inverted lists are made; ``None`` = never.

    Raises:
        StoreError: If the path is a file, a foreign folder, or (read only) holds no store.
        StoreVersionError: If a newer version of this package wrote it.
        StoreCorruptError: If the table cannot be read.
        ConfigError: If an option contradicts the store.
        EmbeddingError: If the dimension does.
    """
    lock = WriteLock(path / LOCK_NAME, timeout=lock_timeout)
    table = _open_table(
        path, lock, read_only=read_only, analyzer=analyzer, dimension=dimension, schema=schema
    )
    try:
        with translated(path):
            with table.snapshot() as snapshot:
                settings = Settings.of(snapshot)
                current = snapshot.settings()["facets"] == facets_fingerprint(settings.schema)
            settings.check(path, analyzer=analyzer, dimension=dimension, schema=schema)
            engine = Engine(path, table, lock, read_only=read_only, inverted_above=inverted_above)
        if not current:
            _renew_facets(engine, settings)
    except BaseException:
        table.close()
        raise
    return engine


def check_exists(path: Path) -> None:
    """Refuse a path that holds no store."""
    _check_path(path, must_exist=True)


def _renew_facets(engine: Engine, settings: Settings) -> None:
    if engine.read_only:
        msg = (
            f"The store at {str(engine.path)!r} was written by an older version of this package. "
            "Open it once without read_only=True to bring it up to date."
        )
        raise StoreError(msg)
    engine.write(lambda change: change.rewrite_facets(settings.schema))


def _open_table(
    path: Path,
    lock: WriteLock,
    *,
    read_only: bool,
    analyzer: Analyzer | None,
    dimension: int | None,
    schema: Mapping[str, FieldType] | None,
) -> Table:
    _check_path(path, must_exist=read_only)
    table = Table(path, read_only=read_only)
    try:
        with translated(path):
            if (path / FILE_NAME).exists() and table.check():
                return table
        if read_only:
            check_exists(path / FILE_NAME)
        with translated(path, writing=True):
            path.mkdir(parents=True, exist_ok=True)
            with lock.held():
                settings: dict[str, Any] = {
                    "dimension": dimension,
                    "analyzer": (analyzer or Analyzer()).to_dict(),
                    "schema": stored_schema(schema or {}),
                    "facets": facets_fingerprint(schema),
                }
                table.create(settings)
    except BaseException:
        table.close()
        raise
    return table


def _check_path(path: Path, *, must_exist: bool) -> None:
    if path.exists() and not path.is_dir():
        msg = f"{str(path)!r} is a file. Give a folder for the store; it is made if needed."
        raise StoreError(msg)
    if (path / FILE_NAME).exists():
        return
    if must_exist:
        raise _no_store(path)
    foreign = sorted(
        entry.name
        for entry in (path.iterdir() if path.is_dir() else ())
        if not entry.name.startswith(_OWN)
    )
    if foreign:
        msg = (
            f"{str(path)!r} is not a store: it holds {', '.join(map(repr, foreign[:5]))}. Give an "
            "empty or a new folder."
        )
        raise StoreError(msg)


def _no_store(path: Path) -> StoreError:
    return StoreError(
        f"There is no store at {str(path)!r}. Check the path; the "
        "constructor LocalHybridStore(path) makes a new store."
    )
