"""What all postprocessors of this package share: strict options, fresh hits, the question."""

from __future__ import annotations

import copy
import logging
from abc import ABC
from collections.abc import Iterator, Sequence
from typing import cast

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import (
    BaseComponent,
    BaseNode,
    MetadataMode,
    NodeWithScore,
    QueryBundle,
)
from pydantic import ConfigDict

from llama_index_hybrid_pack._options import StrictOptions
from llama_index_hybrid_pack.errors import (
    ConfigError,
    MissingExtraError,
    ModelNotFoundError,
    RerankError,
)
from llama_index_hybrid_pack.metadata import (
    STAGES_KEY,
    ScoreScale,
    current_scale,
    stage_scores,
)
from llama_index_hybrid_pack.observability.events import emit_fallback

logger = logging.getLogger(__name__)

#: Errors of the setup. They are raised even under ``on_error="fallback"``: a wrong model name
#: would otherwise mean that nothing is ever reranked.
SETUP_ERRORS = (ConfigError, MissingExtraError, ModelNotFoundError)


class HybridPostprocessor(StrictOptions, BaseNodePostprocessor, ABC):
    """Base of the postprocessors: unknown options are refused, inputs are never changed."""

    model_config = ConfigDict(
        arbitrary_types_allowed=True, extra="forbid", validate_assignment=True
    )


def fresh(hits: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return new hits around the same nodes, so that a caller may set their scores.

    Args:
        hits: Any hits.

    Returns:
        The same nodes and scores in the same order; scores are plain floats.
    """
    return [
        NodeWithScore(node=hit.node, score=None if hit.score is None else float(hit.score))
        for hit in hits
    ]


def detached(hits: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return new hits around copies of the nodes, for components that change what they are given.

    Args:
        hits: Any hits.

    Returns:
        Hits whose nodes, metadata and relationships can be changed without changing the input.
    """
    copies = []
    for hit in hits:
        node = copy.copy(hit.node)
        node.metadata = copy.deepcopy(node.metadata)
        node.relationships = dict(node.relationships)
        node.excluded_embed_metadata_keys = list(node.excluded_embed_metadata_keys)
        node.excluded_llm_metadata_keys = list(node.excluded_llm_metadata_keys)
        copies.append(NodeWithScore(node=node, score=hit.score))
    return copies


def question(query_bundle: QueryBundle | None, component: str) -> str:
    """Return the user's own question: rewrites and hypothetical answers are for finding only.

    Args:
        query_bundle: What the caller gave.
        component: Name of the component that needs it, for the message.

    Returns:
        ``query_bundle.query_str``.

    Raises:
        ConfigError: If there is none.
    """
    if query_bundle is None or not query_bundle.query_str.strip():
        msg = (
            f"{component} was called without a question. Pass query_str or query_bundle to "
            "postprocess_nodes."
        )
        raise ConfigError(msg)
    return query_bundle.query_str


def judged_text(node: BaseNode, metadata_mode: MetadataMode) -> str:
    """Return the text of a node that a model judges; the stage record is never part of it.

    Args:
        node: Any node.
        metadata_mode: Which metadata stands before the text.

    Returns:
        Text as :meth:`BaseNode.get_content` makes it.
    """
    if STAGES_KEY in node.metadata:
        node = copy.copy(node)
        node.metadata = {key: value for key, value in node.metadata.items() if key != STAGES_KEY}
    return node.get_content(metadata_mode=metadata_mode)


def score_scale(hit: NodeWithScore) -> ScoreScale | None:
    """Return what a hit's score means, or ``None`` when nobody has declared it.

    A component of someone else may have set a score after the last stage of ours: then the
    stage record speaks of another number.

    Args:
        hit: Any hit.

    Returns:
        The scale that was declared for this very score.
    """
    record = stage_scores(hit.node)
    if not record or next(reversed(record.values()))["score"] != hit.score:
        return None
    scale = current_scale(hit.node)
    return None if scale is ScoreScale.UNKNOWN else scale


def fall_back(stage_name: str, error: Exception, on_error: str) -> None:
    """Record that a stage failed and let the caller go on, or raise.

    Args:
        stage_name: Name of the stage.
        error: What was raised.
        on_error: ``"fallback"`` or ``"raise"``.

    Raises:
        RerankError: Under ``"raise"``.
    """
    if isinstance(error, SETUP_ERRORS):
        raise error
    if on_error == "raise":
        if isinstance(error, RerankError):
            raise error
        msg = f"{stage_name} failed: {type(error).__name__}: {error}"
        raise RerankError(msg) from error
    # The message may quote a document, so the log has the type only.
    logger.warning("%s failed (%s); the order before it stands.", stage_name, type(error).__name__)
    emit_fallback(stage_name, error, fallback="order of the previous stage")


def restore(value: object, base: type) -> object:
    """Turn what ``to_dict`` gave for a nested component back into that component.

    Args:
        value: A component, which is returned as it is, or a dictionary with a ``class_name``.
        base: Class that the component must inherit; only classes that are imported are found.

    Returns:
        The component; whatever is no dictionary is returned unchanged.

    Raises:
        ConfigError: If no class, or more than one, has that name.
    """
    if not isinstance(value, dict):
        return value
    name = value.get("class_name")
    # A subclass that keeps its parent's name is serialised, and so restored, as the parent.
    found = [
        cls for cls in _subclasses(base) if "class_name" in vars(cls) and cls.class_name() == name
    ]
    if len(found) != 1:
        problem = "No imported class has" if not found else f"{len(found)} imported classes have"
        msg = (
            f"{problem} the class_name {name!r} among the subclasses of {base.__name__}. Import "
            "the module that defines it first, and give each class a class_name of its own."
        )
        raise ConfigError(msg)
    return found[0].from_dict(value)


def _subclasses(base: type) -> Iterator[type[BaseComponent]]:
    seen: set[type] = {base}
    waiting: list[type] = [base]
    while waiting:
        children: list[type] = waiting.pop().__subclasses__()
        for cls in children:
            if cls not in seen:
                seen.add(cls)
                waiting.append(cls)
                yield cast("type[BaseComponent]", cls)
