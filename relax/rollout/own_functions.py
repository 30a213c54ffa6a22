"""Functions of one's own: found by their paths, and named where they raise."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from relax.spelling import closest


class FunctionPathError(ValueError):
    """A path names no function; one line that starts with the path and says which part of it is wrong."""


def load_function(path: str) -> Callable[..., Any]:
    """The function at ``package.module:function`` or ``package.module.function``.

    Raises `FunctionPathError`, and whatever the module itself raises as it is imported.
    """
    module_name, _, name = path.replace(":", ".").rpartition(".")
    if not module_name or not name or module_name.startswith("."):
        raise FunctionPathError(f"{path}: it names no function: give module:function")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a module that the function's own imports
        raise FunctionPathError(
            f"{path}: there is no module {error.name!r} here: give module:function, where the module is installed or "
            "lies in the folder that the command is run in"
        ) from error
    if not hasattr(module, name):
        meant = closest(name, (one for one, value in vars(module).items() if callable(value)))
        hint = f"; did you mean {meant}?" if meant else ": give one that it has"
        raise FunctionPathError(f"{path}: the module {module_name} has no function {name!r}{hint}")
    function = getattr(module, name)
    if not callable(function):
        raise FunctionPathError(f"{path}: {name!r} is {type(function).__name__}, not a function: give one")
    return function


@contextmanager
def blamed(option: str, path: str | None, did: str = "raised") -> Iterator[None]:
    """Within the block the function at ``path``, of ``option``, is called, or what it gave is read: an exception is
    noted to be its doing.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if path is not None:
            error.add_note(f"{did} by {option} {path}")
        raise
