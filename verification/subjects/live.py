"""The working tree as a subject: the public calls of relax, in this process."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace

import torch

from verification.cases.case import Case
from verification.subjects.capture import capture
from verification.subjects.in_process import Implementation
from verification.subjects.outcome import Outcome

PUBLIC_CALLS = {
    "post_process_rewards": "relax.rollout.post_process",
    "group_carries_reward_signal": "relax.algorithms.rewards",
    "kl_per_response": "relax.algorithms.formulas.kl",
    "compute_advantages_and_returns": "relax.algorithms.advantages",
    "normalize_advantages": "relax.algorithms.advantages",
    "policy_objective": "relax.algorithms.policy",
    "reduce_loss": "relax.algorithms.formulas.reducers",
    "log_probs_and_entropy": "relax.algorithms.formulas.log_probs",
    "parse_args": "relax.arguments",
    "process_role": "relax.core.registry",
}


def live_subject() -> LiveSubject:
    """The working tree. Every public call must be there: a missing one is an error, not an absent stage."""
    calls = {name: getattr(importlib.import_module(module), name) for name, module in PUBLIC_CALLS.items()}
    return LiveSubject("live", SimpleNamespace(**calls))


class LiveSubject(Implementation):
    """The live calls. There is no case that the working tree may pass over: NotImplementedError is a failure here."""

    def run(
        self,
        case: Case,
        *,
        threads: int = 1,
        watch: bool = True,
        place: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> Outcome:
        outcome = capture(self.calls, case, threads=threads, watch=watch, place=place)
        if outcome is None:
            raise AttributeError(f"{case.id}: the working tree has no call for stage {case.stage}")
        return outcome
