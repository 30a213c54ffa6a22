"""``relax-verify golden``: record, look, accept or reject, verify. Each step is one command that asks nothing."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from verification.report.outputs import add_reports

if TYPE_CHECKING:
    from verification.cases.case import Case
    from verification.goldens.changes import Change

_SHOWN = 20
Command = Callable[[argparse.Namespace], int]


def add_golden_commands(subparsers: Any) -> None:
    """Adds the verb ``golden`` with its own verbs. Each sets ``run``: a function of the arguments to an exit status."""
    golden = subparsers.add_parser(
        "golden", help="record the goldens anew, see what would change, accept, reject or verify", description=__doc__
    )
    verbs = golden.add_subparsers(dest="golden_command", required=True, metavar="{regen,diff,accept,reject,verify}")
    regen = verbs.add_parser("regen", help="record every case into the staging folder")
    regen.add_argument("--baseline", required=True, metavar="SHA", help="the commit whose relax/ is recorded")
    regen.add_argument("--device", metavar="NAME", help="cuda or cuda:N: the cases with tensors, on a GPU")
    regen.set_defaults(run=_guarded(_regen))
    diff = verbs.add_parser("diff", help="what the staged recording changes, by stage and in ulps")
    add_reports(diff)
    diff.set_defaults(run=_guarded(_diff))
    accept = verbs.add_parser("accept", help="make the staged recording the goldens")
    accept.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="only cases whose id matches")
    accept.set_defaults(run=_guarded(_accept))
    reject = verbs.add_parser("reject", help="drop the staged recording")
    reject.set_defaults(run=_guarded(_reject))
    verify = verbs.add_parser("verify", help="record the goldens anew from their own baselines: every byte comes out")
    verify.add_argument("--baseline", metavar="SHA", help="only the goldens that were recorded from this commit")
    add_reports(verify)
    verify.set_defaults(run=_guarded(_verify))


def _guarded(command: Command) -> Command:
    """The command with its refusals as one line on stderr and exit status 2."""

    def run(arguments: argparse.Namespace) -> int:
        from verification.devices.device import NoSuchDevice
        from verification.goldens.locked import Busy
        from verification.goldens.parse import GoldenFormatError
        from verification.goldens.provenance import ProvenanceError
        from verification.goldens.staging import RecordingError
        from verification.revisions.checkout import CheckoutError
        from verification.subjects.process import SubjectFailed

        known = (Busy, CheckoutError, GoldenFormatError, NoSuchDevice, ProvenanceError, RecordingError, SubjectFailed)
        try:
            return command(arguments)
        except (OSError, *known) as refusal:
            print(f"relax-verify golden: {refusal}", file=sys.stderr)
            return 2

    return run


def _regen(arguments: argparse.Namespace) -> int:
    from verification.cases import corpus
    from verification.devices.device import recordable
    from verification.devices.plan import with_tensors
    from verification.devices.subject import OnDevice
    from verification.goldens.guard import WriteRefused, permit
    from verification.goldens.locked import locked
    from verification.goldens.staging import record
    from verification.goldens.twice import in_process, in_processes
    from verification.report.terminal import progress_bar
    from verification.revisions.checkout import Checkout
    from verification.revisions.source import of_revision
    from verification.subjects.live import live_subject

    device = None if arguments.device is None else recordable(arguments.device)
    checkout, started = Checkout.here(), time.monotonic()
    granted = permit(checkout, arguments.baseline)
    with locked(checkout), progress_bar(f"recording {granted.baseline[:12]}", quiet=False) as progress:
        if device is None:
            cases: Sequence[Case] = corpus()
            staged = record(granted, cases, in_processes(of_revision(granted.baseline, checkout)), progress)
        else:
            if granted.baseline != checkout.commit():
                raise WriteRefused(f"on {device.name} only what is checked out is recorded: give --baseline HEAD")
            cases, runs = with_tensors(corpus()), in_process(OnDevice(live_subject(), device))
            staged = record(granted, cases, runs, progress, device=device.name)
    count = len(list(staged.entries()))
    absent = f", {len(cases) - count} cases are not there in it" if count < len(cases) else ""
    elapsed = time.monotonic() - started
    print(f"recorded {count} goldens of {granted.baseline[:12]}{absent}, {elapsed:.0f} s: see them with golden diff")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from verification.cases import corpus
    from verification.goldens.changes import SAME, changes
    from verification.goldens.compare import default_store
    from verification.goldens.documents import changes_document, changes_verdict
    from verification.goldens.staging import staged, staged_recording
    from verification.report.as_json import strict_json
    from verification.report.outputs import alone, write_reports
    from verification.report.terminal import print_verdict
    from verification.revisions.checkout import Checkout

    checkout = Checkout.here()
    recording = staged_recording(checkout)
    old, new, cases = default_store(), staged(checkout), {case.id: case for case in corpus()}
    found = changes(old, new, recording.platform, cases)
    differing = [change for change in found if change.kind != SAME]
    if not alone(arguments):
        _print_changes(found)
        print_verdict(changes_verdict(found), sys.stdout, holds=not differing)
    write_reports(
        arguments,
        lambda: changes_document(found, recording.baseline, old, new, cases),
        lambda: strict_json([asdict(change) for change in differing]),
    )
    return 1 if differing else 0


def _accept(arguments: argparse.Namespace) -> int:
    from verification.cases import corpus
    from verification.devices.plan import with_tensors
    from verification.goldens.changes import SAME, accept
    from verification.goldens.guard import permit
    from verification.goldens.locked import locked
    from verification.goldens.staging import RecordingError, drop, require_current, staged, staged_recording
    from verification.revisions.checkout import Checkout

    checkout = Checkout.here()
    with locked(checkout):
        store, recording = staged(checkout), staged_recording(checkout)
        granted = permit(checkout, recording.baseline, ignore=checkout.golden.name)
        cases: Sequence[Case] = corpus()
        require_current(recording, cases if recording.platform.startswith("cpu-") else with_tensors(cases))
        taken = accept(granted, store, recording, {case.id for case in cases}, arguments.pattern)
        if arguments.pattern == "*":
            drop(checkout)
        elif not taken:
            raise RecordingError(
                f"nothing to accept: no case matches {arguments.pattern!r}, or all that do were accepted"
            )
    changed = [change for change in taken if change.kind != SAME]
    if changed:
        _print_changes(changed)
    said = f"accepted {len(changed)} changes; {len(taken) - len(changed)} goldens keep their bytes"
    print(f"{said} and now count as recorded from {recording.baseline[:12]}: commit the folder {checkout.golden.name}/")
    return 0


def _reject(arguments: argparse.Namespace) -> int:
    from verification.goldens.guard import refuse_under_ci
    from verification.goldens.locked import locked
    from verification.goldens.staging import drop
    from verification.revisions.checkout import Checkout

    refuse_under_ci(os.environ)
    checkout = Checkout.here()
    with locked(checkout):
        print("dropped the staged recording" if drop(checkout) else "nothing was staged")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from verification.cases import corpus
    from verification.goldens.compare import default_store
    from verification.goldens.documents import verification_document, verification_sheets
    from verification.goldens.platform import platform_key
    from verification.goldens.staging import RecordingError
    from verification.goldens.verify import outcomes_of_revisions, verify
    from verification.report.as_json import strict_json
    from verification.report.outputs import alone, write_reports
    from verification.report.terminal import print_sheets, print_verdict, progress_bar
    from verification.revisions.checkout import Checkout

    checkout, key, started = Checkout.here(), platform_key(), time.monotonic()
    baseline = None if arguments.baseline is None else checkout.commit(arguments.baseline)
    with progress_bar("recording the baselines anew", quiet=alone(arguments)) as progress:
        asked = outcomes_of_revisions(checkout, progress)
        found = verify(checkout, default_store(), corpus(), key, asked, baseline=baseline)
    if baseline is not None and not found.checked:
        raise RecordingError(f"no golden was recorded from {arguments.baseline} ({baseline[:12]})")
    elapsed = time.monotonic() - started
    as_dict = {"verdict": found.verdict, "exit_code": found.exit_code, "platform": key, "counts": dict(found.counts)}
    if not alone(arguments):
        print_sheets(verification_sheets(found), sys.stdout)
        for one in found.wrong[:_SHOWN]:
            print(f"{one.found.upper()} {one.case} ({one.platform}) {one.detail}".rstrip())
        if len(found.wrong) > _SHOWN:
            print(f"... and {len(found.wrong) - _SHOWN} more: --json FILE lists them all")
        print(f"platform {key}, {elapsed:.1f} s")
        print_verdict(found.verdict, sys.stdout, holds=found.exit_code == 0)
    write_reports(
        arguments,
        lambda: verification_document(found, key, elapsed),
        lambda: strict_json({**as_dict, "wrong": [asdict(one) for one in found.wrong], "elapsed_s": round(elapsed, 3)}),
    )
    return found.exit_code


def _print_changes(found: list[Change]) -> None:
    """The table by stage, then the changes that are largest in ulps."""
    from verification.goldens.changes import SAME
    from verification.goldens.documents import changes_sheet
    from verification.report.terminal import print_sheets

    print_sheets([changes_sheet(found)], sys.stdout)
    differing = sorted((one for one in found if one.kind != SAME), key=lambda one: -(one.ulps or 0.0))
    for change in differing[:_SHOWN]:
        distance = "" if change.ulps is None else f", {change.ulps:.6g} ulps"
        print(f"{change.kind} {change.case} ({change.platform}{distance}) {change.detail}".rstrip())
    if len(differing) > _SHOWN:
        print(f"... and {len(differing) - _SHOWN} more: golden diff --json lists them all")
