"""The command line: ingest a folder, search it, ask it, evaluate it."""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from llama_index_hybrid_pack.errors import ConfigError, HybridPackError

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import LLM
    from llama_index.core.schema import NodeWithScore
    from llama_index.core.vector_stores import MetadataFilters

    from llama_index_hybrid_pack.pack import HybridPack

app = typer.Typer(
    name="hybrid-pack",
    help="Hybrid retrieval over a folder of documents: ingest it, search it, ask it, evaluate it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)

Store = Annotated[
    Path,
    typer.Option(
        "--store", "-s", envvar="HYBRID_PACK_STORE", help="Folder that holds the searchable store."
    ),
]
EmbedModel = Annotated[
    str | None,
    typer.Option(
        help="Name or path of a sentence-transformers model; the packaged one when left out."
    ),
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        "-f",
        help="Only passages whose metadata matches, such as 'category=billing' or 'year>=2024'. "
        "Repeat for more; all must match.",
    ),
]
TopN = Annotated[int, typer.Option("--top-n", "-n", min=1, help="Passages to return.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
DEFAULT_STORE = Path("hybrid-pack-store")

_FILTER = re.compile(r"^(?P<key>[^=!<>]+?)\s*(?P<op>==|!=|>=|<=|=|>|<)\s*(?P<value>.*)$")


_Command = TypeVar("_Command", bound=Callable[..., None])


def _command(name: str | None = None) -> Callable[[_Command], _Command]:
    """Register a command whose errors end with one clear line instead of a traceback."""

    def register(function: _Command) -> _Command:
        @functools.wraps(function)
        def guarded(*args: object, **kwargs: object) -> None:
            try:
                function(*args, **kwargs)
            except HybridPackError as error:
                errors.print(f"Error: {error}", style="red", markup=False, soft_wrap=True)
                raise typer.Exit(1) from error
            except KeyboardInterrupt as interrupt:
                errors.print(
                    "Interrupted. What was stored stays; run the same command again to go on.",
                    style="yellow",
                )
                raise typer.Exit(130) from interrupt

        app.command(name)(guarded)
        return function

    return register


def parse_filters(conditions: list[str] | None) -> MetadataFilters | None:
    """Turn ``key=value`` conditions into filters that must all match.

    Args:
        conditions: Each ``key``, one of ``= == != > >= < <=``, and a value. A value that reads
            as a number is one; quotes keep it a text.

    Returns:
        The filters, or ``None`` when there are no conditions.

    Raises:
        ConfigError: If a condition cannot be read.

    Example:
        >>> [(f.key, f.operator.value, f.value) for f in parse_filters(["year>=2024"]).filters]
        [('year', '>=', 2024)]
    """
    from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters

    if not conditions:
        return None
    members: list[MetadataFilter | MetadataFilters] = []
    for condition in conditions:
        match = _FILTER.match(condition.strip())
        if match is None:
            msg = (
                f"The filter {condition!r} cannot be read. Write key, comparison and value, such "
                "as 'category=billing', 'year>=2024' or 'status!=draft'."
            )
            raise ConfigError(msg)
        operator = "==" if match["op"] == "=" else match["op"]
        members.append(
            MetadataFilter(
                key=match["key"].strip(),
                operator=FilterOperator(operator),
                value=_value(match["value"].strip()),
            )
        )
    return MetadataFilters(filters=members)


def _value(text: str) -> int | float | str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def load_llm(spec: str, arguments: list[str] | None) -> LLM:
    """Make an LLM from ``package.module:Class`` and ``name=value`` arguments.

    Args:
        spec: Where the class is, for example ``llama_index.llms.openai:OpenAI``.
        arguments: Keyword arguments, for example ``["model=gpt-4o-mini"]``; numbers are numbers.

    Returns:
        The LLM.

    Raises:
        ConfigError: If the class cannot be found or made.
    """
    module, _, name = spec.partition(":")
    pairs = [argument.partition("=") for argument in arguments or []]
    try:
        factory: Callable[..., LLM] = getattr(importlib.import_module(module), name)
        return factory(**{key: _value(value) for key, _, value in pairs})
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        msg = (
            f"No LLM from {spec!r} with {arguments or 'no arguments'}: {error}. Write "
            "package.module:Class, for example --llm llama_index.llms.ollama:Ollama "
            "--llm-arg model=llama3.2, and install its package."
        )
        raise ConfigError(msg) from error


def _open(store: Path, embed_model: str | None) -> HybridPack:
    from llama_index_hybrid_pack.pack import HybridPack

    return HybridPack.open(store, embed_model=_model(embed_model))


def _model(name: str | None) -> BaseEmbedding | None:
    if name is None:
        return None
    from llama_index_hybrid_pack.indexing.embedding import SentenceTransformerEmbedding

    return SentenceTransformerEmbedding(model_name=name)


def _as_dict(rank: int, hit: NodeWithScore) -> dict[str, object]:
    from llama_index_hybrid_pack.metadata import STAGES_KEY, stage_scores

    metadata = {key: value for key, value in hit.node.metadata.items() if key != STAGES_KEY}
    return {
        "rank": rank,
        "score": hit.score,
        "node_id": hit.node.node_id,
        "document": hit.node.ref_doc_id,
        "text": hit.text,
        "metadata": metadata,
        "stages": stage_scores(hit.node),
    }


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def _print_hits(hits: list[NodeWithScore]) -> None:
    from llama_index_hybrid_pack.answering.passages import NOT_FOUND, source_label

    if not hits:
        console.print(NOT_FOUND, style="yellow")
    for rank, hit in enumerate(hits, start=1):
        title = Text(f"{rank}. {source_label(hit.node)}", style="bold")
        console.print(Panel(Text(hit.text.strip()), title=title, title_align="left"))


@_command()
def ingest(
    folder: Annotated[Path, typer.Argument(help="Folder with Markdown and text files.")],
    store: Store = DEFAULT_STORE,
    embed_model: EmbedModel = None,
    options: Annotated[
        Path | None, typer.Option(help="YAML file with options; see 'hybrid-pack options'.")
    ] = None,
    max_file_mb: Annotated[float, typer.Option(min=0.001, help="Larger files are skipped.")] = 64.0,
    encoding: Annotated[str, typer.Option(help="Of files without a byte order mark.")] = "utf-8",
    as_json: AsJson = False,
) -> None:
    """Read a folder and make it searchable; unchanged documents cost nothing."""
    from llama_index_hybrid_pack.chunking.reader import read_folder
    from llama_index_hybrid_pack.config import PackOptions
    from llama_index_hybrid_pack.pack import HybridPack

    found = read_folder(folder, max_file_mb=max_file_mb, encoding=encoding)
    chosen = None if options is None else PackOptions.from_yaml(options)
    pack = HybridPack.open_or_create(store, embed_model=_model(embed_model), options=chosen)
    report = pack.ingest(found.documents, show_progress=not as_json)
    skipped = [{"path": item.path, "reason": item.reason} for item in found.skipped]
    if as_json:
        _print_json({**report.to_dict(), "skipped": skipped, "store": str(store)})
        return
    console.print(f"{report} Store: {store}")
    for item in skipped:
        errors.print(f"Skipped {item['path']}: {item['reason']}", style="yellow", markup=False)


@_command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    store: Store = DEFAULT_STORE,
    top_n: TopN = 5,
    filters: Filters = None,
    explain: Annotated[bool, typer.Option(help="Show rank and score at every stage.")] = False,
    embed_model: EmbedModel = None,
    as_json: AsJson = False,
) -> None:
    """Show the passages that best match a query."""
    pack = _open(store, embed_model)
    hits, trace = pack.search_with_trace(query, top_n=top_n, filters=parse_filters(filters))
    if as_json:
        found: dict[str, object] = {
            "query": query,
            "hits": [_as_dict(rank, hit) for rank, hit in enumerate(hits, start=1)],
        }
        if explain:
            found["trace"] = trace.to_dict()
        _print_json(found)
        return
    _print_hits(hits)
    if explain:
        console.print(str(trace), markup=False, highlight=False, soft_wrap=True)


@_command()
def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    store: Store = DEFAULT_STORE,
    llm: Annotated[
        str | None,
        typer.Option(
            envvar="HYBRID_PACK_LLM",
            help="LlamaIndex LLM as package.module:Class. Without one, the passages are shown.",
        ),
    ] = None,
    llm_arg: Annotated[
        list[str] | None, typer.Option(help="Argument of the LLM, such as model=llama3.2; repeat.")
    ] = None,
    top_n: TopN = 5,
    filters: Filters = None,
    embed_model: EmbedModel = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from the documents, with sources."""
    from llama_index_hybrid_pack.answering.passages import source_label

    model = None if llm is None else load_llm(llm, llm_arg)
    pack = _open(store, embed_model)
    engine = pack.as_query_engine(llm=model, top_n=top_n, filters=parse_filters(filters))
    answer = engine.query(question)
    if as_json:
        sources = [_as_dict(rank, hit) for rank, hit in enumerate(answer.source_nodes, start=1)]
        _print_json({"question": question, "answer": str(answer), "sources": sources})
        return
    console.print(str(answer), markup=False, highlight=False)
    if model is not None and answer.source_nodes:
        console.print("\nSources", style="bold")
        for rank, hit in enumerate(answer.source_nodes, start=1):
            console.print(f"[{rank}] {source_label(hit.node)}", markup=False, highlight=False)


@_command("eval")
def evaluate(
    golden: Annotated[
        Path, typer.Argument(help="JSONL file with questions and what answers them.")
    ],
    store: Store = DEFAULT_STORE,
    k: Annotated[
        list[int] | None, typer.Option("--k", "-k", min=1, help="Cut-offs; repeat.")
    ] = None,
    embed_model: EmbedModel = None,
    as_json: AsJson = False,
) -> None:
    """Measure BM25, dense, hybrid and hybrid with reranking on a golden set."""
    from llama_index_hybrid_pack import GoldenSet, RetrievalEvaluator
    from llama_index_hybrid_pack.evaluation.report import comparison_table

    pack = _open(store, embed_model)
    evaluator = RetrievalEvaluator(GoldenSet.from_jsonl(golden), k_values=tuple(k or (1, 5, 10)))
    depth = max(evaluator.k_values)
    reports = [
        evaluator.evaluate(retriever, name=name, show_progress=not as_json)
        for name, retriever in pack.ladder(top_n=depth).items()
    ]
    if as_json:
        _print_json([report.to_dict() for report in reports])
        return
    console.print(comparison_table(reports), markup=False, highlight=False, soft_wrap=True)


@_command()
def info(store: Store = DEFAULT_STORE) -> None:
    """Describe a store: sizes, settings, engines, generation."""
    from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore

    _print_json(LocalHybridStore(path=store, read_only=True).describe())


@_command("options")
def show_options() -> None:
    """Print every option with its default, as YAML to start from."""
    import yaml

    from llama_index_hybrid_pack.config import PackOptions

    typer.echo(yaml.safe_dump(PackOptions().model_dump(mode="json"), sort_keys=False), nl=False)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
