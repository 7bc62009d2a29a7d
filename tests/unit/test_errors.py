"""Every error can be caught as itself, as the family, and as the built-in it specialises."""

from __future__ import annotations

import inspect

import pytest

from llama_index_hybrid_pack import errors
from llama_index_hybrid_pack._optional import require


def error_classes() -> list[type[Exception]]:
    return [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.HybridPackError) and value is not errors.HybridPackError
    ]


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_every_error_is_also_a_builtin_a_caller_would_catch(error: type[Exception]) -> None:
    builtin = (ValueError, ImportError, OSError, RuntimeError)
    assert issubclass(error, builtin)
    assert error.__name__ in (errors.__doc__ or ""), "the tree in the docstring names it"


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(errors.MissingExtraError, match=r"llama-index-hybrid-pack\[plots\]"):
        require("no_such_library_here", extra="plots")


def test_a_present_library_with_a_broken_import_is_not_called_missing(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    (folder / "broken_library.py").write_text("import another_missing_thing")
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(ModuleNotFoundError, match="another_missing_thing") as caught:
        require("broken_library", extra="plots")
    assert not isinstance(caught.value, errors.MissingExtraError)
