"""``relax-verify``: the command line of the harness. Exit status: 0 holds, 1 differences, 2 usage or environment.

Nothing here imports torch before a verb needs it.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.bench.cli import add_bench_command
from verification.devices.cli import add_device_command
from verification.goldens.cli import add_golden_commands
from verification.mutants.cli import add_mutants_command
from verification.ranks.cli import add_ranks_command

if TYPE_CHECKING:
    from verification.cases.case import Case

HOLDS, DIFFERS, CANNOT_SAY = 0, 1, 2
EXIT_STATUS = (
    "Exit status: 0 equivalent; 1 different, whether or not the harness had problems besides; 2 no verdict: nothing "
    "differed but a part of the harness failed, or nothing was compared, or what was asked cannot be done."
)


class UsageError(Exception):
    """What was asked cannot be done; the message says why and what can."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and give its exit status."""
    parser = build_parser()
    options = parser.parse_args(argv)
    try:
        return options.run(options)
    except UsageError as error:
        sys.stderr.write(f"relax-verify {options.verb}: {error}\n")
        return CANNOT_SAY
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
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
    check = verbs.add_parser("check", help=told, description=f"{told.capitalize()}.", epilog=EXIT_STATUS)
    _add_filters(check)
    check.add_argument("--subject", default="live", help="live (default), frozen, module:Class or an entry point")
    check.add_argument("--jobs", type=_positive, metavar="N", help="processes (default: one a core, at most two)")
    _add_output(check)
    check.set_defaults(run=_check)
    listed = verbs.add_parser("list", help="the cases there are, one id a line")
    _add_filters(listed)
    _add_json(listed)
    listed.set_defaults(run=_list)
    show = verbs.add_parser("show", help="the input of one case")
    show.add_argument("case", metavar="CASE")
    _add_json(show)
    show.set_defaults(run=_show)
    explain = verbs.add_parser("explain", help="one case: input, every subject's result in bits, where they part")
    explain.add_argument("case", metavar="CASE", help="an id of `list`, or of `ranks --list`")
    explain.add_argument("--subject", default="live", help="the subject to explain (default: live)")
    explain.set_defaults(run=_explain)
    conform = verbs.add_parser("conform", help="another implementation against the corpus and the exact values")
    conform.add_argument("subject", metavar="SUBJECT", help="module:Class, or an entry point")
    _add_filters(conform)
    _add_output(conform)
    conform.set_defaults(run=_conform)
    for verb in (add_ranks_command(verbs), add_device_command(verbs)):
        _add_filters(verb)
        _add_output(verb)
    add_golden_commands(verbs)
    add_mutants_command(verbs)
    add_bench_command(verbs)
    return parser


def _add_filters(parser: argparse.ArgumentParser) -> None:
    for name, what in (("stage", "stage"), ("algorithm", "algorithm"), ("case", "case id")):
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="GLOB", help=f"only this {what}; may be repeated"
        )


def _add_output(parser: argparse.ArgumentParser) -> None:
    _add_json(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables: the verdict only")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON to FILE beside the text, or alone to standard output"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number of processes")
    return number


def _check(options: argparse.Namespace) -> int:
    cases, whole = chosen(options)
    from verification.check import CheckInterrupted, run_check
    from verification.report.as_json import as_json
    from verification.report.terminal import print_report, progress_bar

    quiet = options.quiet or options.json == "-"
    with progress_bar(f"checking {options.subject}", quiet=quiet) as progress:
        try:
            report = run_check(cases, subject=options.subject, jobs=options.jobs, whole=whole, progress=progress)
        except (ValueError, CheckInterrupted) as error:
            raise UsageError(str(error)) from error
    write_json(options, lambda: as_json(report))
    if options.json != "-":
        print_report(report, sys.stdout, quiet=options.quiet)
    return report.exit_code


def _list(options: argparse.Namespace) -> int:
    cases, _ = chosen(options)
    if options.json is not None:
        import json

        listed = [{"id": case.id, "note": case.note, "malformed": case.error is not None} for case in cases]
        write_json(options, lambda: json.dumps(listed, indent=2) + "\n")
    if options.json != "-":
        for case in cases:
            sys.stdout.write(f"{case.id}\n")
        sys.stderr.write(f"{len(cases)} cases\n")
    return HOLDS


def _show(options: argparse.Namespace) -> int:
    case = _one_case(options.case)
    from verification.explain import describe, describe_as_json

    write_json(options, lambda: describe_as_json(case) + "\n")
    if options.json != "-":
        sys.stdout.writelines(f"{line}\n" for line in describe(case))
    return HOLDS


def _explain(options: argparse.Namespace) -> int:
    if "@" in options.case:
        from verification.ranks.cli import explain_rank_case

        return explain_rank_case(options.case)
    case = _one_case(options.case)
    from verification.examine import examine, subject_named
    from verification.explain import explain
    from verification.goldens.compare import UNRECORDED, default_store
    from verification.goldens.platform import platform_of
    from verification.report.terminal import difference_lines, problem_lines

    subject = _subject(options.subject)
    outcomes: dict[str, Any] = {options.subject: subject.run(case), "frozen": subject_named("frozen").run(case)}
    store, platform = default_store(), platform_of(case)
    golden = store.read(case.id, platform)
    missing = UNRECORDED if store.has_platform(platform) else "no golden here"
    outcomes["golden"] = None if golden is None else golden.outcome
    sys.stdout.writelines(f"{line}\n" for line in explain(case, outcomes))
    where = store.path(case.id, platform) if golden else f"{missing} (platform {platform})"
    sys.stdout.write(f"golden: {where}\n")
    found = examine(case, options.subject)
    differing = tuple(one for one in found.comparisons if not one.agrees)
    sys.stdout.write(f"judges: {len(found.comparisons)} comparisons, {len(differing)} differences\n")
    sys.stdout.writelines(f"{line}\n" for line in difference_lines(differing) + problem_lines(tuple(found.problems)))
    if differing:
        return DIFFERS
    if found.comparisons and not found.problems:
        return HOLDS
    sys.stdout.write("no verdict: " + ("the harness failed" if found.problems else "nothing was compared") + "\n")
    return CANNOT_SAY


def _conform(options: argparse.Namespace) -> int:
    cases, _ = chosen(options)
    from dataclasses import asdict

    from verification.conform import conform
    from verification.examine import subject_named
    from verification.report.as_json import strict_json
    from verification.report.terminal import print_conformance, progress_bar

    subject = _subject(options.subject)
    with progress_bar(f"running {subject.name}", quiet=options.quiet or options.json == "-") as progress:
        found = conform(subject, cases, subject_named("live").run, progress)
    findings = [asdict(one) for one in found.findings]
    write_json(options, lambda: strict_json({"subject": found.subject, "findings": findings}))
    if options.json != "-":
        print_conformance(found, sys.stdout, quiet=options.quiet)
    if not found.compared:
        raise UsageError(f"{options.subject} has none of the {len(cases)} chosen cases")
    return DIFFERS if found.wrong else HOLDS


def chosen(options: argparse.Namespace) -> tuple[list[Case], bool]:
    """The cases that the filters leave, and whether that is the whole corpus."""
    from verification.cases import corpus
    from verification.selection import NothingChosen, choose

    filters = {"stages": options.stage, "algorithms": options.algorithm, "patterns": options.case}
    try:
        return choose(corpus(), **filters), not any(filters.values())
    except NothingChosen as error:
        raise UsageError(str(error)) from error


def _one_case(name: str) -> Case:
    from verification.cases import corpus
    from verification.selection import closest

    cases = {case.id: case for case in corpus()}
    if name not in cases:
        close = closest(name, list(cases))
        raise UsageError(f"no case {name!r}" + (f"; closest: {', '.join(close)}" if close else ""))
    return cases[name]


def _subject(name: str) -> Any:
    from verification.examine import subject_named

    try:
        return subject_named(name)
    except ValueError as error:
        raise UsageError(str(error)) from error


def write_json(options: argparse.Namespace, text: Callable[[], str]) -> None:
    """JSON where it was asked for: standard output for ``-``, else a file."""
    if options.json is None:
        return
    if options.json == "-":
        sys.stdout.write(text())
        return
    try:
        Path(options.json).write_text(text(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {options.json}: {error.strerror}") from error
