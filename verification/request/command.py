"""``relax-verify request BASE``: whether the commits since BASE state every difference that they make."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from verification.report.outputs import add_reports, alone, write_reports
from verification.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.cases.case import Case
    from verification.diff.findings import Diff
    from verification.request.statement import Statement
    from verification.revisions.checkout import Checkout

LOOKED_AT = ("relax", "golden", "verification")


def add_request_command(subparsers: Any) -> None:
    """Adds the verb, which sets ``run``, a function of the parsed options that gives the exit status."""
    told = "what a change must state: each case that differs since BASE has its golden changed in the same commits"
    request = subparsers.add_parser(
        "request",
        help=told,
        description=f"{told.capitalize()}.",
        epilog="Exit status: 0 holds; 1 a difference is not stated, or one is stated that is none; 2 no verdict.",
    )
    request.add_argument("base", metavar="BASE", help="the branch or commit that the change is to be merged into")
    add_reports(request)
    request.add_argument("--quiet", action="store_true", help="no progress, no tables: the verdict only")
    request.set_defaults(run=_request)


def _request(options: argparse.Namespace) -> int:
    from verification.cases import corpus
    from verification.goldens.parse import GoldenFormatError
    from verification.report.as_json import strict_json
    from verification.report.terminal import print_sheets, print_verdict, progress_bar
    from verification.request.report import as_dict, document_of, sheets
    from verification.revisions.checkout import Checkout, CheckoutError
    from verification.subjects.process import SubjectFailed

    quiet = options.quiet or alone(options)
    try:
        with progress_bar(f"comparing with {options.base}", quiet=quiet) as progress:
            statement = request_check(options.base, Checkout.here(), corpus(), progress)
    except (CheckoutError, SubjectFailed, GoldenFormatError) as error:
        raise UsageError(str(error)) from error
    if not alone(options):
        if not options.quiet:
            print_sheets(sheets(statement), sys.stdout)
        print_verdict(statement.verdict, sys.stdout, holds=statement.exit_code == 0)
    write_reports(options, lambda: document_of(statement), lambda: strict_json(as_dict(statement)))
    return statement.exit_code


def request_check(
    base: str,
    checkout: Checkout,
    cases: Sequence[Case],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Statement:
    """The statement of the commits between ``base`` and what is checked out.

    ``base`` stands for the commit at which the two part, so that what others merged since is no part of the request.
    A CheckoutError says why there is nothing to compare: uncommitted changes, the same commit, a base that is not here.
    """
    from verification.goldens.platform import platform_key, platform_of
    from verification.goldens.store import GoldenStore
    from verification.request.changed import changed
    from verification.request.statement import state
    from verification.revisions.checkout import CheckoutError

    start, head = checkout.fork(base), checkout.commit()
    if start == head:
        raise CheckoutError(f"HEAD ({head[:12]}) has nothing that {base} has not: there is no change to state")
    loose = checkout.changes(LOOKED_AT)
    if loose:
        raise CheckoutError(
            f"a request is made of commits, and {loose[0][3:]} is not committed: commit or stash it first"
        )
    diff, key = _diff(start, head, checkout, cases, progress), platform_key()
    store = GoldenStore(checkout.golden)
    goldens = {one.case.id: store.read(one.case.id, platform_of(one.case, key)) for one in diff.differing}
    standing = {name: golden for name, golden in goldens.items() if golden is not None}
    return state(changed(checkout, start, head), diff, cases, key, standing)


def _diff(
    base: str, head: str, checkout: Checkout, cases: Sequence[Case], progress: Callable[[int, int], None]
) -> Diff:
    """What differs between two commits; nothing has to run where ``relax/`` is the same."""
    from verification.check import environment
    from verification.diff.findings import Diff
    from verification.diff.run import run_diff
    from verification.revisions.source import of_revision
    from verification.subjects.process import ProcessSubject

    a, b = of_revision(base, checkout), of_revision(head, checkout)
    if a.relax_tree == b.relax_tree:
        return Diff(a, b, len(cases), same_tree=a.relax_tree, environment=environment())
    with ProcessSubject(a) as one, ProcessSubject(b) as other:
        return run_diff((a, one), (b, other), cases, shrink_seconds=0, progress=progress)
