"""Reading folders: what is read, what is skipped, and why."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path

import pytest
from llama_index.core.schema import MetadataMode

from llama_index_hybrid_pack.chunking.reader import read_folder
from llama_index_hybrid_pack.errors import ConfigError, DocumentError


def reasons(folder: Path, **options: object) -> dict[str, str]:
    return dict(read_folder(folder, **options).skipped)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.md").write_text("# Good\n\ntext")
    return tmp_path


def test_documents_are_named_by_their_path_and_sorted(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "B.MD").write_text("b")
    (folder / "a.txt").write_text("a")
    documents, skipped = read_folder(folder)
    assert [d.id_ for d in documents] == ["a.txt", "good.md", "sub/B.MD"]
    assert skipped == []
    document = documents[2]
    assert document.metadata["file_name"] == "B.MD"
    assert document.metadata["file_path"] == "sub/B.MD"
    assert document.metadata["file_size"] == 1
    assert document.metadata["last_modified_date"].endswith("+00:00")
    assert document.get_content(MetadataMode.EMBED) == "b"
    assert document.get_metadata_str(MetadataMode.EMBED) == ""
    assert document.get_metadata_str(MetadataMode.LLM) == ""


def test_reading_again_gives_the_same(folder: Path) -> None:
    assert read_folder(folder) == read_folder(str(folder))


def test_line_ends_are_kept(folder: Path) -> None:
    (folder / "crlf.md").write_bytes(b"# A\r\n\r\ntext\rmore\r\n")
    assert read_folder(folder).documents[0].text == "# A\r\n\r\ntext\rmore\r\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.md", b"", "empty"),
        ("blank.md", b" \n\t\n", "white space only"),
        ("binary.md", b"\x89PNG\r\n\x00\x01", "NUL"),
        ("latin.md", "caf\xe9".encode("latin-1"), "byte 3 is 0xe9"),
        ("half.md", b"abc\xf0\x9f", "encoding='cp1252'"),
        ("odd.md", codecs.BOM_UTF16_LE + b"a", "utf-16"),
        ("wide.md", "no mark".encode("utf-16-le"), "encoding='utf-16-le'"),
        ("image.png", b"x", "matches none of"),
    ],
)
def test_a_bad_file_is_skipped_with_its_reason(
    folder: Path, name: str, content: bytes, reason: str
) -> None:
    (folder / name).write_bytes(content)
    found = read_folder(folder)
    assert [d.id_ for d in found.documents] == ["good.md"]
    assert [item.path for item in found.skipped] == [name]
    assert reason in found.skipped[0].reason


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_tells_the_encoding(folder: Path, encoding: str) -> None:
    (folder / "marked.md").write_bytes("# Größe 日本".encode(encoding))
    documents = {d.id_: d for d in read_folder(folder).documents}
    assert documents["marked.md"].text == "# Größe 日本"


def test_big_endian_marks(folder: Path) -> None:
    (folder / "be.md").write_bytes(codecs.BOM_UTF16_BE + "# é".encode("utf-16-be"))
    assert read_folder(folder).documents[0].text == "# é"


def test_the_encoding_can_be_given(folder: Path) -> None:
    (folder / "latin.md").write_bytes("café".encode("cp1252"))
    (folder / "wide.txt").write_bytes("café".encode("utf-16-le"))
    assert read_folder(folder, encoding="cp1252").documents[1].text == "café"
    found = read_folder(folder, patterns=["wide.txt"], encoding="utf-16-le")
    assert found.documents[0].text == "café"


def test_large_files_are_skipped_at_the_limit(folder: Path) -> None:
    (folder / "large.txt").write_text("word " * 400)
    assert "max_file_mb" in reasons(folder, max_file_mb=0.001)["large.txt"]
    assert reasons(folder, max_file_mb=0.002) == {}


def test_a_file_of_fifty_megabytes_is_read_by_default(folder: Path) -> None:
    (folder / "big.txt").write_bytes(b"Some prose. " * (50_000_000 // 12))
    documents, skipped = read_folder(folder)
    assert [d.id_ for d in documents] == ["big.txt", "good.md"]
    assert skipped == []


def test_hidden_files_are_left_alone(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "notes.md").write_text("x")
    (folder / ".hidden.md").write_text("x")
    assert [d.id_ for d in read_folder(folder).documents] == ["good.md"]
    found = read_folder(folder, include_hidden=True)
    assert [d.id_ for d in found.documents] == [".git/notes.md", ".hidden.md", "good.md"]


def test_patterns_choose_names_or_paths(folder: Path) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "x.rst").write_text("x")
    (folder / "docs" / "y.md").write_text("y")
    found = read_folder(folder, patterns=["docs/*.MD", "*.rst"])
    assert [d.id_ for d in found.documents] == ["docs/x.rst", "docs/y.md"]
    assert [item.path for item in found.skipped] == ["good.md"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs links and bytes in names")
def test_links_that_lead_in_circles_or_nowhere_do_no_harm(folder: Path) -> None:
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "self.md").symlink_to(folder / "self.md")
    (folder / "gone.md").symlink_to(folder / "nothing.md")
    (folder / "link.md").symlink_to(folder / "good.md")
    os.mkfifo(folder / "pipe.md")
    documents, skipped = read_folder(folder, patterns=["*.md", "loop"])
    assert [d.id_ for d in documents] == ["good.md", "link.md"]
    found = dict(skipped)
    assert "links are not followed" in found["loop"]
    assert "circle" in found["self.md"]
    assert "no such file" in found["gone.md"]
    assert "not a regular file" in found["pipe.md"]


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names are text there")
def test_names_that_are_no_utf8_can_be_stored(folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9.md")).write_text("x")
    documents, _ = read_folder(folder)
    assert [d.id_ for d in documents] == ["caf\\xe9.md", "good.md"]
    assert documents[0].id_.encode("utf-8")


def test_a_file_that_cannot_be_read_is_skipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "secret.md").write_text("x")
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "secret.md":
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert reasons(folder) == {"secret.md": "cannot be read: permission denied"}


def test_a_folder_that_cannot_be_listed_is_skipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "closed.md").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed.md"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert reasons(folder) == {"closed.md": "cannot be listed: permission denied"}


def test_a_root_that_cannot_be_listed_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DocumentError, match="permission denied"):
        read_folder(folder)


def test_an_encoding_that_gives_no_text_is_a_reason(folder: Path) -> None:
    assert "not a text encoding" in reasons(folder, encoding="hex")["good.md"]


@pytest.mark.parametrize("kind", ["missing", "a file", "empty", "nothing that matches"])
def test_a_folder_without_documents_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "docs"
    if kind == "a file":
        path.write_text("x")
    elif kind != "missing":
        path.mkdir()
    if kind == "nothing that matches":
        (path / "image.png").write_bytes(b"x")
    with pytest.raises(DocumentError, match="docs"):
        read_folder(path)


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "utf-9"},
        {"max_file_mb": 0},
        {"max_file_mb": float("nan")},
        {"patterns": "*.md"},
        {"patterns": []},
    ],
)
def test_bad_options_are_named(folder: Path, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        read_folder(folder, **options)  # type: ignore[arg-type]
