"""``relax-verify``: the command line of the harness. Exit status: 0 holds, 1 differences, 2 usage or environment.

Nothing here imports torch before a verb needs it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout

from verification.bench.cli import add_bench_command
from verification.devices.cli import add_device_command
from verification.diff.cli import add_diff_command
from verification.explaining.command import add_explain_commands
from verification.goldens.cli import add_golden_commands
from verification.mutants.cli import add_mutants_command
from verification.ranks.cli import add_ranks_command
from verification.report.outputs import (
    Output,
    OutputError,
    add_json,
    add_reports,
    alone,
    check_targets,
    write_json,
    write_reports,
)
from verification.request.command import add_request_command
from verification.revisions.trees import CACHE_TOLD
from verification.traced.command import add_replay_command
from verification.usage import UsageError, chosen, subject_called

HOLDS, DIFFERS, CANNOT_SAY = 0, 1, 2
SUBJECTS = "live (default), frozen, revision:SHA, checkout:PATH, module:Class or an entry point"
READER_LEFT = 128 + 13  # what a shell shows of a program that SIGPIPE ended
EXIT_STATUS = (
    "Exit status: 0 equivalent; 1 different, whether or not the harness had problems besides; 2 no verdict: nothing "
    "differed but a part of the harness failed, or nothing was compared, or what was asked cannot be done."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and give its exit status."""
    parser = build_parser()
    options = parser.parse_args(argv)
    try:
        check_targets(options)
        with redirect_stdout(Output(sys.stdout)) as out:
            status = options.run(options)
            out.flush()
        return READER_LEFT if out.reader_left else status
    except (UsageError, OutputError) as error:
        sys.stderr.write(f"relax-verify {options.verb}: {error}\n")
        return CANNOT_SAY
    except KeyboardInterrupt:
        sys.stderr.write("relax-verify: interrupted, no verdict\n")
        return CANNOT_SAY
    except Exception as error:  # status 1 says "differences", which is more than this knows
        traceback.print_exc()
        sys.stderr.write(f"relax-verify {options.verb}: {type(error).__name__}, no verdict\n")
        return CANNOT_SAY


def build_parser() -> argparse.ArgumentParser:
    """The parser with all verbs; each sets ``run``, a function of the parsed options that gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="relax-verify", description="Proves what relax computes: bits, rounding, invariance, contract."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    told = "all judges on the working tree; the last line is the verdict"
    check = verbs.add_parser(
        "check", help=told, description=f"{told.capitalize()}.", epilog=f"{EXIT_STATUS} {CACHE_TOLD}"
    )
    _add_filters(check)
    check.add_argument("--subject", default="live", help=SUBJECTS)
    check.add_argument("--jobs", type=_positive, metavar="N", help="processes (default: one a core, at most two)")
    add_reports(check)
    _add_quiet(check)
    check.set_defaults(run=_check)
    listed = verbs.add_parser("list", help="the cases there are, one id a line")
    _add_filters(listed)
    add_json(listed)
    listed.set_defaults(run=_list)
    add_explain_commands(verbs)
    conform = verbs.add_parser("conform", help="another implementation against the corpus and the exact values")
    conform.add_argument("subject", metavar="SUBJECT", help="module:Class, or an entry point")
    _add_filters(conform)
    add_json(conform)
    _add_quiet(conform)
    conform.set_defaults(run=_conform)
    for verb in (add_diff_command(verbs), add_ranks_command(verbs), add_device_command(verbs)):
        _add_filters(verb)
        add_reports(verb)
        _add_quiet(verb)
    add_replay_command(verbs)
    add_golden_commands(verbs)
    add_request_command(verbs)
    add_mutants_command(verbs)
    add_bench_command(verbs)
    return parser


def _add_filters(parser: argparse.ArgumentParser) -> None:
    for name, what in (("stage", "stage"), ("algorithm", "algorithm"), ("case", "case id")):
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="GLOB", help=f"only this {what}; may be repeated"
        )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables: the verdict only")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number of processes")
    return number


def _check(options: argparse.Namespace) -> int:
    cases, whole = chosen(options)
    from verification.check import CheckInterrupted, run_check
    from verification.examine import LIVE, subject_named
    from verification.report.as_json import as_json
    from verification.report.check_document import check_document
    from verification.report.terminal import print_report, progress_bar

    quiet = options.quiet or alone(options)
    with progress_bar(f"checking {options.subject}", quiet=quiet) as progress:
        try:
            report = run_check(cases, subject=options.subject, jobs=options.jobs, whole=whole, progress=progress)
        except (ValueError, CheckInterrupted) as error:
            raise UsageError(str(error)) from error
    verb = "check" if options.subject == LIVE else shlex.join(["check", "--subject", options.subject])
    run = subject_named(options.subject).run
    if not alone(options):
        print_report(report, sys.stdout, quiet=options.quiet)
    write_reports(options, lambda: check_document(report, cases, run, verb), lambda: as_json(report))
    return report.exit_code


def _list(options: argparse.Namespace) -> int:
    cases, _ = chosen(options)
    if options.json is not None:
        import json

        listed = [{"id": case.id, "note": case.note, "malformed": case.error is not None} for case in cases]
        write_json(options, lambda: json.dumps(listed, indent=2) + "\n")
    if not alone(options):
        for case in cases:
            sys.stdout.write(f"{case.id}\n")
        sys.stderr.write(f"{len(cases)} cases\n")
    return HOLDS


def _conform(options: argparse.Namespace) -> int:
    cases, _ = chosen(options)
    from dataclasses import asdict

    from verification.conform import conform
    from verification.examine import subject_named
    from verification.report.as_json import strict_json
    from verification.report.terminal import print_conformance, progress_bar

    subject = subject_called(options.subject)
    with progress_bar(f"running {subject.name}", quiet=options.quiet or alone(options)) as progress:
        found = conform(subject, cases, subject_named("live").run, progress)
    findings = [asdict(one) for one in found.findings]
    if not alone(options):
        print_conformance(found, sys.stdout, quiet=options.quiet)
    write_json(options, lambda: strict_json({"subject": found.subject, "findings": findings}))
    if not found.compared:
        raise UsageError(f"{options.subject} has none of the {len(cases)} chosen cases")
    return DIFFERS if found.wrong else HOLDS
