"""Rules of the repository itself: direction of imports, public names, light import, file sizes."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import llama_index_hybrid_pack as package

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "llama_index_hybrid_pack"
PUBLIC_NAMES = ROOT / "tests" / "data" / "public_names.txt"

#: The data's way, left to right; a room imports only rooms to its left.
ROOMS = ["chunking", "indexing", "retrieval", "ranking", "answering", "evaluation"]
#: What every room may import.
SHARED = {
    "errors",
    "metadata",
    "text",
    "config",
    "observability",
    "scoring",
    "_optional",
    "_options",
}
#: These alone see everything.
COMPOSERS = {"pack", "cli", "testing", "__init__"}
#: What the shared modules themselves may import of the package.
SHARED_MAY_IMPORT = {
    "errors": set(),
    "_optional": {"errors"},
    "_options": {"errors"},
    "metadata": {"errors"},
    "text": {"errors", "_optional"},
    "scoring": {"errors", "metadata", "scoring"},
    "observability": {"errors", "metadata", "observability"},
    "config": {"errors", "metadata", "text", "scoring", "_options"},
}
HEAVY = [
    "torch",
    "transformers",
    "sentence_transformers",
    "faiss",
    "tantivy",
    "weaviate",
    "ragas",
    "ranx",
    "matplotlib",
    "nltk",
    "bm25s",
]


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the rooms of this package that a file imports, anywhere in it, with line numbers."""
    prefix = "llama_index_hybrid_pack"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide the direction"
            module = node.module or ""
            bare = module == prefix
            names = [f"{module}.{alias.name}" for alias in node.names] if bare else [module]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == prefix and len(parts) > 1:
                yield parts[1], node.lineno


def allowed(room: str) -> set[str]:
    if room in SHARED_MAY_IMPORT:
        return SHARED_MAY_IMPORT[room]
    return SHARED | {room} | set(ROOMS[: ROOMS.index(room)])


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_to_its_left(path: Path) -> None:
    room = room_of(path)
    if room in COMPOSERS:
        return
    assert room in ROOMS or room in SHARED, f"{room} is no room of the design"
    wrong = [
        f"line {line}: {name}" for name, line in imported_rooms(path) if name not in allowed(room)
    ]
    assert not wrong, f"{path.name} in {room} imports to its right: {wrong}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_stays_small_enough_to_read(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 400, f"{path.relative_to(ROOT)} has {lines} lines: it wants to be two files"


def test_public_names_are_the_listed_ones() -> None:
    listed = PUBLIC_NAMES.read_text(encoding="utf-8").split()
    assert sorted(package.__all__) == listed, (
        "The public names changed. If that is meant, write them to tests/data/public_names.txt "
        "and to the changelog."
    )


@pytest.mark.parametrize("name", PUBLIC_NAMES.read_text(encoding="utf-8").split())
def test_every_public_name_loads_and_is_documented(name: str) -> None:
    value = getattr(package, name)
    assert value.__doc__, f"{name} has no docstring"
    assert getattr(importlib.import_module("llama_index_hybrid_pack"), name) is value


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


@pytest.mark.parametrize(
    "statement",
    [
        "import llama_index_hybrid_pack",
        "from llama_index_hybrid_pack import HybridPack, StructureNodeParser, LocalHybridStore",
        "import llama_index_hybrid_pack.cli",
    ],
)
def test_import_is_light(statement: str) -> None:
    code = f"import sys; {statement}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == [], f"{statement!r} loads {done.stdout.split()}"


def test_typed_marker_is_there() -> None:
    assert (SOURCE / "py.typed").is_file()


def test_constraints_name_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            assert "://" not in line
            assert "==" in line, f"{line!r} is no exact version"
