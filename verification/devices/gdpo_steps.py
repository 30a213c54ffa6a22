"""GDPO's steps as calls on tensors: wherever those are, the results have the bits that they have on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from relax.algorithms.exact import combine_group, whiten_segments
from relax.algorithms.reward_inputs import component_weights
from relax.algorithms.spec import get_algorithm
from verification.cases.case import Case
from verification.devices.device import Device
from verification.devices.plan import combines_components
from verification.judges.bits import judge_bits
from verification.judges.comparison import Comparison
from verification.subjects.outcome import Outcome


def judge_steps(case: Case, device: Device) -> list[Comparison]:
    """Steps 1 and 2 of each prompt group, or step 3 of the optimizer batches; nothing for a case that has neither."""
    expected = steps(case, lambda tensor: tensor)
    if not expected:
        return []
    with next(iter(device.lanes.values()))():
        got = steps(case, device.place)
    return judge_bits(case, Outcome(arrays=got), Outcome(arrays=expected), "the CPU")


def steps(case: Case, place: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the steps that the case holds give for tensors that are placed somewhere, back on the CPU."""
    if combines_components(case):
        args = case.arguments()
        weights = place(torch.tensor(component_weights(args), dtype=torch.float64))
        groups: dict[int, list[list[float]]] = {}
        for sample in case.inputs["samples"]:
            row = [float(sample["reward"][key]) for key in args.gdpo_reward_keys]
            groups.setdefault(sample["group_index"], []).append(row)
        return {
            f"combine_group[{number}]": combine_group(place(torch.tensor(rows, dtype=torch.float64)), weights).cpu()
            for number, rows in enumerate(groups.values())  # [G, K]
        }
    whitened = get_algorithm(case.algorithm).advantage_fn == "whitened_broadcast"
    if case.stage == "advantage.estimate" and whitened and case.error is None:
        scores = place(torch.tensor(case.inputs["rewards"], dtype=torch.float32))  # [n]
        return {"whiten_segments": whiten_segments(scores, case.inputs["mini_batch_sizes"]).cpu()}
    return {}
