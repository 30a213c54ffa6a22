"""The campaign: every chosen mutant applied to a copy of the checkout and put before the judges."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from verification.mutants.children import Children
from verification.mutants.mutant import Mutant, StaleMutant
from verification.mutants.trial import DEADLINE, Trial, try_out
from verification.mutants.workspace import WHERE, Workspace

KILLED, SURVIVED, STALE, UNJUDGED = "killed", "survived", "stale", "unjudged"
Progress = Callable[[str], None]


class UnfitCheckout(RuntimeError):
    """The code as it stands differs already, or cannot be judged: what a mutant adds could not be told apart."""


@dataclass(frozen=True)
class Result:
    """What became of one mutant. ``judges`` counts the differences by the judge that found them."""

    mutant: Mutant
    status: str
    judges: dict[str, int] = field(default_factory=dict)
    cases: int = 0
    seconds: float = 0.0
    detail: str = ""


def run_campaign(
    mutants: Sequence[Mutant],
    *,
    source: Path,
    jobs: int = 1,
    deadline: float = DEADLINE,
    progress: Progress = lambda line: None,
) -> list[Result]:
    """One result a mutant, in their order. ``source`` is the checkout, which stays untouched.

    ``jobs`` mutants are tried at a time, each in a copy of its own, and each trial may take ``deadline`` seconds.
    Raises UnfitCheckout where the unmutated copy is not equivalent under the same checks. However it ends, its
    children have ended and its copies are gone.
    """
    jobs = max(1, min(jobs, len(mutants)))
    with workspaces(source, jobs) as (copies, children):
        _require_fit(copies[0], children, mutants, jobs, progress)
        free: SimpleQueue[Workspace] = SimpleQueue()
        for copy in copies:
            free.put(copy)

        def judged(mutant: Mutant) -> Result:
            workspace = free.get()
            try:
                return judge_mutant(mutant, workspace, children, deadline=deadline)
            finally:
                free.put(workspace)

        pool = ThreadPoolExecutor(jobs)
        try:
            places = {pool.submit(judged, mutant): place for place, mutant in enumerate(mutants)}
            results: dict[int, Result] = {}
            for done, future in enumerate(as_completed(places), start=1):
                result = results[places[future]] = future.result()
                progress(f"{done} of {len(mutants)}: {result.mutant.name} {result.status}")
        finally:
            children.stop()
            pool.shutdown(cancel_futures=True)
    return [results[place] for place in range(len(mutants))]


@contextmanager
def workspaces(source: Path, count: int = 1) -> Iterator[tuple[list[Workspace], Children]]:
    """``count`` copies of the checkout, each proven to be what a child imports, and the children that run in them."""
    with tempfile.TemporaryDirectory(prefix="relax-mutants-") as folder, Children() as children:
        copies = [Workspace.copied_from(source, Path(folder) / f"copy-{number}") for number in range(count)]
        for copy in copies:
            copy.require_own(children.run(copy, "-c", WHERE, deadline=DEADLINE).stdout)
        yield copies, children


def judge_mutant(mutant: Mutant, workspace: Workspace, children: Children, *, deadline: float = DEADLINE) -> Result:
    """Applies ``mutant``, runs what covers it, and takes it back."""
    started = time.monotonic()
    try:
        with workspace.mutated(mutant):
            trial = try_out(
                workspace, children, checks=mutant.checks, ranks=mutant.ranks, tests=mutant.tests, deadline=deadline
            )
    except (StaleMutant, OSError) as error:
        return Result(mutant, STALE, detail=str(error))
    return Result(
        mutant, _status(trial), trial.judges, trial.cases, round(time.monotonic() - started, 2), trial.problem
    )


def _status(trial: Trial) -> str:
    if trial.judges:
        return KILLED
    return UNJUDGED if trial.problem else SURVIVED


def _require_fit(
    workspace: Workspace, children: Children, mutants: Sequence[Mutant], jobs: int, progress: Progress
) -> None:
    checks = sorted({pattern for mutant in mutants for pattern in mutant.checks})
    ranks = sorted({pattern for mutant in mutants for pattern in mutant.ranks})
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    trial = try_out(workspace, children, checks=checks, ranks=ranks, tests=tests, jobs=jobs, deadline=3 * DEADLINE)
    if trial.judges:
        found = ", ".join(f"{judge} ({count})" for judge, count in trial.judges.items())
        raise UnfitCheckout(
            f"the code as it stands differs already: {found}; see relax-verify check, and mend that first"
        )
    if trial.problem:
        raise UnfitCheckout(f"the code as it stands cannot be judged: {trial.problem}")
    progress(f"the unmutated copy holds on the {trial.cases} cases that cover the mutants")
