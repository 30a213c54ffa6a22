"""``relax-verify mutants``: does the harness notice when the code is wrong?"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from verification.report.outputs import write_whole

if TYPE_CHECKING:
    from verification.mutants.mutant import Mutant

ALL_KILLED, ONE_SURVIVED, CANNOT_SAY = 0, 1, 2


def add_mutants_command(subparsers: Any) -> None:
    """Adds the verb ``mutants``; it sets ``run``, a function of the parsed options that gives the exit status."""
    mutants = subparsers.add_parser("mutants", help="wrong code on purpose: is each noticed, and by which judge?")
    mutants.add_argument(
        "--name", action="append", default=[], metavar="GLOB", help="only this mutant; may be repeated"
    )
    mutants.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants tried at a time (default: 1)")
    mutants.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    mutants.add_argument("--list", action="store_true", help="show the mutants there are, and try none")
    mutants.set_defaults(run=_mutants)


def _mutants(options: argparse.Namespace) -> int:
    from verification.mutants.campaign import SURVIVED, UnfitCheckout, run_campaign
    from verification.mutants.workspace import WorkspaceError
    from verification.revisions.checkout import Checkout

    chosen = _chosen(options.name)
    if not chosen:
        return _refuse(
            f"no mutant matches {' '.join(options.name)}; see what there is with: relax-verify mutants --list"
        )
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:<34} {mutant.file}: {mutant.reason}")
        return ALL_KILLED
    try:
        results = run_campaign(chosen, source=Checkout.here().root, jobs=options.jobs, progress=_progress)
    except (UnfitCheckout, WorkspaceError) as error:
        return _refuse(str(error))
    from verification.mutants.table import print_results, results_as_json

    print_results(results)
    if options.json:
        write_whole(options.json, results_as_json(results))
    statuses = {result.status for result in results}
    if SURVIVED in statuses:
        return ONE_SURVIVED
    return ALL_KILLED if statuses == {"killed"} else CANNOT_SAY


def _chosen(patterns: list[str]) -> list[Mutant]:
    from fnmatch import fnmatchcase

    from verification.mutants import MUTANTS

    return [
        mutant for mutant in MUTANTS if not patterns or any(fnmatchcase(mutant.name, pattern) for pattern in patterns)
    ]


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _refuse(message: str) -> int:
    sys.stderr.write(f"relax-verify mutants: {message}\n")
    return CANNOT_SAY
