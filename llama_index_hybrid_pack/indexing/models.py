"""Models are loaded once per process, quietly, and shared by every component that names them."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llama_index_hybrid_pack._optional import require
from llama_index_hybrid_pack.errors import ConfigError, HybridPackError, ModelNotFoundError


@dataclass(frozen=True)
class LoadedModel:
    """A model and the lock under which it is used: tokenizers keep state while they pad and cut.

    Args:
        model: What the library loaded.
        lock: Held for one batch at a time, so that a query waits for no more than that.
    """

    model: Any
    lock: threading.Lock = field(default_factory=threading.Lock)


_LOADED: dict[tuple[object, ...], LoadedModel] = {}
# One for all models: the libraries' loading code is not made for several threads.
_LOADING = threading.RLock()
# What huggingface_hub takes for yes.
_YES = {"1", "ON", "YES", "TRUE"}


def model_location(name: str) -> tuple[str, bool]:
    """Return what the library is to load, and whether that is a folder on this machine.

    Args:
        name: Path of a folder, ``~`` allowed, or a name on a model hub.

    Returns:
        Absolute path and ``True``, or the name as given and ``False``.

    Example:
        >>> model_location("some-organisation/some-model")
        ('some-organisation/some-model', False)
    """
    folder = Path(name).expanduser()
    return (str(folder.resolve()), True) if folder.is_dir() else (name, False)


def load_shared(
    key: tuple[object, ...], load: Callable[[], Any], *, name: str, local_files_only: bool
) -> LoadedModel:
    """Return the model of that key, loading it if no component of this process has yet.

    Args:
        key: Kind, location, device and whatever else makes it a different model.
        load: Loads it; called at most once at a time.
        name: The name that the user gave, for error messages.
        local_files_only: Whether downloads are off, for error messages.

    Returns:
        The shared model with its lock.

    Raises:
        ModelNotFoundError: If it cannot be loaded from that name; the message says what to do.
    """
    with _LOADING:
        loaded = _LOADED.get(key)
        if loaded is None:
            try:
                with _quiet():
                    loaded = LoadedModel(load())
            except HybridPackError:
                raise
            except (OSError, ValueError, KeyError) as error:
                raise _not_found(name, error, local_files_only=local_files_only) from error
            _LOADED[key] = loaded
        return loaded


def release_models() -> None:
    """Forget every loaded model, so that its memory can be freed; components load it again.

    Example:
        >>> release_models()
    """
    with _LOADING:
        _LOADED.clear()


def check_device(device: str | None) -> None:
    """Refuse a device that torch does not know or that this machine lacks.

    Args:
        device: For example ``"cpu"``, ``"cuda:1"`` or ``"mps"``; ``None`` = chosen by the library.

    Raises:
        ConfigError: If there is no such device here.
    """
    if device is None:
        return
    torch = require("torch", extra="models")
    try:
        kind = torch.device(device).type
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        problem = str(error).strip().partition("\n")[0]
        msg = f"device is {device!r}, which cannot be used here ({problem}). Give 'cpu' or None."
        raise ConfigError(msg) from error
    if kind == "meta":
        msg = "device is 'meta', which computes nothing. Give 'cpu' or None."
        raise ConfigError(msg)


def _not_found(name: str, error: Exception, *, local_files_only: bool) -> ModelNotFoundError:
    problem = " ".join(str(error).split()) or type(error).__name__
    if model_location(name)[1]:
        msg = (
            f"The folder {name!r} holds no model that can be loaded: {problem} Give the folder "
            "that has the model's config.json and weights."
        )
        return ModelNotFoundError(msg)
    offline = local_files_only or os.environ.get("HF_HUB_OFFLINE", "").upper() in _YES
    reason = "downloads are off (local_files_only or HF_HUB_OFFLINE)" if offline else problem
    msg = (
        f"There is no model {name!r}: it is no folder here, and as a name on a hub it could not be "
        f"loaded: {reason}. Give the path of a folder that holds the model; to get one, run "
        "'hf download NAME --local-dir FOLDER' where the hub can be reached."
    )
    return ModelNotFoundError(msg)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep weight bars and reports off the user's screen; a download still shows its progress."""
    logging = require("transformers.utils.logging", extra="models")
    hub = require("huggingface_hub.utils", extra="models")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        downloads_hidden = hub.are_progress_bars_disabled()
        logging.disable_progress_bar()
        if not downloads_hidden:
            hub.enable_progress_bars()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()
            if downloads_hidden:
                hub.disable_progress_bars()
