"""``relax-verify device``: the working tree with its tensors on a GPU, or on a device in software."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from verification.usage import UsageError, chosen


def add_device_command(subparsers: Any) -> argparse.ArgumentParser:
    """Adds the verb ``device``, which sets ``run``, a function of the parsed options that gives the exit status.

    The parser that it returns still lacks the filters and outputs that the verbs over cases have in common.
    """
    told = "the formulas on a GPU: the same bits call after call and stream by stream, GDPO's those of the CPU"
    device = subparsers.add_parser("device", help=told, description=f"{told}.")
    device.add_argument(
        "device",
        nargs="?",
        default="cuda",
        metavar="DEVICE",
        help="cuda (default), cuda:N, or pretend: the CPU, refusing as a GPU does to mix tensors of two devices",
    )
    device.set_defaults(run=_device)
    return device


def _device(options: argparse.Namespace) -> int:
    from verification.devices.check import run_device_check
    from verification.devices.device import NoSuchDevice, device_named
    from verification.devices.plan import on_a_device
    from verification.devices.subject import OnDevice
    from verification.examine import LIVE, subject_named
    from verification.report.as_json import as_json
    from verification.report.check_document import check_document
    from verification.report.outputs import alone, write_reports
    from verification.report.terminal import print_report, progress_bar

    try:
        device = device_named(options.device)
    except NoSuchDevice as error:
        raise UsageError(str(error)) from error
    cases = on_a_device(chosen(options)[0])
    if not cases:
        raise UsageError("none of the chosen cases has tensors to put on a device")
    with progress_bar(f"checking on {device.name}", quiet=options.quiet or alone(options)) as progress:
        report = run_device_check(device, cases, progress)
    run = OnDevice(subject_named(LIVE), device).run
    if not alone(options):
        print_report(report, sys.stdout, quiet=options.quiet)
    write_reports(
        options,
        lambda: check_document(report, cases, run, f"device {device.name}"),
        lambda: as_json(report),
    )
    return report.exit_code
