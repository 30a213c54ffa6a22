"""What a comparison found, as tables: the same ones on the terminal and on the page."""

from __future__ import annotations

from collections import Counter

from verification.diff.findings import A, B, Diff
from verification.judges.comparison import largest
from verification.report.document import Sheet
from verification.report.sheets import ulps
from verification.revisions.source import CHECKOUT, Source

SHOWN = 5


def sheets(diff: Diff) -> list[Sheet]:
    """The tables that have something to show, in reading order."""
    return [one for one in (_groups(diff), _not_there(diff), _reworded(diff)) if one.rows]


def _groups(diff: Diff) -> Sheet:
    """Where something differs, by stage and algorithm, and the sum of all that was compared."""
    rows = [
        (one.stage, one.algorithm, str(one.cases), str(one.differing), ulps(one.ulps), one.where)
        for one in diff.groups
        if one.differing
    ]
    if rows:
        apart = largest(one.ulps for one in diff.groups)
        rows.append(("total", "", str(diff.compared), str(len(diff.differing)), ulps(apart), ""))
    columns = ("stage", "algorithm", "cases", "differing", "largest ulps", "largest at")
    return Sheet("what differs", columns, tuple(rows), words=(0, 1, 5))


def _not_there(diff: Diff) -> Sheet:
    """The cases that a side does not have, by stage."""
    rows = []
    for side, source in ((A, diff.a), (B, diff.b)):
        by_stage: dict[str, list[str]] = {}
        for case in diff.not_there.get(side, ()):
            by_stage.setdefault(case.partition("/")[0], []).append(case)
        for stage, ids in by_stage.items():
            more = f", ... {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
            rows.append((f"{side} {source.name}", stage, str(len(ids)), ", ".join(ids[:SHOWN]) + more))
    return Sheet("not there, so not compared", ("side", "stage", "cases", "ids"), tuple(rows), words=(0, 1, 3))


def _reworded(diff: Diff) -> Sheet:
    """Errors of one type whose words changed."""
    rows = [row for one in diff.reworded[:SHOWN] for row in ((one.case, A, one.a), ("", B, one.b))]
    if len(diff.reworded) > SHOWN:
        rows.append((f"... {len(diff.reworded) - SHOWN} more", "", ""))
    title = f"the same error in other words, which is no difference: {len(diff.reworded)} cases"
    return Sheet(title, ("case", "side", "message"), tuple(rows), words=(0, 1, 2))


def facts(diff: Diff) -> tuple[tuple[str, str], ...]:
    """What was compared, and what the bits may depend on."""
    rows = [(A, described(diff.a)), (B, described(diff.b))]
    if diff.same_tree:
        rows.append(("relax/", f"byte for byte the same on both sides (tree {diff.same_tree}): nothing had to run"))
    else:
        rows.append(("compared", f"{diff.compared} of {diff.cases} cases"))
        rows += [("not there", f"{side}: {len(ids)} cases") for side, ids in diff.not_there.items() if ids]
        stopped = Counter(one.smallest.stopped for one in diff.groups if one.smallest and one.smallest.stopped)
        rows += [("not smallest", f"{count} of the inputs shown: {why}") for why, count in stopped.items()]
    return (*rows, *diff.environment.items(), ("elapsed", f"{diff.elapsed:.1f} s"))


def described(source: Source) -> str:
    """A source with its commit and the hash of what it holds."""
    commit = f", commit {source.commit}" if source.commit else ""
    changed = " and changes" if source.kind == CHECKOUT and source.commit and source.dirty else ""
    return f"{source.name}{commit}{changed}, tree {source.relax_tree}"
