"""``relax-verify replay FOLDER``: the calls that a real run wrote down, computed again, to the bit."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.report.outputs import add_json, alone, write_json
from verification.usage import UsageError

if TYPE_CHECKING:
    from verification.report.summary import Report


def add_replay_command(subparsers: Any) -> None:
    """Adds the verb ``replay``, which sets ``run``, a function of the parsed options that gives the exit status."""
    told = (
        "the reward, advantage and loss calls of a real run, computed again by the live code and the frozen copies, "
        "and what each stage was given held against what the stage before it gave"
    )
    epilog = (
        "A run writes them with --trace-rollout K --trace-folder FOLDER. Exit status: 0 the same bits, 1 others, 2 the "
        "trace is damaged or not complete, or the harness failed."
    )
    verb = subparsers.add_parser("replay", help=told, description=f"{told.capitalize()}.", epilog=epilog)
    verb.add_argument("folder", metavar="FOLDER", help="what --trace-folder named")
    verb.add_argument(
        "--bundle", metavar="FOLDER", help="keep the calls there as a bundle of cases, for explain --input"
    )
    add_json(verb)
    verb.add_argument("--quiet", action="store_true", help="no progress, no tables: the verdict only")
    verb.set_defaults(run=_replay)


def _replay(options: argparse.Namespace) -> int:
    from verification.bundles import BundleError
    from verification.report.as_json import as_json
    from verification.report.terminal import progress_bar
    from verification.traced.read import TraceRefused, read_trace
    from verification.traced.replay import elsewhere, replay

    quiet = options.quiet or alone(options)
    try:
        trace = read_trace(Path(options.folder))
        with progress_bar(f"replaying rollout {trace.rollout}", quiet=quiet) as progress:
            report = replay(trace, None if options.bundle is None else Path(options.bundle), progress)
    except (TraceRefused, BundleError) as error:
        raise UsageError(str(error)) from error
    if not alone(options):
        _print(report, options, elsewhere(trace))
    write_json(options, lambda: as_json(report))
    return report.exit_code


def _print(report: Report, options: argparse.Namespace, elsewhere: str) -> None:
    from verification.report.sheets import sheets
    from verification.report.terminal import EXPLAIN, difference_lines, print_sheets, print_verdict, problem_lines

    out = sys.stdout
    if not options.quiet:
        print_sheets(sheets(report), out)
        explain = None if options.bundle is None else f"{EXPLAIN} --input {shlex.quote(options.bundle)}"
        out.writelines(f"{line}\n" for line in difference_lines(report.differences, explain))
        if report.differences and elsewhere:
            out.write(f"the run was made on another machine, whose bits may be others: {elsewhere}\n")
    out.writelines(f"{line}\n" for line in problem_lines(report.problems))
    print_verdict(report.verdict or f"NO VERDICT: {report.no_verdict}", out, holds=report.exit_code == 0)
