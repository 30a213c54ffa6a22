"""``relax-verify ranks``: the cases of one rank on real ranks, over every layout."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from verification.usage import UsageError, narrowed, one_of

if TYPE_CHECKING:
    from verification.ranks.cases import RankCase


def add_ranks_command(subparsers: Any) -> argparse.ArgumentParser:
    """Adds the verb ``ranks``, which sets ``run``, a function of the parsed options that gives the exit status.

    The parser that it returns still lacks the filters and outputs that the verbs over cases have in common.
    """
    told = "the corpus on real ranks: data, tensor, context and pipeline parallelism against one rank"
    ranks = subparsers.add_parser("ranks", help=told, description=f"{told.capitalize()}.")
    ranks.add_argument(
        "--layout", action="append", default=[], metavar="GLOB", help="only this layout, as dp2-cp2; may be repeated"
    )
    ranks.add_argument("--jobs", type=int, default=1, metavar="N", help="worlds that work at a time (default: 1)")
    ranks.add_argument("--list", action="store_true", help="show the rank cases there are, and run none")
    ranks.set_defaults(run=_ranks)
    return ranks


def _ranks(options: argparse.Namespace) -> int:
    if options.jobs < 1:
        raise UsageError(f"--jobs {options.jobs} is not a positive number of worlds")
    if options.list:
        cases = chosen(options)
        sys.stdout.writelines(f"{case.id}\n" for case in cases)
        sys.stderr.write(f"{len(cases)} rank cases\n")
        return 0
    _require_megatron()
    from verification.ranks.pool import RankPool

    with RankPool():  # whose server imports while the cases are gathered
        return _run(options, chosen(options))


def _require_megatron() -> None:
    if importlib.util.find_spec("megatron") is None:
        raise UsageError("megatron-core is not installed: pip install -c constraints.txt -e '.[verify,megatron]'")


def chosen(options: argparse.Namespace) -> list[RankCase]:
    """The rank cases that the filters leave; a UsageError where there is none."""
    from verification.ranks.cases import rank_cases
    from verification.selection import matches

    on_layouts = {case.id: case for case in rank_cases() if matches(case.layout.name, options.layout)}
    if not on_layouts:
        layouts = ", ".join(sorted({case.layout.name for case in rank_cases()}))
        raise UsageError(f"no rank case has layout {' '.join(options.layout)}; layouts are {layouts}")
    return [on_layouts[case.id] for case in narrowed(options, [case.about for case in on_layouts.values()])]


def _run(options: argparse.Namespace, cases: list[RankCase]) -> int:
    from verification.ranks.report import rank_document, report_as_dict, sheets
    from verification.ranks.run import run_rank_cases
    from verification.report.as_json import strict_json
    from verification.report.outputs import alone, write_reports
    from verification.report.terminal import print_report, progress_bar

    with progress_bar("running on ranks", quiet=options.quiet or alone(options)) as progress:
        report = run_rank_cases(cases, jobs=options.jobs, progress=progress)
    if not alone(options):
        print_report(report, sys.stdout, quiet=options.quiet, tables=sheets(report))
    write_reports(options, lambda: rank_document(report, cases), lambda: strict_json(report_as_dict(report)))
    return report.exit_code


def explain_rank_case(options: argparse.Namespace) -> int:
    """Runs one rank case and shows all there is to see; the exit status of the verb ``explain``."""
    from verification.ranks.cases import rank_cases
    from verification.ranks.explain import as_dict, document_of, sheets
    from verification.ranks.judge import judge_run
    from verification.ranks.pool import RankPool
    from verification.ranks.reference import reference
    from verification.ranks.run import run_case
    from verification.report.as_json import strict_json
    from verification.report.outputs import alone, write_reports
    from verification.report.text import lines

    if options.subject:
        raise UsageError("a rank case runs the working tree on its ranks: it takes no --subject")
    case = one_of(options.case, {case.id: case for case in rank_cases()}, "rank case")
    _require_megatron()
    with RankPool() as pool:
        run = run_case(case, pool)
    judged = judge_run(case, run, lambda: reference(case))
    document = document_of(case, run, judged)
    if not alone(options):
        sys.stdout.writelines(f"{line}\n" for line in lines(sheets(case, run, judged)))
        sys.stdout.write(f"\n{document.verdict}\n")
    write_reports(options, lambda: document, lambda: strict_json(as_dict(case, run, judged)))
    return document.exit_code
