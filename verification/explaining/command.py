"""``relax-verify show`` and ``relax-verify explain``: one case, by its id, or out of a bundle."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.report.outputs import add_json, add_reports, alone, write_json, write_reports
from verification.usage import UsageError, one_of, subject_called

if TYPE_CHECKING:
    from verification.cases.case import Case


def add_explain_commands(subparsers: Any) -> None:
    """Adds the verbs; each sets ``run``, a function of the parsed options that gives the exit status."""
    show = subparsers.add_parser("show", help="the input of one case")
    show.add_argument("case", metavar="CASE")
    add_json(show)
    show.set_defaults(run=_show)
    told = "one case: input, every subject's result in bits, where they part, what the judges say"
    explain = subparsers.add_parser("explain", help=told, description=f"{told.capitalize()}.")
    explain.add_argument(
        "case", metavar="CASE", nargs="?", help="an id of `list`, or of `ranks --list`; with --input one in the bundle"
    )
    explain.add_argument(
        "--subject",
        action="append",
        default=[],
        metavar="SUBJECT",
        help="explain this one beside the working tree: frozen, revision:SHA, checkout:PATH, module:Class or an entry "
        "point; may be repeated",
    )
    explain.add_argument("--input", metavar="FOLDER", help="a bundle of cases, as `diff` writes the shrunk ones")
    add_reports(explain)
    explain.set_defaults(run=_explain)


def _show(options: argparse.Namespace) -> int:
    case = _of_corpus(options.case)
    from verification.explaining.inputs import case_as_data, case_sheets
    from verification.report.as_json import strict_json
    from verification.report.text import lines

    if not alone(options):
        sys.stdout.writelines(f"{line}\n" for line in lines(case_sheets(case)))
    write_json(options, lambda: strict_json(case_as_data(case)))
    return 0


def _explain(options: argparse.Namespace) -> int:
    if options.input is None and "@" in (options.case or ""):
        from verification.ranks.cli import explain_rank_case

        return explain_rank_case(options)
    case = _of_corpus(options.case) if options.input is None else _of_bundle(options.input, options.case)
    from verification.explaining.as_json import explanation_as_dict
    from verification.explaining.explanation import lay_open
    from verification.explaining.page import document_of
    from verification.explaining.tables import sheets
    from verification.report.as_json import strict_json
    from verification.report.text import lines

    for name in options.subject:
        subject_called(name)
    explanation = lay_open(case, options.subject, bundle=options.input)
    if not alone(options):
        sys.stdout.writelines(f"{line}\n" for line in lines(sheets(explanation)))
        sys.stdout.write(f"\n{explanation.verdict}\n")
    write_reports(options, lambda: document_of(explanation), lambda: strict_json(explanation_as_dict(explanation)))
    return explanation.exit_code


def _of_corpus(name: str | None) -> Case:
    from verification.cases import corpus

    return _one(name, corpus(), "corpus")


def _of_bundle(folder: str, name: str | None) -> Case:
    """A case of a bundle; the only one of a bundle that holds one need not be named."""
    from verification.bundles import BundleError, read_cases

    try:
        cases = read_cases(Path(folder))
    except BundleError as error:
        raise UsageError(str(error)) from error
    return cases[0] if name is None and len(cases) == 1 else _one(name, cases, "bundle")


def _one(name: str | None, cases: Sequence[Case], where: str) -> Case:
    known = {case.id: case for case in cases}
    if name is None:
        raise UsageError(f"name a case; the {where} holds {len(known)}, for instance {next(iter(known), 'none')}")
    return one_of(name, known, "case")
