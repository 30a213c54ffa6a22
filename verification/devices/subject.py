"""A subject whose tensors are on a device, made from one that runs in this process."""

from __future__ import annotations

from verification.cases.case import Case
from verification.devices.device import Device
from verification.subjects.in_process import Implementation
from verification.subjects.outcome import Outcome
from verification.subjects.protocol import Subject


class OnDevice:
    """The public calls of ``subject``, given their tensors on ``device``; outcomes are back on the CPU."""

    def __init__(self, subject: Subject, device: Device) -> None:
        if not isinstance(subject, Implementation):
            raise TypeError(f"subject {subject.name} runs its cases itself: only public calls can be given a device")
        self.subject, self.device = subject, device
        self.name = f"{subject.name} on {device.name}"

    def run(self, case: Case, *, lane: str | None = None, watch: bool = True) -> Outcome | None:
        """The outcome of a call on one of the device's lanes, the first one unless it is named."""
        with self.device.lanes[lane or next(iter(self.device.lanes))]():
            return self.subject.run(case, watch=watch, place=self.device.place)
