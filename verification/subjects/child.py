"""The other side of a process subject: ``python -P -m verification.subjects.child ROOT FOLDER SECONDS``.

Runs bundles of cases on the relax that lies in ROOT and on no other. Each request is one line of JSON on standard
input: ``{"cases": folder, "outcomes": folder, "threads": n, "watch": bool}``. Answers are lines of JSON on what was
standard output when the process started; whatever the code under examination prints goes to standard error.
``{"hello": ...}`` comes first; for each request ``{"case": id}`` as each case begins, then ``{"done": ...}`` or
``{"error": text}``. The process ends, and removes FOLDER, when standard input does: with its parent, however that
ends. A case that takes longer than SECONDS ends it too, with its stack on standard error.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import math
import os
import platform
import queue
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import torch

import verification
from verification.bundles import read_cases, write_outcomes
from verification.goldens.platform import platform_key
from verification.revisions.trees import PACKAGE
from verification.subjects.origin import loaded_places, strangers
from verification.subjects.other_revision import OtherRevision

ORPHANED = 3


def main(root: Path, folder: Path, seconds: float) -> None:
    requests, answers = _private_streams()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines, folder), daemon=True).start()
    faulthandler.enable()

    def answer(**message: Any) -> None:
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()

    try:
        subject = _start(root)
        answer(hello=_about(subject), relax=_proven(root))
    except BaseException as error:
        traceback.print_exc()
        answer(error=f"{type(error).__name__}: {error}")
        sys.exit(1)
    gc.freeze()  # what is loaded stays: collections need not go through it again and again
    deadline = Deadline(seconds)
    while True:
        request = json.loads(lines.get())
        try:
            outcomes = {}
            for case in read_cases(Path(request["cases"])):
                answer(case=case.id)
                deadline.begin()
                outcomes[case.id] = subject.run(case, threads=request["threads"], watch=request["watch"])
            deadline.end()
            write_outcomes(Path(request["outcomes"]), outcomes)
            answer(done=len(outcomes), relax=_proven(root))
        except Exception as error:
            deadline.end()
            traceback.print_exc()
            answer(error=f"{type(error).__name__}: {error}")


class Deadline:
    """Ends the process when something takes too long, with its stack on standard error, even if it holds the GIL.

    Each new deadline starts a thread, which most cases are shorter than: it is put off once a second at most, so that
    what has begun has up to a second more.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._set_at = -math.inf

    def begin(self) -> None:
        now = time.monotonic()
        if now - self._set_at >= 1:
            faulthandler.dump_traceback_later(self._seconds + 1, exit=True)
            self._set_at = now

    def end(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._set_at = -math.inf


class PathsAlone(MetaPathFinder):
    """Finds modules of relax on the path or not at all.

    An editable installation adds a finder of its own, which would fill each module that a revision lacks with the
    working tree's.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] != PACKAGE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for the protocol alone; in their place nothing can be read, and prints are errors."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _read(requests: BinaryIO, lines: queue.SimpleQueue[bytes], folder: Path) -> None:
    """Passes requests on as they come, and ends the process when no more can."""
    for line in requests:
        lines.put(line)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(ORPHANED)


def _start(root: Path) -> OtherRevision:
    """The calls. Compiled code beside the sources is neither read nor written: it may be that of other sources."""
    sys.meta_path.insert(0, PathsAlone())
    sys.dont_write_bytecode = True
    sys.pycache_prefix = str(root / "no-compiled-code")
    import relax  # noqa: F401

    _proven(root)
    return OtherRevision()


def _proven(root: Path) -> dict[str, list[str]]:
    """Where every module of relax came from; an error unless all came from ``root``."""
    places = loaded_places()
    foreign = strangers(places, root)
    if foreign or PACKAGE not in places:
        raise ImportError(f"relax must come from {root}, but: {'; '.join(foreign) or 'there is none'}")
    return places


def _about(subject: OtherRevision) -> dict[str, Any]:
    return {
        "verification": verification.__file__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform_key(),
        "calls": sorted(subject.calls),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
