"""Runs rank cases on warm worlds, a thread and a pool of ranks for each job, and gathers what was found."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

from verification.check import environment
from verification.ranks.cases import NORMALIZED, RankCase
from verification.ranks.findings import Judged
from verification.ranks.judge import judge_run
from verification.ranks.pool import RankPool
from verification.ranks.reference import Reference, reference
from verification.ranks.refusals import REFUSALS
from verification.ranks.report import RankReport
from verification.ranks.results import RankResult, RankRun
from verification.ranks.shards import shards
from verification.report.summary import Problem, merge_measured

CHUNK = 48
PATIENCE, IMPATIENCE = 10.0, 1.0  # seconds that a collective waits for its peers
SETTLED = 2  # cases in which somebody waited in vain; from then on nobody waits long, the verdict is known
TOO_MANY = 20  # problems of the harness, after which it stops
PROCESSES = 8  # a job keeps this many ranks: those of its layout, and of the one before
Progress = Callable[[int, int], None]


def run_rank_cases(
    cases: Sequence[RankCase], *, jobs: int = 1, progress: Progress = lambda done, total: None
) -> RankReport:
    """Every case on its layout, judged. ``progress(done, total)`` is called as cases finish."""
    started = time.monotonic()
    chunks = list(_chunks(cases))
    jobs = max(1, min(jobs, len(chunks)))
    work = _Work()
    done = 0
    with ThreadPoolExecutor(jobs, initializer=work.begin) as threads:
        try:
            for future in as_completed([threads.submit(work.chunk, chunk) for chunk in chunks]):
                done += future.result()
                progress(done, len(cases))
        finally:
            work.stopped = True
            threads.shutdown(cancel_futures=True)
            work.end()
    judged = work.found
    return RankReport(
        subject="live",
        comparisons=tuple(sorted(judged.comparisons, key=lambda one: (one.stage, one.algorithm, one.case))),
        problems=tuple(work.problems),
        cases=len(cases),
        formulas=merge_measured(judged.measured),
        worlds=sum(pool.started for pool in work.pools),
        ended=work.ended,
        environment=environment(),
        elapsed=time.monotonic() - started,
    )


def _chunks(cases: Sequence[RankCase]) -> Iterator[list[RankCase]]:
    """Cases of one layout together, the largest worlds first."""
    by_layout: dict[str, list[RankCase]] = {}
    for case in cases:
        by_layout.setdefault(case.layout.name, []).append(case)
    for name in sorted(by_layout, key=lambda name: (-by_layout[name][0].layout.world, name)):
        for start in range(0, len(by_layout[name]), CHUNK):
            yield by_layout[name][start : start + CHUNK]


class _Work:
    """What the threads share: references, findings, and how ranks ended."""

    def __init__(self) -> None:
        self.found, self.problems = Judged(), list[Problem]()
        self.ended: dict[str, int] = {}
        self.stopped = False
        self._waited = 0
        self.pools: list[RankPool] = []
        self._references: dict[tuple[str, str, bool], Reference] = {}
        self._lock, self._own = threading.Lock(), threading.local()

    def begin(self) -> None:
        """Gives the thread its pool."""
        self._own.pool = RankPool(processes=PROCESSES)
        with self._lock:
            self.pools.append(self._own.pool)

    def end(self) -> None:
        """Ends every rank."""
        for pool in self.pools:
            pool.close()

    def chunk(self, cases: Sequence[RankCase]) -> int:
        """Runs and judges cases; a failure of the harness is a problem that names the case."""
        for rank_case in cases:
            if self.stopped:
                break
            try:
                run = run_case(rank_case, self._own.pool, patience=PATIENCE if self._waited < SETTLED else IMPATIENCE)
                self._add(run, judge_run(rank_case, run, partial(self._reference, rank_case)))
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                told = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
                self.problems.append(Problem(rank_case.id, "ranks", told))
                self.stopped |= len(self.problems) >= TOO_MANY
        return len(cases)

    def _add(self, run: RankRun, found: Judged) -> None:
        with self._lock:
            self.found.comparisons += found.comparisons
            self.found.measured += found.measured
            self._waited += any(_waited_in_vain(rank) for rank in run.ranks)
            for ended in run.ended:
                self.ended[ended] = self.ended.get(ended, 0) + 1

    def _reference(self, rank_case: RankCase) -> Reference:
        key = (rank_case.program, rank_case.case.id, NORMALIZED in rank_case.words)
        if key not in self._references:
            self._references[key] = reference(rank_case)
        return self._references[key]


def run_case(rank_case: RankCase, pool: RankPool, *, patience: float = PATIENCE) -> RankRun:
    """One case: one dispatch, each rank with its part."""
    return pool.run(
        f"verification.ranks.programs:{rank_case.program}",
        shards(rank_case),
        layout=rank_case.layout,
        deadline=2 * patience,
        timeout=patience,
        megatron=True,
    )


def _waited_in_vain(rank: RankResult) -> bool:
    """Whether a rank hung, or failed in a way that no rank fails in by itself."""
    return rank.hung is not None or (rank.failure is not None and rank.failure.kind not in REFUSALS)
