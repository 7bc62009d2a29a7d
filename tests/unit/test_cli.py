"""The command line without a model: what it reads, what it refuses, and how it says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from llama_index.core import Document
from typer.testing import CliRunner

from llama_index_hybrid_pack import HybridPack, cli
from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.testing.fakes import HashEmbedding, ScriptedLLM

runner = CliRunner()


@pytest.fixture(autouse=True)
def fake_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_model", lambda name: HashEmbedding(model_name=name or "hash"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "refunds.md").write_text("---\nteam: billing\n---\n# Refunds\n\nRefunds take ten days.")
    (docs / "codes.md").write_text("# Codes\n\nE-504: the gateway timed out.")
    (docs / "photo.md").write_bytes(b"\x00\x01\x02")
    return docs


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "store"
    done = runner.invoke(cli.app, ["ingest", str(folder), "--store", str(path)])
    assert done.exit_code == 0, done.output
    return path


def run(*arguments: str) -> str:
    done = runner.invoke(cli.app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_ingest_reports_what_it_did_and_what_it_left_out(folder: Path, tmp_path: Path) -> None:
    done = runner.invoke(cli.app, ["ingest", str(folder), "--store", str(tmp_path / "s")])
    assert "2 documents, 2 passages: 2 embedded" in done.stdout
    assert "photo.md" in done.stderr
    again = json.loads(run("ingest", str(folder), "--store", str(tmp_path / "s"), "--json"))
    assert (again["embedded"], again["unchanged"]) == (0, 2)
    assert again["skipped"][0]["path"] == "photo.md"


def test_another_encoding_is_one_option_away(folder: Path, tmp_path: Path) -> None:
    (folder / "umlaut.txt").write_bytes("Rückgabe im Café".encode("cp1252"))
    done = runner.invoke(cli.app, ["ingest", str(folder), "--store", str(tmp_path / "s")])
    assert "umlaut.txt" in done.stderr
    store = str(tmp_path / "s2")
    done = runner.invoke(cli.app, ["ingest", str(folder), "--store", store, "--encoding", "cp1252"])
    assert "umlaut.txt" not in done.stderr
    assert "Rückgabe im Café" in run("search", "Cafe", "--store", store)


def test_search_shows_passages_and_their_way(store: Path) -> None:
    plain = run("search", "E-504", "--store", str(store))
    assert "1. codes.md, Codes" in plain
    explained = run("search", "E-504", "--store", str(store), "--explain")
    assert "bm25" in explained
    assert "fusion" in explained


def test_search_as_json_is_json_alone(store: Path) -> None:
    found = json.loads(run("search", "E-504", "--store", str(store), "--json", "--explain"))
    assert found["hits"][0]["document"] == "codes.md"
    assert found["hits"][0]["stages"]["bm25"]["rank"] == 1
    assert found["trace"]["legs"]


def test_filters_narrow_the_search(store: Path) -> None:
    found = json.loads(
        run("search", "gateway", "--store", str(store), "--json", "--filter", "team=billing")
    )
    assert [hit["document"] for hit in found["hits"]] == ["refunds.md"]


def test_ask_without_an_llm_shows_the_passages(store: Path) -> None:
    assert "Refunds take ten days." in run("ask", "refunds?", "--store", str(store))


def test_ask_with_an_llm_shows_answer_and_sources(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "load_llm", lambda *_: ScriptedLLM(answers=["Ten days."]))
    shown = run("ask", "refunds?", "--store", str(store), "--llm", "x:Y")
    assert shown.startswith("Ten days.")
    assert "[1] refunds.md, Refunds" in shown


def test_info_describes_the_store(store: Path) -> None:
    assert json.loads(run("info", "--store", str(store)))["nodes"] == 2


def test_options_can_be_printed_edited_and_used(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text(run("options").replace("top_n: 5", "top_n: 1"))
    store = str(tmp_path / "s")
    run("ingest", str(folder), "--store", store, "--options", str(file))
    assert HybridPack.open(store, embed_model=HashEmbedding()).options.ranking.top_n == 1


@pytest.mark.slow
def test_eval_measures_every_step_of_the_funnel(store: Path, tmp_path: Path) -> None:
    golden = tmp_path / "golden.jsonl"
    golden.write_text(
        '{"id": "a", "question": "E-504", "relevant_documents": ["codes.md"]}\n'
        '{"id": "b", "question": "refunds", "relevant_documents": ["refunds.md"]}\n'
    )
    table = run("eval", str(golden), "--store", str(store), "-k", "1")
    for name in ("BM25", "dense", "hybrid", "recall@1", "n = 2"):
        assert name in table
    reports = json.loads(run("eval", str(golden), "--store", str(store), "--json"))
    assert [report["name"] for report in reports] == ["BM25", "dense", "hybrid"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["search", "x", "--store", "nowhere"], "no store at 'nowhere'"),
        (["search", "x", "--store", "{store}", "--filter", "billing"], "cannot be read"),
        (["search", "x", "--store", "{store}", "--filter", "taem=billing"], "taem"),
        (["ask", "x", "--store", "{store}", "--llm", "no.such:Class"], "package.module:Class"),
        (["ask", "x", "--store", "{store}", "--llm", "json:dumps"], "package.module:Class"),
        (["ingest", "nowhere", "--store", "{store}"], "nowhere"),
        (["ingest", "{empty}", "--store", "{store}"], "Nothing to read"),
        (["info", "--store", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_ends_with_one_clear_line(
    store: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    filled = [a.format(store=store, empty=tmp_path / "empty") for a in arguments]
    done = runner.invoke(cli.app, filled)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.output


def test_a_number_of_passages_below_one_is_a_usage_error(store: Path) -> None:
    done = runner.invoke(cli.app, ["search", "x", "--store", str(store), "--top-n", "0"])
    assert done.exit_code == 2


def test_an_interruption_says_that_what_was_stored_stays(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(HybridPack, "ingest", interrupted)
    done = runner.invoke(cli.app, ["ingest", str(folder), "--store", str(tmp_path / "s")])
    assert done.exit_code == 130
    assert "run the same command again" in done.stderr


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("team=billing", ("team", "==", "billing")),
        ("team == billing", ("team", "==", "billing")),
        ("year>=2024", ("year", ">=", 2024)),
        ("score<0.5", ("score", "<", 0.5)),
        ("status!=draft", ("status", "!=", "draft")),
        ("zip='01234'", ("zip", "==", "01234")),
        ("note=a=b", ("note", "==", "a=b")),
    ],
)
def test_conditions_are_read(condition: str, expected: tuple[str, str, object]) -> None:
    filters = cli.parse_filters([condition])
    assert filters is not None
    (member,) = filters.filters
    assert (member.key, member.operator.value, member.value) == expected  # type: ignore[union-attr]


def test_no_conditions_are_no_filter() -> None:
    assert cli.parse_filters(None) is None
    assert cli.parse_filters([]) is None
    with pytest.raises(ConfigError, match="category=billing"):
        cli.parse_filters(["=x"])


def test_an_llm_is_made_from_its_name_and_arguments() -> None:
    llm = cli.load_llm("llama_index.core.llms:MockLLM", ["max_tokens=7"])
    assert llm.max_tokens == 7  # type: ignore[attr-defined]


@pytest.mark.usefixtures("store")
def test_documents_of_the_library_have_stable_ids(store: Path) -> None:
    pack = HybridPack.open(store, embed_model=HashEmbedding())
    before = sorted(node.node_id for node in pack.store.get_nodes())
    pack.ingest([Document(id_="extra.md", text="More.")])
    assert set(before) < {node.node_id for node in pack.store.get_nodes()}
