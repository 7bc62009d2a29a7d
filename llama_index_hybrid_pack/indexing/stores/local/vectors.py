"""Unit vectors in one memory-mapped file, derived from the table.

``vectors-<epoch>.f32`` holds the vectors of the rows in ``rows-<epoch>.i64``, both in rising
order of rows, removed rows included. ``state.json`` says how much of them counts and carries a
checksum per block; what stands behind the counted part is left over from a cut-off write.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from llama_index_hybrid_pack.indexing.stores.local.files import read_state, size_of, write_state
from llama_index_hybrid_pack.indexing.stores.local.records import unit
from llama_index_hybrid_pack.indexing.stores.local.table import Generation, Snapshot

logger = logging.getLogger(__name__)

#: Vectors per block of reading, encoding and checking.
BLOCK = 4096
_FORMAT = 1


class DamagedFileError(Exception):
    """A derived file does not hold what was written to it."""


class Extent:
    """Smallest and largest value per dimension of all vectors seen, and their number."""

    def __init__(self, dimension: int) -> None:
        self.low = np.full(dimension, np.inf, dtype=np.float32)
        self.high = np.full(dimension, -np.inf, dtype=np.float32)
        self.count = 0

    def include(self, vectors: NDArray[np.float32]) -> None:
        """Widen by vectors, shape ``(n, dimension)``."""
        np.minimum(self.low, vectors.min(axis=0), out=self.low)
        np.maximum(self.high, vectors.max(axis=0), out=self.high)
        self.count += len(vectors)


class MappedVectors:
    """The counted part of the file, mapped for reading."""

    def __init__(self, folder: Path, state: dict[str, Any]) -> None:
        self.generation = Generation(*state["generation"])
        self.epoch = str(state["epoch"])
        self.checksums: list[int] = list(state["checksums"])
        count, dimension = int(state["count"]), int(state["dimension"])
        rows_file, vectors_file = _paths(folder, self.epoch)
        self.rows: NDArray[np.int64] = np.fromfile(rows_file, dtype=np.int64, count=count)
        if len(self.rows) != count or zlib.crc32(self.rows.tobytes()) != state["rows_checksum"]:
            msg = f"{rows_file.name} does not hold what state.json says"
            raise ValueError(msg)
        shape = (count, dimension)
        self.vectors: NDArray[np.float32] = np.asarray(
            np.memmap(vectors_file, dtype=np.float32, mode="r", shape=shape)
            if count
            else np.zeros(shape, dtype=np.float32)
        )
        self.extent = Extent(dimension)
        if count:
            self.extent.low[:], self.extent.high[:] = state["low"], state["high"]
            self.extent.count = count

    def blocks(self, after_row: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield the blocks that reach beyond ``after_row``, each checked.

        Raises:
            DamagedFileError: If a block is not what was written.
        """
        first = int(np.searchsorted(self.rows, after_row, side="right")) // BLOCK
        for number, start in enumerate(range(first * BLOCK, len(self.rows), BLOCK), first):
            vectors = self.vectors[start : start + BLOCK]
            if zlib.crc32(vectors.data) != self.checksums[number]:
                msg = f"Block {number} of the vector file does not match its checksum"
                raise DamagedFileError(msg)
            yield self.rows[start : start + BLOCK], vectors

    def locate(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of each row in the file, -1 where it is not there."""
        if not len(self.rows):
            return np.full(len(rows), -1, dtype=np.int64)
        found = np.searchsorted(self.rows, rows)
        found[found == len(self.rows)] = 0
        return np.where(self.rows[found] == rows, found, -1)


class VectorFile:
    """Writes and maps the file; only the holder of the write lock writes."""

    def __init__(self, folder: Path, *, store_id: str) -> None:
        self._folder = folder
        self._store_id = store_id
        #: Set by a reader that met a wrong checksum; the next write makes a new file.
        self.damaged = False

    def map(self, snapshot: Snapshot, dimension: int) -> MappedVectors | None:
        """Map what the file holds, if it belongs to this table's history."""
        state = read_state(self._folder / "state.json")
        if state is None or self.damaged:
            return None
        try:
            if (state["format"], state["store_id"], state["dimension"]) != (
                _FORMAT,
                self._store_id,
                dimension,
            ):
                return None
            if snapshot.last_row_of(Generation(*state["generation"])) is None:
                return None
            return MappedVectors(self._folder, state)
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("The vector file at %s is damaged (%s).", self._folder, error)
            return None

    def catch_up(self, snapshot: Snapshot, dimension: int, *, anew: bool = False) -> None:
        """Bring the file to the snapshot's generation.

        Args:
            snapshot: The table; the write lock must be held.
            dimension: Length of the vectors.
            anew: Write a new file without removed rows.
        """
        mapped = None if anew or self.damaged else self.map(snapshot, dimension)
        if mapped is not None and mapped.generation == snapshot.generation:
            return
        if mapped is not None and len(mapped.rows) > 2 * snapshot.count + BLOCK:
            mapped = None  # more than half of it is removed rows
        self._folder.mkdir(exist_ok=True)
        count = 0 if mapped is None else len(mapped.rows)
        epoch = uuid.uuid4().hex if mapped is None else mapped.epoch
        checksums = [] if mapped is None else mapped.checksums[: count // BLOCK]
        last = int(mapped.rows[-1]) if mapped is not None and count else 0
        rows = [] if mapped is None else [mapped.rows]
        extent = Extent(dimension) if mapped is None else mapped.extent
        rows_path, vectors_path = _paths(self._folder, epoch)
        mode = "r+b" if mapped is not None else "x+b"
        with rows_path.open(mode) as rows_file, vectors_path.open(mode) as vectors_file:
            _cut(rows_file, count * 8)
            _cut(vectors_file, count * dimension * 4)
            for block_rows, block in table_blocks(snapshot, last, dimension):
                rows_file.write(block_rows.tobytes())
                vectors_file.write(block.tobytes())
                rows.append(block_rows)
                extent.include(block)
            all_rows = np.concatenate([*rows, np.zeros(0, dtype=np.int64)])
            checksums += _checksums(vectors_file, len(checksums), len(all_rows), dimension)
            # No fsync: what a power cut takes from the file, its checksums show.
        write_state(
            self._folder / "state.json",
            {
                "format": _FORMAT,
                "store_id": self._store_id,
                "dimension": dimension,
                "epoch": epoch,
                "generation": list(snapshot.generation),
                "count": len(all_rows),
                "rows_checksum": zlib.crc32(all_rows.tobytes()),
                "checksums": checksums,
                "low": extent.low.tolist() if extent.count else [],
                "high": extent.high.tolist() if extent.count else [],
            },
        )
        self.damaged = False
        self._sweep(epoch)

    def size(self) -> int:
        """Return the bytes on disk."""
        return size_of(self._folder.glob("*"))

    def _sweep(self, epoch: str) -> None:
        for file in self._folder.glob("*-*"):
            if epoch not in file.name and not file.name.startswith("."):
                # Readers that still map it keep their view; where they block it, it goes later.
                with contextlib.suppress(OSError):
                    file.unlink()


def table_blocks(
    snapshot: Snapshot, after_row: int, dimension: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yield the rows above ``after_row`` and their unit vectors from the table."""
    cursor = snapshot.connection.execute(
        "SELECT row, vector FROM vectors WHERE row > ? ORDER BY row", (after_row,)
    )
    while found := cursor.fetchmany(BLOCK):
        rows = np.fromiter((row for row, _ in found), dtype=np.int64, count=len(found))
        joined = np.frombuffer(b"".join(vector for _, vector in found), dtype=np.float32)
        yield rows, unit(joined.reshape(len(found), dimension))


def _paths(folder: Path, epoch: str) -> tuple[Path, Path]:
    return folder / f"rows-{epoch}.i64", folder / f"vectors-{epoch}.f32"


def _cut(file: IO[bytes], size: int) -> None:
    file.truncate(size)
    file.seek(size)


def _checksums(file: IO[bytes], first_block: int, count: int, dimension: int) -> list[int]:
    """Read back the blocks from ``first_block`` on, the last of which may have grown."""
    file.flush()
    file.seek(first_block * BLOCK * dimension * 4)
    left = count - first_block * BLOCK
    found = []
    while left > 0:
        found.append(zlib.crc32(file.read(min(BLOCK, left) * dimension * 4)))
        left -= BLOCK
    return found
