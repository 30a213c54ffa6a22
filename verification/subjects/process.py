"""A source's public calls as a subject: run by a process of its own, cases and outcomes travelling in bundles."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verification.bundles import BundleError, read_outcomes, write_cases
from verification.cases.case import Case
from verification.revisions.checkout import Checkout
from verification.revisions.source import Source
from verification.subjects.child_process import ChildProcess, Ended
from verification.subjects.origin import strangers
from verification.subjects.outcome import Outcome

BUNDLE = 64  # cases: enough that the exchange costs little, few enough that progress shows
CASE_DEADLINE = 60.0  # seconds for one case; the longest of the corpus takes well under one
START_DEADLINE = 180.0  # seconds until the process has imported torch and the code, on a machine that is busy


class SubjectFailed(RuntimeError):
    """A subject gave no outcome: its process died, hung, or broke on its own. ``case`` is the case at fault, if any."""

    def __init__(self, message: str, case: str | None = None) -> None:
        super().__init__(message)
        self.case = case


@dataclass(frozen=True)
class Provenance:
    """What ran: the source, the files that were proven to be imported, and what the bits may depend on."""

    source: Source
    relax_file: str
    verification_file: str
    python: str
    torch: str
    platform: str
    calls: tuple[str, ...]


@dataclass(frozen=True)
class _Asked:
    """A bundle that the child has been given, and where its answer will lie."""

    child: ChildProcess
    cases: list[str]
    given: Path
    taken: Path


class ProcessSubject:
    """``source`` in a child process, which starts with the first case and is kept until `close`.

    ``deadline`` is in seconds for each case. Several subjects may run in several threads; calls of one wait for each
    other. `SubjectFailed` says on which case a process died or hung; the next call starts a new one.
    """

    def __init__(self, source: Source, *, deadline: float = CASE_DEADLINE) -> None:
        self.source = source
        self.name = source.name
        self._deadline = deadline
        self._lock = threading.RLock()
        self._child: ChildProcess | None = None
        self._bundles = 0
        self._provenance: Provenance | None = None

    def __enter__(self) -> ProcessSubject:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def started(self) -> ProcessSubject:
        """Itself, once its process runs and is proven to run this source; a SubjectFailed where it cannot."""
        with self._lock:
            self._running()
        return self

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        with self._lock:
            return self._running().pid

    @property
    def folder(self) -> Path:
        """The temporary folder of the process that runs."""
        with self._lock:
            return self._running().folder

    @property
    def provenance(self) -> Provenance:
        """Of the process that runs, which is started for it if there is none."""
        with self._lock:
            self._running()
            assert self._provenance is not None
            return self._provenance

    def run(self, case: Case, *, threads: int = 1, watch: bool = True) -> Outcome | None:
        """The outcome of one case; None where the source has no such call or algorithm."""
        with self._lock:
            return self._answer(self._ask([case], threads, watch))[case.id]

    def run_all(
        self,
        cases: Sequence[Case],
        progress: Callable[[int, int], None] = lambda done, total: None,
        stop: threading.Event | None = None,
        *,
        threads: int = 1,
        watch: bool = True,
    ) -> dict[str, Outcome | None]:
        """The outcomes of all cases, by id. ``progress`` is told how many of how many cases are done.

        Once ``stop`` is set, by another thread, the process is ended and `CalledOff` raised.
        """
        outcomes: dict[str, Outcome | None] = {}
        with self._lock:
            try:
                ahead: _Asked | None = None  # one bundle is made ready while the process works on another
                for start in (*range(0, len(cases), BUNDLE), None):
                    next_ones = None if start is None else cases[start : start + BUNDLE]
                    asked, ahead = ahead, None if next_ones is None else self._ask(next_ones, threads, watch, stop)
                    if asked is not None:
                        outcomes.update(self._answer(asked, stop))
                        progress(len(outcomes), len(cases))
            except BaseException:
                self.close()  # what it would answer next belongs to no question
                raise
        return outcomes

    def close(self) -> None:
        """Ends the process and removes its temporary folder. The next call starts another."""
        with self._lock:
            if self._child is not None:
                self._child.close()
                self._child = None

    def _ask(
        self, cases: Sequence[Case], threads: int = 1, watch: bool = True, stop: threading.Event | None = None
    ) -> _Asked:
        child = self._running(stop)
        self._bundles += 1
        given, taken = (child.folder / f"{what}-{self._bundles}" for what in ("cases", "outcomes"))
        try:
            write_cases(given, cases)
        except BundleError as error:
            raise SubjectFailed(f"{self.name} cannot be given a case: {error}") from error
        child.send({"cases": str(given), "outcomes": str(taken), "threads": threads, "watch": watch})
        return _Asked(child, [case.id for case in cases], given, taken)

    def _answer(self, asked: _Asked, stop: threading.Event | None = None) -> dict[str, Outcome | None]:
        begun: str | None = None
        while "case" in (message := self._receive(asked.child, self._deadline, begun, stop)):
            begun = message["case"]
        self._require_own(message["relax"], begun)
        try:
            outcomes = read_outcomes(asked.taken)
        except BundleError as error:
            raise self._failed(f"gave an answer that is none: {error}", begun) from error
        if list(outcomes) != asked.cases:
            raise self._failed("answered other cases than it was asked for", begun)
        shutil.rmtree(asked.given)
        shutil.rmtree(asked.taken)
        return outcomes

    def _running(self, stop: threading.Event | None = None) -> ChildProcess:
        if self._child is not None and self._child.pid_of_parent != os.getpid():
            self._child = None  # a copy of this object in a forked process: the child belongs to the other
        if self._child is None:
            harness = Checkout.here().root
            child = self._child = ChildProcess("verification.subjects.child", self.source.root, harness, self._deadline)
            message = self._receive(child, START_DEADLINE, None, stop)
            hello, places = message["hello"], message["relax"]
            self._require_own(places, None)
            if foreign := strangers({"verification": [hello["verification"]]}, harness):
                raise self._failed(f"runs another harness: {foreign[0]}", None)
            if not hello["calls"]:
                raise self._failed("has none of the public calls: nothing of it can be judged", None)
            calls = tuple(hello["calls"])
            about = {name: hello[name] for name in ("python", "torch", "platform")}
            relax_file = places["relax"][0]
            self._provenance = Provenance(self.source, relax_file, hello["verification"], calls=calls, **about)
        return self._child

    def _receive(
        self, child: ChildProcess, deadline: float, begun: str | None, stop: threading.Event | None = None
    ) -> dict[str, Any]:
        try:
            message = child.receive(deadline, stop)
        except Ended as ended:
            raise self._failed(str(ended), begun) from None
        except BaseException:  # interrupted: what this child would answer next belongs to no question
            self.close()
            raise
        if "error" in message:
            raise self._failed(f"broke: {message['error']}", begun)
        return message

    def _require_own(self, places: dict[str, list[str]], begun: str | None) -> None:
        if foreign := strangers(places, self.source.root):
            raise self._failed(f"imports what is not its own: {'; '.join(foreign)}", begun)

    def _failed(self, what: str, begun: str | None) -> SubjectFailed:
        """The error, once the process is gone, with the end of what it said on standard error."""
        said = self._child.last_words() if self._child is not None else ""
        self.close()
        where = "while it started" if begun is None else f"on case {begun}"
        return SubjectFailed(f"{self.name} {what}, {where}" + (f"; it said:\n{said}" if said else ""), begun)
