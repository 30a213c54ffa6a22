"""One case on a device through the judges: its repeats, its place, the CPU's bits where they are due, exact values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from verification.cases.case import Case
from verification.devices.device import Device
from verification.devices.gdpo_steps import judge_steps
from verification.devices.plan import TENSOR_STAGES
from verification.devices.subject import OnDevice
from verification.examine import COMPARED, FROZEN, LIVE, NO_GOLDEN, Examined, guarded, rounded, subject_named
from verification.goldens.compare import UNRECORDED, compare_with_golden, default_store, unrecorded
from verification.goldens.platform import holds_everywhere, platform_key
from verification.judges.bits import judge_bits
from verification.judges.comparison import Comparison
from verification.judges.contract import judge_contract
from verification.subjects.outcome import Outcome


def examine_on(device: Device, case: Case, subject: str = LIVE) -> Examined:
    """What the judges found on ``case`` with its tensors on ``device``."""
    found = Examined()
    guarded(found, case, "GDPO's steps", lambda: found.comparisons.extend(judge_steps(case, device)))
    if case.stage not in TENSOR_STAGES:
        return found
    run = OnDevice(subject_named(subject), device).run
    outcome = guarded(found, case, "subject", lambda: run(case))
    if outcome is None:
        return found
    steps: dict[str, Callable[[], None]] = {
        "placement": lambda: found.comparisons.append(_placement(case, outcome, device)),
        "determinism": lambda: found.comparisons.extend(_repeats(case, outcome, device, run)),
        "bits against the CPU": lambda: found.comparisons.extend(_cpu(case, outcome, device, subject)),
        "bits against frozen": lambda: _frozen(found, case, outcome, device),
        "bits against golden": lambda: _golden(found, case, outcome, device),
        "rounding": lambda: rounded(found, case, outcome),
        "contract": lambda: found.comparisons.extend(judge_contract(case, outcome)),
    }
    for where, step in steps.items():
        guarded(found, case, where, step)
    return found


def _placement(case: Case, outcome: Outcome, device: Device) -> Comparison:
    """Results are where the inputs were: one on the host would be copied back and forth at each step."""
    left = f"on another device than the inputs: {', '.join(outcome.elsewhere)}" if outcome.elsewhere else ""
    return Comparison(case.id, case.stage, case.algorithm, "placement", device.name, "results", not left, None, left)


def _repeats(case: Case, outcome: Outcome, device: Device, run: Callable[..., Outcome | None]) -> Iterator[Comparison]:
    """The same bits, call after call, on every lane of the device."""
    first = replace(outcome, mutated={}, aliases=frozenset())
    for lane in device.lanes:
        detail = ""
        for number in range(device.rounds):
            judged = judge_bits(case, run(case, lane=lane, watch=False) or Outcome(), first, "its first call")
            differing = [one for one in judged if not one.agrees]
            if differing and not detail:
                detail = f"call {number + 1}: {differing[0].what}: {differing[0].detail}"
        yield Comparison(
            case.id, case.stage, case.algorithm, "determinism", "its first call", lane, not detail, None, detail
        )


def _cpu(case: Case, outcome: Outcome, device: Device, subject: str) -> list[Comparison]:
    """The CPU's bits: of what is correctly rounded or refused, and of everything where the CPU's kernels compute."""
    if not (device.as_cpu or holds_everywhere(case)):
        return []
    reference = subject_named(subject).run(case)
    return [] if reference is None else judge_bits(case, outcome, reference, "the CPU")


def _frozen(found: Examined, case: Case, outcome: Outcome, device: Device) -> None:
    """The frozen copies on the same device; they are not there where they go to the CPU, as they do for GAE."""
    reference = OnDevice(subject_named(FROZEN), device).run(case)
    if reference is None or reference.elsewhere:
        found.absent[FROZEN] = 1
        return
    found.comparisons.extend(judge_bits(case, outcome, reference, FROZEN))


def _golden(found: Examined, case: Case, outcome: Outcome, device: Device) -> None:
    key = platform_key("cpu" if device.as_cpu else device.name)
    compared = compare_with_golden(case, outcome, default_store(), key=key)
    found.goldens[NO_GOLDEN if compared is None else UNRECORDED if unrecorded(compared) else COMPARED] = 1
    found.comparisons.extend(compared or ())
