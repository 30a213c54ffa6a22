"""The check of a device: every case that it can show something of, gathered into one report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from verification.cases.case import Case
from verification.check import environment
from verification.devices.device import Device
from verification.devices.examine import examine_on
from verification.examine import LIVE, Examined
from verification.goldens.platform import platform_key
from verification.report.summary import Report, merge_measured


def run_device_check(
    device: Device, cases: Sequence[Case], progress: Callable[[int, int], None] = lambda done, total: None
) -> Report:
    """Judge the working tree on ``cases``, in this process: a device is not shared out."""
    started = time.monotonic()
    found = Examined()
    for done, case in enumerate(cases, start=1):
        found.add(examine_on(device, case))
        progress(done, len(cases))
    key = platform_key("cpu" if device.as_cpu else device.name)
    return Report(
        subject=f"{LIVE} on {device.name}",
        comparisons=tuple(sorted(found.comparisons, key=lambda one: (one.stage, one.algorithm, one.case))),
        problems=tuple(found.problems),
        cases=len(cases),
        formulas=merge_measured(found.measured),
        goldens=found.goldens,
        absent=found.absent,
        environment={**environment(), "platform": key, "device": device.name, **device.facts},
        elapsed=time.monotonic() - started,
    )
