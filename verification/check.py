"""The check: every chosen case through all judges, spread over processes, gathered into one report."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import torch

from verification.cases.case import Case
from verification.examine import LIVE, Examined, examine_all, subject_named
from verification.judges.comparison import Comparison
from verification.report.summary import Problem, Report, merge_measured
from verification.weaknesses import Shown, known_weaknesses

CHUNK = 16
WORTH_A_POOL = 200
Progress = Callable[[int, int], None]
Counts = dict[str, tuple[int, int]]


class CheckInterrupted(RuntimeError):
    """A worker process died: what it was working on is not known to be equivalent."""


def run_check(
    cases: Sequence[Case],
    *,
    subject: str = LIVE,
    jobs: int | None = None,
    whole: bool = True,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Judge ``subject`` on ``cases``.

    ``jobs`` processes (default: one a core, at most two; a few cases stay in this process). ``whole`` adds what
    belongs to no single case: routing parity and the lock of the frozen copies; it is meant for unfiltered checks of
    the working tree. ``progress(done, total)`` is called as cases finish.
    """
    started = time.monotonic()
    subject_named(subject)  # an unknown subject is an error here, once, not in every worker
    jobs = jobs or (min(2, os.cpu_count() or 1) if len(cases) >= WORTH_A_POOL else 1)
    chunks = [list(cases[start : start + CHUNK]) for start in range(0, len(cases), CHUNK)]
    found, done = Examined(), 0
    counts: Counts = {}
    work = partial(_examine_all, subject=subject)
    parity = whole and subject == LIVE
    for size, examined, counted in _spread(work, chunks, jobs, parity=parity):
        found.add(examined)
        counts = {name: _sum(counts.get(name, (0, 0)), counted.get(name, (0, 0))) for name in {**counts, **counted}}
        done += size
        progress(done, len(cases))
    if parity:
        _lock(found)
    weaknesses = _weaknesses(cases, subject, found)
    return Report(
        subject=subject,
        comparisons=tuple(sorted(found.comparisons, key=lambda one: (one.stage, one.algorithm, one.case))),
        problems=tuple(found.problems),
        cases=len(cases),
        formulas=merge_measured(found.measured),
        goldens=found.goldens,
        absent=found.absent,
        counters=_named(counts),
        weaknesses=weaknesses,
        environment=environment(),
        elapsed=time.monotonic() - started,
    )


def _spread(
    work: Callable[[list[Case]], tuple[Examined, Counts]], chunks: list[list[Case]], jobs: int, *, parity: bool
) -> Iterator[tuple[int, Examined, Counts]]:
    """Every chunk's findings, and those on parity, in the order in which they are ready."""
    if jobs == 1:
        for chunk in chunks:
            yield len(chunk), *work(chunk)
        if parity:
            yield 0, *examine_parity()
        return
    context = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
    if hasattr(os, "fork"):  # imported once for all workers; what is under examination is imported by each itself
        context.set_forkserver_preload(["torch", "flint"])
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context, initializer=_one_thread) as pool:
        waiting: dict[concurrent.futures.Future[tuple[Examined, Counts]], list[Case]] = {}
        if parity:
            waiting[pool.submit(examine_parity)] = []
        waiting.update({pool.submit(work, chunk): chunk for chunk in chunks})
        try:
            for future in concurrent.futures.as_completed(waiting):
                yield len(waiting[future]), *future.result()
        except BrokenProcessPool as error:
            unfinished = [chunk for future, chunk in waiting.items() if not _finished(future)]
            names = ", ".join(case.id for chunk in unfinished[:jobs] for case in chunk[:1])
            message = f"a worker process died near {names or 'parity'}: run again with --jobs 1"
            raise CheckInterrupted(message) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _finished(future: concurrent.futures.Future[tuple[Examined, Counts]]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _one_thread() -> None:
    torch.set_num_threads(1)


def _examine_all(cases: list[Case], subject: str) -> tuple[Examined, Counts]:
    before = _exact_counts()
    return examine_all(cases, subject), _difference(_exact_counts(), before)


def examine_parity() -> tuple[Examined, Counts]:
    """Routing parity of the working tree with the frozen dispatcher."""
    found = Examined()
    try:
        from verification.parity import run_parity

        found.comparisons.extend(run_parity())
    except Exception as error:
        found.problems.append(Problem("parity", "parity", f"{type(error).__name__}: {error}"))
    return found, {}


def _weaknesses(cases: Sequence[Case], subject: str, found: Examined) -> tuple[Shown, ...]:
    try:
        return known_weaknesses(cases, subject_named(subject).run)
    except Exception as error:
        found.problems.append(Problem("-", "known weaknesses", f"{type(error).__name__}: {error}"))
        return ()


def _lock(found: Examined) -> None:
    try:
        from verification.frozen.lock import check_lock

        problems = check_lock()
    except Exception as error:
        found.problems.append(Problem("verification/frozen", "lock", f"{type(error).__name__}: {error}"))
        return
    about = partial(Comparison, "verification/frozen", "frozen copies", "-", "lock", "LOCK")
    found.comparisons.extend([about("hashes", False, None, problem) for problem in problems] or [about("hashes", True)])


def _exact_counts() -> Counts:
    """Outputs and fallbacks of the exact engine so far, by statistic; empty where relax offers no counters."""
    try:
        from relax.algorithms.exact import counters
    except ImportError:
        return {}
    return {name: (tally.outputs, tally.fallback) for name, tally in counters().items()}


def _named(counts: Counts) -> dict[str, int]:
    outputs = {f"{name} outputs": pair[0] for name, pair in counts.items()}
    return {**outputs, **{f"{name} fallback": pair[1] for name, pair in counts.items()}}


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _difference(now: Counts, before: Counts) -> Counts:
    return {name: (n - before.get(name, (0, 0))[0], m - before.get(name, (0, 0))[1]) for name, (n, m) in now.items()}


def environment() -> dict[str, str]:
    """What the bits may depend on."""
    from verification.goldens import platform_key

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform_key(),
        "machine": platform.machine(),
    }
