"""What the checks say about one workspace: the real command in a process of its own, and which judges differed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from verification.mutants.children import Children, Ended
from verification.mutants.workspace import Workspace

DEADLINE = 600.0
TESTS = "tests"
_REPORT = "mutant-report.json"


@dataclass(frozen=True)
class Trial:
    """``judges``: the number of differences that each found, those alone that found any.

    ``exit_code`` and ``verdict`` are the check's, or else those on ranks; None where none ran. ``problem`` is empty, or
    says why there is no judgement.
    """

    judges: dict[str, int] = field(default_factory=dict)
    exit_code: int | None = None
    verdict: str | None = None
    cases: int = 0
    problem: str = ""


def try_out(
    workspace: Workspace,
    children: Children,
    *,
    checks: Sequence[str] = (),
    ranks: Sequence[str] = (),
    tests: Sequence[str] = (),
    jobs: int = 1,
    deadline: float = DEADLINE,
) -> Trial:
    """Runs ``relax-verify check`` on the cases that match ``checks``, ``relax-verify ranks`` on the rank cases that
    match ``ranks``, and pytest on ``tests``; what is empty is left out.
    """
    trials = [
        _verify(workspace, children, verb, patterns, jobs, deadline)
        for verb, patterns in (("check", checks), ("ranks", ranks))
        if patterns
    ]
    judges = {judge: count for trial in trials for judge, count in trial.judges.items()}
    problems = [trial.problem for trial in trials if trial.problem]
    if tests:
        failed, in_tests = _pytest(workspace, children, tests, deadline)
        problems += [in_tests] if in_tests else []
        if failed:
            judges[TESTS] = failed
    first = trials[0] if trials else Trial()
    cases = sum(trial.cases for trial in trials)
    return Trial(judges, first.exit_code, first.verdict, cases, problems[0] if problems else "")


def _verify(
    workspace: Workspace, children: Children, verb: str, patterns: Sequence[str], jobs: int, deadline: float
) -> Trial:
    report = workspace.root / _REPORT
    report.unlink(missing_ok=True)
    filters = [word for pattern in patterns for word in ("--case", pattern)]
    command = ("-m", "verification", verb, "--quiet", "--jobs", str(jobs), "--json", str(report), *filters)
    ended = children.run(workspace, *command, deadline=deadline)
    if ended.status not in (0, 1, 2) or not report.exists():
        return Trial(exit_code=ended.status, problem=_unfinished(f"relax-verify {verb}", ended, deadline))
    told = json.loads(report.read_text(encoding="utf-8"))
    judges: dict[str, int] = {}
    for row in told["judges"]:
        if row["differences"]:
            judge = f"{row['judge']}/{row['against']}" if row["judge"] in ("bits", "ranks") else row["judge"]
            judges[judge] = judges.get(judge, 0) + row["differences"]
    problems = [f"{one['case']}: {one['where']}: {one['message']}" for one in told["problems"]]
    words = ended.stdout.splitlines()
    verdict = words[-1] if words and words[-1].startswith("VERDICT") else None
    problem = f"{len(problems)} problems of the harness, first {problems[0]}" if problems else ""
    return Trial(judges, ended.status, verdict, told["cases"], problem)


def _pytest(workspace: Workspace, children: Children, tests: Sequence[str], deadline: float) -> tuple[int, str]:
    """The number of tests that failed, and why there is no answer (empty if there is one)."""
    missing = [test for test in tests if not (workspace.root / test).exists()]
    if missing:
        return 0, f"no {', '.join(missing)} here: run the campaign from a whole checkout"
    ended = children.run(workspace, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, deadline=deadline)
    if ended.status not in (0, 1):
        return 0, _unfinished("pytest", ended, deadline)
    counts = re.findall(r"(\d+) failed", ended.stdout)
    return (int(counts[-1]) if counts else 0), ""


def _unfinished(what: str, ended: Ended, deadline: float) -> str:
    if ended.status is None:
        return f"{what} did not end within {deadline:g} s"
    return f"{what} gave no report (exit {ended.status}): {ended.last_words}"
