"""Questions with known answers: what a retriever is measured on.

A golden set is a JSONL file, one question per line. Fields:

``id`` (string, unique)
    Never change it: splits and comparisons go by it.
``question`` (string)
    What is asked.
``relevant_nodes``, ``relevant_documents`` (list of ids, or object of id → grade)
    Ids of nodes, or of the documents that they come from (``ref_doc_id``).
``relevant_spans`` (list of ``{"document": id, "start": int, "end": int, "grade": int}``)
    Character offsets into the document's text, ``end`` not included. They stay true when
    documents are cut differently, so prefer them.
``answer`` (string), ``tags`` (list of strings), ``metadata`` (object)
    For people, for means per kind of question, and for whatever else you keep.
``answerable`` (true or false, default true)
    False = no document answers it. Such a question has no relevant items, any other has one or
    more.

A grade is a whole number of at least 1: how well the item answers. nDCG alone looks at it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from llama_index_hybrid_pack.errors import EvaluationError

#: Problems named in one message; a file may have thousands.
_MAX_PROBLEMS = 20

_Text = Annotated[StrictStr, Field(min_length=1)]
_Grade = Annotated[StrictInt, Field(ge=1)]


def _with_grades(value: object) -> object:
    """Read a list of ids as ids of grade 1; a repeated id is one id."""
    if isinstance(value, list | tuple | set | frozenset):
        if any(not isinstance(item, str) for item in value):
            msg = "give a list of ids (strings), or an object of id → grade"
            raise ValueError(msg)
        return dict.fromkeys(value, 1)
    return value


class _RecordError(EvaluationError):
    """Keeps what is wrong by field, so that the record around it can name the whole path."""

    def __init__(self, owner: str, reasons: list[tuple[str, str]]) -> None:
        self.reasons = reasons
        self.summary = "; ".join(f"{place}: {what}" if place else what for place, what in reasons)
        super().__init__(f"This makes no {owner}: {self.summary}.")


_Graded = Annotated[dict[_Text, _Grade], BeforeValidator(_with_grades)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # type checkers keep the signature that pydantic derives

        def __init__(self, **data: object) -> None:
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise _RecordError(type(self).__name__, _reasons(error)) from error


class RelevantSpan(_Record):
    """A passage that answers a question, as offsets into its document's text.

    Example:
        >>> RelevantSpan(document="refunds.md", start=10, end=40).grade
        1
    """

    document: _Text = Field(description="Id of the document.")
    start: StrictInt = Field(ge=0, description="First character.")
    end: StrictInt = Field(description="Character after the last; above start.")
    grade: _Grade = Field(default=1, description="How well it answers, 1 or more.")

    @model_validator(mode="after")
    def _not_empty(self) -> RelevantSpan:
        if self.end <= self.start:
            msg = f"the span ends at {self.end}, which is not after its start at {self.start}"
            raise ValueError(msg)
        return self


class GoldenQuestion(_Record):
    """One question and what answers it; the fields are those of the file (see the module).

    Raises:
        EvaluationError: If a field is missing, unknown or of the wrong kind, or the question is
            answerable and has no relevant item, or the other way round.

    Example:
        >>> question = GoldenQuestion(id="q1", question="Refunds?", relevant_nodes=["n1", "n1"])
        >>> question.relevant_nodes
        {'n1': 1}
    """

    id: _Text = Field(description="Unique name of the question.")
    question: Annotated[StrictStr, Field(pattern=r"\S")] = Field(description="What is asked.")
    relevant_nodes: _Graded = Field(default_factory=dict, description="Node id → grade.")
    relevant_documents: _Graded = Field(default_factory=dict, description="Document id → grade.")
    relevant_spans: tuple[RelevantSpan, ...] = Field(default=(), description="Passages.")
    answer: StrictStr | None = Field(default=None, description="The right answer in words.")
    tags: tuple[_Text, ...] = Field(default=(), description="Kinds of the question.")
    answerable: StrictBool = Field(default=True, description="False = no document answers it.")
    metadata: dict[str, JsonValue] = Field(default_factory=dict, description="Anything else.")

    @model_validator(mode="after")
    def _relevant_unless_unanswerable(self) -> GoldenQuestion:
        if self.answerable and not self._has_relevant:
            msg = (
                "no relevant item. Give relevant_spans, relevant_nodes or relevant_documents, or "
                "answerable: false"
            )
            raise ValueError(msg)
        if not self.answerable and self._has_relevant:
            msg = "answerable is false, and yet there are relevant items"
            raise ValueError(msg)
        return self

    @property
    def _has_relevant(self) -> bool:
        return bool(self.relevant_nodes or self.relevant_documents or self.relevant_spans)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON-able values: one line of the file."""
        return self.model_dump(mode="json", exclude_defaults=True)


class GoldenSet:
    """Questions with known answers, in a fixed order.

    Args:
        questions: The questions; their ids are unique.

    Raises:
        EvaluationError: If there is none, or two have one id.

    Example:
        >>> golden = GoldenSet([GoldenQuestion(id="q1", question="?", relevant_nodes=["n1"])])
        >>> len(golden), golden["q1"].question
        (1, '?')
    """

    def __init__(self, questions: Iterable[GoldenQuestion]) -> None:
        self._questions = tuple(questions)
        self._by_id: dict[str, GoldenQuestion] = {}
        repeated = []
        for question in self._questions:
            if question.id in self._by_id:
                repeated.append(question.id)
            self._by_id[question.id] = question
        if repeated:
            msg = f"Ids of questions must be unique; these are repeated: {_some(repeated)}."
            raise EvaluationError(msg)
        if not self._questions:
            msg = "The golden set has no questions. Give at least one."
            raise EvaluationError(msg)

    @property
    def questions(self) -> tuple[GoldenQuestion, ...]:
        """The questions in order."""
        return self._questions

    def __len__(self) -> int:
        return len(self._questions)

    def __iter__(self) -> Iterator[GoldenQuestion]:
        return iter(self._questions)

    def __getitem__(self, question_id: str) -> GoldenQuestion:
        return self._by_id[question_id]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GoldenSet) and self._questions == other._questions

    def __hash__(self) -> int:
        return hash(tuple(self._by_id))

    def __repr__(self) -> str:
        unanswerable = sum(not question.answerable for question in self._questions)
        return f"GoldenSet({len(self)} questions, {unanswerable} of them unanswerable)"

    @classmethod
    def from_jsonl(cls, path: str | Path) -> GoldenSet:
        """Read a file of one question per line; blank lines are skipped.

        Args:
            path: A UTF-8 file with the fields that this module names.

        Returns:
            The golden set.

        Raises:
            EvaluationError: If the file cannot be read or has mistakes; one message names the
                lines of all of them, up to 20.
        """
        numbers: dict[str, int] = {}
        questions: list[GoldenQuestion] = []
        problems: list[str] = []
        for number, line in _lines(Path(path)):
            try:
                question = GoldenQuestion(**_parse(line))
            except _RecordError as error:
                problems.append(f"line {number}: {error.summary}")
                continue
            except EvaluationError as error:
                problems.append(f"line {number}: {error}")
                continue
            first = numbers.setdefault(question.id, number)
            if first != number:
                problems.append(f"line {number}: the id {question.id!r} stands in line {first} too")
                continue
            questions.append(question)
        if problems:
            shown = "\n".join(f"  {problem}" for problem in problems[:_MAX_PROBLEMS])
            more = len(problems) - _MAX_PROBLEMS
            rest = f"\n  … and {more} more" if more > 0 else ""
            msg = f"{path} is no golden set ({len(problems)} problems):\n{shown}{rest}"
            raise EvaluationError(msg)
        if not questions:
            msg = f"{path} has no questions. Write one JSON object per line."
            raise EvaluationError(msg)
        return cls(questions)

    def to_jsonl(self, path: str | Path) -> None:
        """Write a file that :meth:`from_jsonl` reads as an equal golden set.

        Args:
            path: Where to; an existing file is replaced in one step.

        Raises:
            OSError: If the file cannot be written; an existing one is intact.
        """
        target = Path(path)
        lines = [json.dumps(question.to_dict(), ensure_ascii=False) for question in self]
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        try:
            partial.write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def split(self, fraction: float = 0.5, *, seed: str = "") -> tuple[GoldenSet, GoldenSet]:
        """Cut the set in two by a hash of the ids: one part to tune on, one to report.

        A question lands on the same side on every machine, whatever else is in the set, and a
        larger fraction keeps what a smaller one had. With no seed and one half, the first part
        is the questions whose ``sha1(id)`` is even.

        Args:
            fraction: Expected share of the first part, above 0 and below 1.
            seed: Put before the ids, for another cut.

        Returns:
            The first part (development) and the rest (held out).

        Raises:
            EvaluationError: If the fraction is out of range, or a part would be empty.

        Example:
            >>> questions = [
            ...     GoldenQuestion(id=f"q{i}", question="?", relevant_nodes=["n"]) for i in range(9)
            ... ]
            >>> development, held_out = GoldenSet(questions).split()
            >>> len(development) + len(held_out)
            9
        """
        if not 0.0 < fraction < 1.0:
            msg = f"fraction is {fraction!r}. It is the share of the first part, between 0 and 1."
            raise EvaluationError(msg)
        first = [question for question in self if _place(question.id, seed) < fraction]
        chosen = {question.id for question in first}
        rest = [question for question in self if question.id not in chosen]
        if not first or not rest:
            msg = (
                f"A split of {len(self)} questions at {fraction} leaves one part empty. Take "
                "another fraction or seed, or add questions."
            )
            raise EvaluationError(msg)
        return GoldenSet(first), GoldenSet(rest)


def _place(question_id: str, seed: str) -> float:
    """Return a number in [0, 1): the hash's last 32 bits, the last one first."""
    digest = hashlib.sha1((seed + question_id).encode("utf-8", "surrogatepass"))  # noqa: S324
    last = int.from_bytes(digest.digest()[-4:], "big")
    return int(f"{last:032b}"[::-1], 2) / 2**32


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        # Not splitlines: JSON strings may hold other line separators.
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8: {error}. Save it as UTF-8."
        raise EvaluationError(msg) from error
    except OSError as error:
        msg = f"The golden set {path} cannot be read: {error}."
        raise EvaluationError(msg) from error


def _parse(line: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        msg = f"no JSON ({error})"
        raise EvaluationError(msg) from error
    if not isinstance(value, dict):
        msg = f"a JSON {type(value).__name__} instead of an object"
        raise EvaluationError(msg)
    return value


def _reasons(error: ValidationError) -> list[tuple[str, str]]:
    reasons: list[tuple[str, str]] = []
    for item in error.errors():
        place = ".".join(str(part) for part in item["loc"])
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, _RecordError):
            reasons.extend(
                (f"{place}.{field}" if field else place, what) for field, what in inner.reasons
            )
        else:
            reasons.append((place, item["msg"].removeprefix("Value error, ").rstrip(".")))
    return reasons


def _some(names: Sequence[str], limit: int = _MAX_PROBLEMS) -> str:
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
