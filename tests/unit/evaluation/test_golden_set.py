"""Golden sets: reading, writing, clear mistakes, splits."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from llama_index_hybrid_pack.errors import EvaluationError
from llama_index_hybrid_pack.evaluation.golden_set import GoldenQuestion, GoldenSet, RelevantSpan

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "data" / "golden.jsonl"
GOOD = {"id": "q1", "question": "How long?", "relevant_documents": ["refunds.md"]}


def write(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "golden.jsonl"
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines),
        encoding="utf-8",
    )
    return path


def questions(count: int) -> list[GoldenQuestion]:
    return [GoldenQuestion(id=f"q{i}", question="?", relevant_nodes=["n"]) for i in range(count)]


def test_the_example_set_is_read_and_written_back_the_same(tmp_path: Path) -> None:
    golden = GoldenSet.from_jsonl(EXAMPLE)
    assert len(golden) == 60
    assert sum(not question.answerable for question in golden) == 6
    golden.to_jsonl(tmp_path / "copy.jsonl")
    assert GoldenSet.from_jsonl(tmp_path / "copy.jsonl") == golden


def test_every_field_survives_a_round_trip(tmp_path: Path) -> None:
    golden = GoldenSet(
        [
            GoldenQuestion(
                id="é\u2028",
                question="Wie lange?\nUnd \x85 wann?",
                relevant_nodes={"n": 3},
                relevant_documents=["d", "e"],
                relevant_spans=(RelevantSpan(document="d", start=0, end=2, grade=2),),
                answer="Zehn Tage",
                tags=("a", "b"),
                metadata={"history": [{"role": "user"}]},
            ),
            GoldenQuestion(id="unanswerable", question="?", answerable=False),
        ]
    )
    golden.to_jsonl(tmp_path / "golden.jsonl")
    assert GoldenSet.from_jsonl(tmp_path / "golden.jsonl") == golden


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "golden.jsonl"
    GoldenSet(questions(1)).to_jsonl(path)
    before = path.read_bytes()

    def full(*args: object, **kwargs: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        GoldenSet(questions(2)).to_jsonl(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_blank_lines_and_a_byte_order_mark_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff" + json.dumps(GOOD), "", "  ", "")
    assert [question.id for question in GoldenSet.from_jsonl(path)] == ["q1"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"question": None}, "question: Input should be a valid string"),
        ({"question": "  "}, "question: String should match"),
        ({"id": ""}, "id: String should have at least 1 character"),
        ({"id": 7}, "id: Input should be a valid string"),
        ({"relevant_documents": []}, "no relevant item. Give relevant_spans"),
        ({"relevant_documents": "refunds.md"}, "relevant_documents: Input should be a valid dict"),
        ({"relevant_documents": [7]}, "give a list of ids"),
        ({"relevant_documents": {"a": 0}}, "greater than or equal to 1"),
        ({"relevant_documents": {"a": 1.5}}, "relevant_documents.a"),
        ({"relevant_documents": {"a": True}}, "relevant_documents.a"),
        ({"relevant_ids": ["n"]}, "relevant_ids: Extra inputs are not permitted"),
        ({"answerable": False}, "answerable is false, and yet there are relevant items"),
        ({"answerable": "no"}, "answerable: Input should be a valid boolean"),
        ({"tags": "identifier"}, "tags: Input should be a valid tuple"),
        ({"answer": 10}, "answer: Input should be a valid string"),
        (
            {"relevant_spans": [{"document": "a", "start": 5, "end": 5}]},
            "relevant_spans.0: the span ends at 5, which is not after its start at 5",
        ),
        ({"relevant_spans": [{"document": "a", "start": -1, "end": 5}]}, "relevant_spans.0.start"),
        ({"relevant_spans": [{"document": "a", "start": 0, "end": "5"}]}, "relevant_spans.0.end"),
        ({"relevant_spans": [{"start": 0, "end": 5}]}, "relevant_spans.0.document: Field required"),
        ({"relevant_spans": {"document": "a"}}, "relevant_spans: Input should be a valid tuple"),
    ],
)
def test_a_mistake_names_line_and_field(tmp_path: Path, changes: dict, says: str) -> None:
    path = write(tmp_path, {**GOOD, "id": "fine"}, {**GOOD, **changes})
    with pytest.raises(EvaluationError) as caught:
        GoldenSet.from_jsonl(path)
    assert "line 2: " in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "line", ["{", "[]", "7", '"text"', "null", '{"id": "q" "x"}', "[" * 100_000]
)
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(EvaluationError, match=r"line 1: (no JSON|a JSON)"):
        GoldenSet.from_jsonl(write(tmp_path, line))


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="line 1: question: Field required"):
        GoldenSet.from_jsonl(write(tmp_path, {"id": "q", "relevant_nodes": ["n"]}))


def test_all_mistakes_are_in_one_message_and_it_stays_short(tmp_path: Path) -> None:
    path = write(tmp_path, *(["{"] * 50), GOOD, GOOD)
    with pytest.raises(EvaluationError) as caught:
        GoldenSet.from_jsonl(path)
    message = str(caught.value)
    assert "51 problems" in message
    assert "line 20:" in message
    assert "line 21:" not in message
    assert "and 31 more" in message


def test_a_repeated_id_names_both_lines(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="line 3: the id 'q1' stands in line 1 too"):
        GoldenSet.from_jsonl(write(tmp_path, GOOD, "", GOOD))
    with pytest.raises(EvaluationError, match="repeated: 'q0'"):
        GoldenSet([*questions(1), *questions(1)])


def test_files_that_cannot_be_read_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="cannot be read"):
        GoldenSet.from_jsonl(tmp_path / "nowhere.jsonl")
    with pytest.raises(EvaluationError, match="cannot be read"):
        GoldenSet.from_jsonl(tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xe9"}')
    with pytest.raises(EvaluationError, match="not UTF-8"):
        GoldenSet.from_jsonl(tmp_path / "latin.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(EvaluationError, match="no questions"):
        GoldenSet.from_jsonl(tmp_path / "empty.jsonl")
    with pytest.raises(EvaluationError, match="no questions"):
        GoldenSet([])


def test_mistakes_in_code_are_evaluation_errors_too() -> None:
    with pytest.raises(EvaluationError, match="no GoldenQuestion: no relevant item"):
        GoldenQuestion(id="q", question="?")
    with pytest.raises(EvaluationError, match="no RelevantSpan"):
        RelevantSpan(document="a", start=3, end=2)


def test_repeated_relevant_ids_are_one() -> None:
    question = GoldenQuestion(id="q", question="?", relevant_nodes=["x", "x"])
    assert question.relevant_nodes == {"x": 1}


def test_half_of_the_set_is_the_questions_with_an_even_hash() -> None:
    golden = GoldenSet(questions(200))
    development, held_out = golden.split()

    def even(name: str) -> bool:
        return int(hashlib.sha1(name.encode()).hexdigest(), 16) % 2 == 0

    assert all(even(question.id) for question in development)
    assert not any(even(question.id) for question in held_out)
    assert sorted(q.id for part in (development, held_out) for q in part) == sorted(
        question.id for question in golden
    )


def test_a_split_does_not_depend_on_the_other_questions_and_grows_with_the_fraction() -> None:
    few, many = GoldenSet(questions(100)), GoldenSet(questions(400))
    small = {question.id for question in many.split(0.2)[0]}
    large = {question.id for question in many.split(0.7)[0]}
    assert small < large
    assert {question.id for question in few.split(0.2)[0]} == {
        name for name in small if int(name[1:]) < 100
    }
    assert abs(len(large) - 280) < 40
    assert {question.id for question in many.split(0.2, seed="b")[0]} != small


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
def test_a_split_without_a_part_is_refused(fraction: float) -> None:
    with pytest.raises(EvaluationError, match="fraction is"):
        GoldenSet(questions(10)).split(fraction)
    with pytest.raises(EvaluationError, match="one part empty"):
        GoldenSet(questions(1)).split(0.5)
