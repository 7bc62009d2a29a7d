"""Measures any LlamaIndex retriever on a golden set."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import NoReturn

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from tqdm import tqdm

from llama_index_hybrid_pack.errors import ConfigError, EvaluationError
from llama_index_hybrid_pack.evaluation.golden_set import GoldenQuestion, GoldenSet
from llama_index_hybrid_pack.evaluation.matching import (
    Match,
    Matching,
    OverlapOf,
    Ranking,
    rank_items,
    relevant_items,
    score,
)
from llama_index_hybrid_pack.evaluation.metrics import standard_metrics
from llama_index_hybrid_pack.evaluation.results import (
    MetricSummary,
    QuestionResult,
    RetrievalReport,
    summarize,
)

# Characters of an error's message that a report keeps.
_MESSAGE_LENGTH = 200


@dataclass(frozen=True)
class _Outcome:
    """What one question gave before it is scored."""

    ranking: Ranking
    n_hits: int
    latency_ms: float
    error: Exception | None = None


_Ask = Callable[[GoldenQuestion], _Outcome]


class RetrievalEvaluator:
    """Measures retrievers on a golden set: means with intervals, failures counted.

    Use one evaluator for all the retrievers that you compare. A question that raises an error or
    finds nothing counts as 0 in every metric; unanswerable questions are asked too, but are in no
    mean.

    Args:
        golden: Questions and what answers them.
        k_values: Cut-offs of hit rate, recall, precision and nDCG, each at least 1. The retriever
            must return as many hits itself.
        match: ``"auto"``, ``"node"``, ``"document"`` or ``"span"``; see
            :mod:`~llama_index_hybrid_pack.evaluation.matching`.
        min_overlap: For spans: share that must overlap, 0 to 1.
        overlap_of: For spans: share of the ``"span"``, of the ``"chunk"``, or of ``"either"``.
        query_embeddings: Question id → vector, for questions that are embedded already, so that
            several retrievers with the same model need not embed them again.
        workers: Questions asked at the same time, at least 1. More than 1 is quicker with
            services, but then latencies hold the waiting for each other.
        seed: Of the bootstrap intervals.

    Raises:
        ConfigError: If an option is out of range.
        EvaluationError: If no question is answerable, or one has nothing to match by.

    Example:
        >>> from llama_index_hybrid_pack.evaluation.golden_set import GoldenQuestion
        >>> golden = GoldenSet([GoldenQuestion(id="q", question="?", relevant_nodes=["n"])])
        >>> RetrievalEvaluator(golden, k_values=(5,)).metrics[:2]
        ('hit_rate@5', 'recall@5')
    """

    def __init__(
        self,
        golden: GoldenSet,
        *,
        k_values: Sequence[int] = (5, 10, 20, 50),
        match: Match = "auto",
        min_overlap: float = 0.5,
        overlap_of: OverlapOf = "either",
        query_embeddings: Mapping[str, Sequence[float]] | None = None,
        workers: int = 1,
        seed: int = 0,
    ) -> None:
        self.golden = golden
        self.k_values = tuple(sorted({_at_least_1("k_values", k) for k in k_values}))
        if not self.k_values:
            msg = "k_values is empty. Give at least one cut-off, for example (5, 10)."
            raise ConfigError(msg)
        self.matching = Matching(kind=match, min_overlap=min_overlap, overlap_of=overlap_of)
        self.workers = _at_least_1("workers", workers)
        self.seed = seed
        self._embeddings = query_embeddings or {}
        self._qrels = {
            question.id: relevant_items(question, self.matching.kind_for(question))
            for question in golden
        }
        if not any(self._qrels.values()):
            msg = "No question is answerable, so there is nothing to score. Add some that are."
            raise EvaluationError(msg)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics in every report."""
        return standard_metrics(self.k_values)

    def evaluate(
        self,
        retriever: BaseRetriever,
        *,
        name: str | None = None,
        postprocessors: Sequence[BaseNodePostprocessor] = (),
        show_progress: bool = True,
    ) -> RetrievalReport:
        """Ask every question and score the answers.

        Interrupting it (Ctrl-C) starts no further question and leaves nothing behind.

        Args:
            retriever: Any LlamaIndex retriever; the order of its hits is the ranking.
            name: Name in the report; ``None`` = the retriever's class.
            postprocessors: Applied to the hits in order, as a query engine does.
            show_progress: Show a bar where standard error is a terminal.

        Returns:
            The report.

        Raises:
            EvaluationError: If hits are matched by span and none of them has offsets.
            MissingExtraError: If the extra ``eval`` is not installed.
        """

        def ask(question: GoldenQuestion) -> _Outcome:
            start = perf_counter()
            try:
                bundle = self._bundle(question)
                hits = retriever.retrieve(bundle)
                for postprocessor in postprocessors:
                    hits = postprocessor.postprocess_nodes(hits, query_bundle=bundle)
            except Exception as error:
                return _Outcome(Ranking(), 0, _elapsed(start), error)
            return self._outcome(question, hits, _elapsed(start))

        label = name or type(retriever).__name__
        with self._bar(label, show_progress) as bar:
            outcomes = self._ask_all(ask, bar)
        return self._report(label, outcomes)

    async def aevaluate(
        self,
        retriever: BaseRetriever,
        *,
        name: str | None = None,
        postprocessors: Sequence[BaseNodePostprocessor] = (),
        show_progress: bool = True,
    ) -> RetrievalReport:
        """Evaluate through the asynchronous methods of retriever and postprocessors.

        Same arguments, result and errors as :meth:`evaluate`.
        """
        free = asyncio.Semaphore(self.workers)

        async def ask(question: GoldenQuestion) -> _Outcome:
            async with free:
                start = perf_counter()
                try:
                    bundle = self._bundle(question)
                    hits = await retriever.aretrieve(bundle)
                    for postprocessor in postprocessors:
                        hits = await postprocessor.apostprocess_nodes(hits, query_bundle=bundle)
                except Exception as error:
                    return _Outcome(Ranking(), 0, _elapsed(start), error)
                finally:
                    bar.update()
                return self._outcome(question, hits, _elapsed(start))

        label = name or type(retriever).__name__
        with self._bar(label, show_progress) as bar:
            tasks = [asyncio.ensure_future(ask(question)) for question in self.golden]
            try:
                outcomes = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
        return await asyncio.to_thread(self._report, label, outcomes)

    def _ask_all(self, ask: _Ask, bar: tqdm[NoReturn]) -> list[_Outcome]:
        outcomes = []
        if self.workers == 1:
            for question in self.golden:
                outcomes.append(ask(question))
                bar.update()
            return outcomes
        with ThreadPoolExecutor(self.workers, thread_name_prefix="hybrid-pack-eval") as pool:
            # Principals and spans travel in context variables, and each thread needs its own copy.
            futures = [
                pool.submit(contextvars.copy_context().run, ask, question)
                for question in self.golden
            ]
            try:
                for future in futures:
                    outcomes.append(future.result())
                    bar.update()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return outcomes

    def _outcome(
        self, question: GoldenQuestion, hits: Sequence[NodeWithScore], latency_ms: float
    ) -> _Outcome:
        """Keep the ranked ids only: the nodes of all questions might not fit into memory."""
        return _Outcome(rank_items(question, hits, self.matching), len(hits), latency_ms)

    def _bundle(self, question: GoldenQuestion) -> QueryBundle:
        """Return a query of its own: LlamaIndex's retrievers write into the one they get."""
        vector = self._embeddings.get(question.id)
        embedding = None if vector is None else [float(value) for value in vector]
        return QueryBundle(question.question, embedding=embedding)

    def _bar(self, label: str, show_progress: bool) -> tqdm[NoReturn]:
        # None = off when standard error is no terminal.
        disable = None if show_progress else True
        return tqdm(total=len(self.golden), desc=label, unit="question", disable=disable)

    def _report(self, name: str, outcomes: Sequence[_Outcome]) -> RetrievalReport:
        pairs = list(zip(self.golden, outcomes, strict=True))
        notes = _notes(outcomes, self.k_values[-1])
        rankings = {question.id: outcome.ranking for question, outcome in pairs}
        scores = score(self._qrels, rankings, self.metrics)
        results = tuple(
            QuestionResult(
                id=question.id,
                items=outcome.ranking.items,
                n_hits=outcome.n_hits,
                latency_ms=outcome.latency_ms,
                metrics={
                    metric: found[question.id]
                    for metric, found in scores.items()
                    if question.id in found
                },
                error=None if outcome.error is None else _reason(outcome.error),
            )
            for question, outcome in pairs
        )
        unanswerable = [outcome for question, outcome in pairs if not question.answerable]
        p50, p95 = np.percentile([outcome.latency_ms for _, outcome in pairs], [50, 95]).tolist()
        failed = [outcome.error for _, outcome in pairs if outcome.error is not None]
        return RetrievalReport(
            name=name,
            match=self._match_label(),
            metrics=summarize(scores, seed=self.seed),
            tags=self._by_tag(scores),
            questions=results,
            failures=dict(Counter(type(error).__name__ for error in failed).most_common()),
            n_unanswerable=len(unanswerable),
            n_unanswerable_empty=sum(
                not item.n_hits and item.error is None for item in unanswerable
            ),
            latency_p50_ms=p50,
            latency_p95_ms=p95,
            notes=notes,
        )

    def _match_label(self) -> str:
        answerable = (question for question in self.golden if question.answerable)
        return " and ".join(dict.fromkeys(map(self.matching.kind_for, answerable)))

    def _by_tag(
        self, scores: Mapping[str, Mapping[str, float]]
    ) -> dict[str, dict[str, MetricSummary]]:
        members: dict[str, list[str]] = {}
        for question in self.golden:
            if question.answerable:
                for tag in dict.fromkeys(question.tags):
                    members.setdefault(tag, []).append(question.id)
        return {
            tag: summarize(
                {name: {key: found[key] for key in ids} for name, found in scores.items()},
                seed=self.seed,
            )
            for tag, ids in members.items()
        }


def _notes(outcomes: Sequence[_Outcome], deepest: int) -> tuple[str, ...]:
    notes = []
    hits = sum(outcome.n_hits for outcome in outcomes)
    unmatchable = sum(outcome.ranking.unmatchable for outcome in outcomes)
    if unmatchable and unmatchable == hits:
        msg = (
            f"None of the {hits} hits has offsets (start_char_idx, end_char_idx), so none can be "
            "matched by span. Use a parser that sets them, such as StructureNodeParser, or match "
            "by document."
        )
        raise EvaluationError(msg)
    if unmatchable:
        notes.append(f"{unmatchable} of {hits} hits have no offsets and count as misses.")
    longest = max(outcome.n_hits for outcome in outcomes)
    if 0 < longest < deepest:
        notes.append(
            f"No question has more than {longest} hits, so figures at {deepest} are those of "
            f"shorter lists. Raise the retriever's top k to {deepest} to measure them."
        )
    return tuple(notes)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MESSAGE_LENGTH]


def _elapsed(start: float) -> float:
    return (perf_counter() - start) * 1000.0


def _at_least_1(name: str, value: int) -> int:
    given: object = value
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        msg = f"{name} has {value!r}. Give whole numbers of at least 1."
        raise ConfigError(msg)
    return value
