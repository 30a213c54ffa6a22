"""``relax-verify golden``: record, look, then accept or reject. Each step is one command that asks nothing."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verification.goldens.changes import Change

_SHOWN = 20


def add_golden_commands(subparsers: Any) -> None:
    """Adds the verb ``golden`` with its own verbs. Each sets ``run``: a function of the arguments to an exit status."""
    golden = subparsers.add_parser(
        "golden", help="record the goldens anew, see what would change, accept or reject it", description=__doc__
    )
    verbs = golden.add_subparsers(dest="golden_command", required=True, metavar="{regen,diff,accept,reject}")
    regen = verbs.add_parser("regen", help="record every case into the staging folder")
    regen.add_argument("--baseline", required=True, metavar="SHA", help="the commit to record; it must be checked out")
    regen.add_argument("--device", metavar="NAME", help="cuda or cuda:N: the cases with tensors, on a GPU")
    regen.set_defaults(run=_guarded(_regen))
    diff = verbs.add_parser("diff", help="what the staged recording changes, by stage and in ulps")
    diff.add_argument("--json", action="store_true", help="print the changes as JSON")
    diff.set_defaults(run=_guarded(_diff))
    accept = verbs.add_parser("accept", help="make the staged recording the goldens")
    accept.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="only cases whose id matches")
    accept.set_defaults(run=_guarded(_accept))
    reject = verbs.add_parser("reject", help="drop the staged recording")
    reject.set_defaults(run=_guarded(_reject))


def _guarded(command):
    """The command with its refusals as one line on stderr and exit status 2."""

    def run(arguments: argparse.Namespace) -> int:
        from verification.devices.device import NoSuchDevice
        from verification.goldens.parse import GoldenFormatError
        from verification.goldens.provenance import ProvenanceError
        from verification.goldens.staging import RecordingError
        from verification.revisions.checkout import CheckoutError

        try:
            return command(arguments)
        except (OSError, CheckoutError, GoldenFormatError, NoSuchDevice, ProvenanceError, RecordingError) as refusal:
            print(f"relax-verify golden: {refusal}", file=sys.stderr)
            return 2

    return run


def _regen(arguments: argparse.Namespace) -> int:
    from verification.cases import corpus
    from verification.devices.device import recordable
    from verification.devices.plan import with_tensors
    from verification.devices.subject import OnDevice
    from verification.goldens.guard import permit
    from verification.goldens.staging import record
    from verification.revisions.checkout import Checkout
    from verification.subjects.live import live_subject

    device = None if arguments.device is None else recordable(arguments.device)
    granted = permit(Checkout.here(), arguments.baseline)
    if device is None:
        staged = record(granted, corpus(), live_subject(), _progress)
    else:
        on_device = OnDevice(live_subject(), device)
        staged = record(granted, with_tensors(corpus()), on_device, _progress, device=device.name)
    print(f"recorded {len(list(staged.entries()))} goldens of {granted.baseline[:12]}: see them with golden diff")
    return 0


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total} cases", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _diff(arguments: argparse.Namespace) -> int:
    from verification.goldens.changes import changes
    from verification.goldens.compare import default_store
    from verification.goldens.staging import staged, staged_recording
    from verification.revisions.checkout import Checkout

    checkout = Checkout.here()
    found = changes(default_store(), staged(checkout), staged_recording(checkout).platform)
    differing = [change for change in found if change.kind != "same"]
    if arguments.json:
        print(json.dumps([asdict(change) for change in differing], indent=2))
    else:
        _print_summary(found)
        _print_list(differing)
    return 1 if differing else 0


def _accept(arguments: argparse.Namespace) -> int:
    from verification.goldens.changes import accept
    from verification.goldens.guard import permit
    from verification.goldens.staging import RecordingError, drop, staged, staged_recording
    from verification.revisions.checkout import Checkout

    checkout = Checkout.here()
    store, recording = staged(checkout), staged_recording(checkout)
    granted = permit(checkout, recording.baseline, ignore=checkout.golden.name)
    taken = accept(granted, store, recording, arguments.pattern)
    if not taken:
        raise RecordingError(f"no case matches {arguments.pattern!r}: nothing was accepted")
    _print_summary(taken)
    if arguments.pattern == "*":
        drop(checkout)
    print(f"accepted {len(taken)} goldens: commit the folder {checkout.golden.name}/")
    return 0


def _reject(arguments: argparse.Namespace) -> int:
    from verification.goldens.staging import drop
    from verification.revisions.checkout import Checkout

    print("dropped the staged recording" if drop(Checkout.here()) else "nothing was staged")
    return 0


def _print_summary(found: list[Change]) -> None:
    from verification.goldens.changes import KINDS, by_stage

    print(f"{'stage':<22}" + "".join(f"{kind:>11}" for kind in KINDS) + f"{'max ulps':>12}")
    for summary in by_stage(found):
        counts = "".join(f"{summary.counts[kind]:>11}" for kind in KINDS)
        ulps = "-" if summary.ulps is None else f"{summary.ulps:.6g}"
        print(f"{summary.stage:<22}{counts}{ulps:>12}")


def _print_list(differing: list[Change]) -> None:
    for change in sorted(differing, key=lambda change: -(change.ulps or 0.0))[:_SHOWN]:
        distance = "" if change.ulps is None else f", {change.ulps:.6g} ulps"
        print(f"{change.kind} {change.case} ({change.platform}{distance}) {change.detail}".rstrip())
    if len(differing) > _SHOWN:
        print(f"... and {len(differing) - _SHOWN} more: golden diff --json lists them all")
