"""What can be looked at on a device: the cases that hand tensors over, and the worlds of ranks that GPUs can hold."""

from __future__ import annotations

from collections.abc import Iterable

from relax.algorithms.spec import get_algorithm
from verification.cases.case import Case
from verification.ranks.layout import Layout
from verification.subjects.stages import STAGE_CALLS

# The other stages take plain Python numbers, options or nothing.
TENSOR_STAGES = tuple(name for name, stage in STAGE_CALLS.items() if stage.keywords)


def with_tensors(cases: Iterable[Case]) -> list[Case]:
    """The cases of a stage that takes tensors."""
    return [case for case in cases if case.stage in TENSOR_STAGES]


def on_a_device(cases: Iterable[Case]) -> list[Case]:
    """The cases of which a device can show something: those with tensors, and GDPO's, whose steps take tensors too."""
    return [case for case in cases if case.stage in TENSOR_STAGES or combines_components(case)]


def combines_components(case: Case) -> bool:
    """Whether the case holds prompt groups whose components are standardised and summed: GDPO's steps 1 and 2."""
    components = get_algorithm(case.algorithm).uses_reward_components
    return case.stage == "reward.normalize" and components and case.error is None


def worlds(gpus: int) -> list[Layout]:
    """The layouts of ranks that ``gpus`` GPUs can hold, one a rank: data parallelism over 1 to all of them."""
    return [Layout(dp=ranks) for ranks in range(1, gpus + 1)]
