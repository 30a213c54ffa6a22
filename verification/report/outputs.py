"""Where reports go: the flags, and files that are written whole or not at all."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.report.document import Document

STANDARD_OUTPUT = "-"
FLAGS = ("json", "html", "junit")
SUMMARY = "GITHUB_STEP_SUMMARY"


class OutputError(Exception):
    """A report cannot be written where it was asked for; the message names the place and the reason."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json [FILE]``."""
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON to FILE beside the text, or alone to standard output"
    )


def add_reports(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``, ``--html`` and ``--junit``."""
    add_json(parser)
    parser.add_argument("--html", metavar="FILE", help="a page that needs nothing but itself; - for standard output")
    parser.add_argument("--junit", metavar="FILE", help="JUnit XML, a suite a stage; - for standard output")


def alone(options: argparse.Namespace) -> bool:
    """Whether a report has standard output for itself, so that nothing else may be printed there."""
    return STANDARD_OUTPUT in _targets(options).values()


def check_targets(options: argparse.Namespace) -> None:
    """An OutputError where a report could not be written: known before the work, not after it."""
    flags: dict[Path | str, list[str]] = {}
    for name, target in _targets(options).items():
        flags.setdefault(target if target == STANDARD_OUTPUT else _path(target), []).append(f"--{name}")
    for place, several in flags.items():
        if place == STANDARD_OUTPUT and len(several) > 1:
            raise OutputError(f"{' and '.join(several)} cannot share standard output")
        if isinstance(place, Path) and len(several) > 1 and not _is_special(place):
            raise OutputError(f"{' and '.join(several)} cannot share the file {place}: one would replace the other")
    for target in _targets(options).values():
        if target != STANDARD_OUTPUT:
            _try(target)


def _try(target: str) -> None:
    """An OutputError where `write_whole` would fail: it needs a file of its own beside the one that it replaces."""
    path = _path(target)
    if path.is_dir():
        raise OutputError(f"cannot write {target}: it is a folder")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {target}: there is no folder {path.parent}")
    if _is_special(path):
        if not os.access(path, os.W_OK):
            raise OutputError(f"cannot write {target}: permission denied")
        return
    part = _part(path)
    try:
        part.touch()
        part.unlink()
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror}") from error


def write_json(options: argparse.Namespace, text: Callable[[], str]) -> None:
    """JSON where it was asked for."""
    _write(options, {"json": text})


def write_reports(options: argparse.Namespace, document: Callable[[], Document], as_json: Callable[[], str]) -> None:
    """Every report that was asked for, and the step summary where GitHub wants one. What nobody wants is not made.

    Call it once the result is printed: a report that cannot be written must not hide that.
    """
    document = functools.cache(document)
    _write(options, {"json": as_json, "html": lambda: _html(document()), "junit": lambda: _junit(document())})
    if os.environ.get(SUMMARY):
        _append_summary(Path(os.environ[SUMMARY]), document)


def _html(document: Document) -> str:
    from verification.report.html import html_page

    return html_page(document)


def _junit(document: Document) -> str:
    from verification.report.junit import junit_xml

    return junit_xml(document)


def _append_summary(path: Path, document: Callable[[], Document]) -> None:
    """The step summary behind what the step has written already. Nobody asked for it here: no reason to fail."""
    from verification.report.github import LIMIT, step_summary

    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(step_summary(document(), LIMIT - file.tell()))
    except OSError as error:
        sys.stderr.write(f"relax-verify: no step summary: cannot write {path}: {error.strerror}\n")
    except Exception as error:
        sys.stderr.write(f"relax-verify: no step summary: it cannot be made: {type(error).__name__}: {error}\n")


def _targets(options: argparse.Namespace) -> dict[str, str]:
    wanted = {name: getattr(options, name, None) for name in FLAGS}
    return {name: target for name, target in wanted.items() if isinstance(target, str)}


def _write(options: argparse.Namespace, makers: dict[str, Callable[[], str]]) -> None:
    for name, target in _targets(options).items():
        if name in makers:
            write_whole(target, makers[name]())


def write_whole(target: str, text: str) -> None:
    """``text`` to a file, whole or not at all, or to standard output for ``-``. An OutputError says why not.

    A pipe or a device is written to; a link leads to the file that is replaced.
    """
    if target == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    path = _path(target)
    part = _part(path)
    try:
        if _is_special(path):
            path.write_text(text, encoding="utf-8")
            return
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror}") from error


def _path(target: str) -> Path:
    """Where a link leads."""
    return Path(os.path.realpath(target))


def _is_special(path: Path) -> bool:
    """Whether it is a pipe or a device, which is written to and stays."""
    return path.exists() and not path.is_file()


def _part(path: Path) -> Path:
    """The file that takes the place of ``path`` once it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")
