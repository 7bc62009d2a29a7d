"""Options that name every mistake: pydantic's report as an error of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from llama_index_hybrid_pack.errors import bad_options


class StrictOptions:
    """Mixin in front of a pydantic class: wrong options raise ``ConfigError``, which lists them."""

    if not TYPE_CHECKING:  # type checkers keep the signature that pydantic derives

        def __init__(self, **data: Any) -> None:
            try:
                super().__init__(**data)
            except ValidationError as error:
                raise bad_options(type(self).__name__, error) from error
