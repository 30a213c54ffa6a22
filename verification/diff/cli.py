"""``relax-verify diff A [B]``: two revisions over the corpus, and the smallest input on which they differ."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from verification.diff import SHRINK_SECONDS
from verification.revisions.trees import CACHE_TOLD
from verification.usage import UsageError, chosen

if TYPE_CHECKING:
    from verification.cases.case import Case
    from verification.diff.findings import Diff
    from verification.revisions.source import Source


def add_diff_command(subparsers: Any) -> argparse.ArgumentParser:
    """Adds the verb ``diff``, which sets ``run``, a function of the parsed options that gives the exit status.

    The parser that it returns still lacks the filters and outputs that the verbs over cases have in common.
    """
    told = "two revisions over the corpus: the same bits, or what differs, with the smallest input that shows it"
    epilog = (
        "A and B are git revisions, or folders that hold relax/ (written with a separator: ./copy). Exit status: 0 "
        "equivalent, 1 different, 2 no verdict: the same code on both sides, nothing compared, or no such revision. "
        + CACHE_TOLD
    )
    diff = subparsers.add_parser("diff", help=told, description=f"{told.capitalize()}.", epilog=epilog)
    diff.add_argument("a", metavar="A", help="what it was: HEAD~1, a branch, a tag, a folder")
    diff.add_argument("b", metavar="B", nargs="?", help="what it is now (default: the working tree)")
    diff.add_argument(
        "--shrink-seconds",
        type=_seconds,
        default=SHRINK_SECONDS,
        metavar="S",
        help=f"time for finding smaller inputs, all together (default: {SHRINK_SECONDS:g}; 0: none)",
    )
    diff.add_argument(
        "--no-shrink", action="store_const", const=0.0, dest="shrink_seconds", help="show the inputs as they are"
    )
    diff.add_argument("--save", metavar="FOLDER", help="the smallest inputs as a bundle for `explain --input FOLDER`")
    diff.set_defaults(run=_diff)
    return diff


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds: give 0 or more")
    return seconds


def _diff(options: argparse.Namespace) -> int:
    from verification.report.outputs import alone, write_reports
    from verification.revisions.checkout import Checkout, CheckoutError
    from verification.revisions.source import resolve, working_tree

    here = Checkout.here()
    try:
        a = resolve(options.a, here)
        b = working_tree(here) if options.b is None else resolve(options.b, here)
    except CheckoutError as error:
        raise UsageError(str(error)) from error
    _require_two(a, b)
    cases, _ = chosen(options)
    folder = None if options.save is None else _made(Path(options.save))
    found = _found(a, b, cases, options)
    from verification.bundles import write_cases
    from verification.diff.report import as_dict, document_of
    from verification.report.as_json import strict_json

    if not alone(options):
        print_diff(found, sys.stdout, quiet=options.quiet)
    if folder is not None:
        write_cases(folder, [group.smallest.found.case for group in found.groups if group.smallest is not None])
    write_reports(options, lambda: document_of(found, cases), lambda: strict_json(as_dict(found)))
    return found.exit_code


def _require_two(a: Source, b: Source) -> None:
    """A UsageError where both sides are one and the same."""
    same = a.commit == b.commit if a.commit and b.commit else a.label == b.label
    if a.relax_tree == b.relax_tree and same:
        which = f"commit {a.commit[:12]}" if a.commit else a.label
        raise UsageError(
            f"{a.name} and {b.name} are the same code of {which}: that it agrees with itself proves nothing. "
            "Name an older revision, for instance HEAD~1, or change something"
        )


def _found(a: Source, b: Source, cases: Sequence[Case], options: argparse.Namespace) -> Diff:
    from verification.diff.findings import Diff

    if a.relax_tree == b.relax_tree:
        return Diff(a, b, len(cases), same_tree=a.relax_tree)
    from verification.diff.run import run_diff
    from verification.report.outputs import alone
    from verification.report.terminal import progress_bar
    from verification.subjects.process import ProcessSubject, SubjectFailed

    title = f"comparing {a.name} and {b.name}"
    with (
        progress_bar(title, quiet=options.quiet or alone(options)) as progress,
        ProcessSubject(a) as one,
        ProcessSubject(b) as other,
    ):
        try:
            return run_diff(
                (a, one),
                (b, other),
                cases,
                shrink_seconds=options.shrink_seconds,
                progress=progress,
                shrinking=lambda done, total, name: progress(done, total, f"shrinking {name}"),
            )
        except SubjectFailed as error:
            raise UsageError(f"no verdict: {error}") from error


def _made(folder: Path) -> Path:
    """The folder for the smallest inputs: an error before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot save inputs in {folder}: {error.strerror}") from error
    return folder


def print_diff(found: Diff, out: TextIO, *, quiet: bool = False) -> None:
    """The smallest inputs laid open, the tables, and the verdict last; ``quiet``: the verdict alone."""
    from verification.diff.evidence import evidence, smallest
    from verification.diff.report import command
    from verification.diff.tables import facts, sheets
    from verification.report.document import Sheet
    from verification.report.terminal import print_sheets, print_verdict
    from verification.report.text import lines

    if not quiet:
        for one in smallest(found):
            stopped = f" ({one.shrunk.stopped})" if one.shrunk.stopped else ""
            out.write(f"DIFFERENT {one.told}{stopped}\n")
            out.writelines(f"    {line}".rstrip() + "\n" for line in lines(evidence(one.shrunk.found)))
            out.write(f"\n    run it again: {command(found, one.shrunk.origin.id)}\n\n")
        print_sheets([*sheets(found), Sheet("run", ("", ""), facts(found))], out)
    print_verdict(found.verdict or f"NO VERDICT: {found.no_verdict}", out, holds=found.exit_code == 0)
