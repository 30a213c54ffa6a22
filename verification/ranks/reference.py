"""What one rank gives for the whole batch: the public formulas, called one after the other in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from relax.algorithms.advantages import compute_advantages_and_returns, normalize_advantages
from relax.algorithms.formulas.kl import kl_per_response
from verification.cases.case import Case
from verification.oracle import Exact, evaluate
from verification.ranks.cases import RankCase
from verification.ranks.policy_step import policy_step
from verification.subjects.live import live_subject

Arrays = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Reference:
    """The arrays of one rank, ``[T]`` for what is one list entry a response; and the magnitudes in whose ulps those
    that may differ from it are measured.

    ``scales``: by name, flat, one magnitude an element; infinity where an element has no bound, a variance lost to
    conditioning for instance.
    """

    arrays: Arrays
    scales: Mapping[str, Sequence[float]] = field(default_factory=dict)


def reference(rank_case: RankCase) -> Reference:
    """The reference of a rank case, which does not depend on its layout."""
    return _REFERENCES[rank_case.program](rank_case.case)


def _advantages(case: Case) -> Reference:
    args, inputs = case.arguments(), case.fresh_inputs()
    kl = kl_per_response(
        args,
        log_probs=inputs["kl"],
        ref_log_probs=[torch.zeros_like(tokens) for tokens in inputs["kl"]],
        values=inputs["values"],
    )
    advantages, returns = compute_advantages_and_returns(args, **{**inputs, "kl": kl, "process_group": None})
    normalized = normalize_advantages(args, advantages=advantages, loss_masks=inputs["loss_masks"])
    scales = _scales(evaluate(replace(case, inputs={**case.inputs, "kl": _as_numpy(kl)})))
    if args.normalize_advantages:
        given = {"advantages": _as_numpy(advantages), "loss_masks": case.inputs["loss_masks"]}
        scales |= _scales(evaluate(replace(case, stage="advantage.normalize", inputs=given)))
    arrays = {"kl": torch.cat(kl), "advantages": torch.cat(normalized), "returns": torch.cat(returns)}
    return Reference(arrays, scales)


def _stage(case: Case) -> Reference:
    """The stage's own call, as it is."""
    outcome = live_subject().run(case, watch=False)
    if outcome.failure is not None:
        raise ValueError(f"{case.id} failed on one rank: {outcome.failure.kind}: {outcome.failure.message}")
    lists: dict[str, list[torch.Tensor]] = {}
    for name, tensor in outcome.arrays.items():
        lists.setdefault(name.partition("[")[0], []).append(tensor)
    arrays = {name: torch.cat(parts) if parts[0].dim() else parts[0] for name, parts in lists.items()}
    return Reference(arrays, _scales(evaluate(case)))


def _log_probs(case: Case) -> Reference:
    """The stage's own call; gradients as they come through the packing (see ``packing.py``)."""
    found = _stage(case)
    nothing = torch.zeros((), dtype=torch.float64)
    gradients = {name: tensor + 0.0 for name, tensor in found.arrays.items() if name.startswith("grad.")}
    return Reference(found.arrays | gradients | {f"{name}.elsewhere": nothing for name in gradients}, found.scales)


def _as_numpy(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [tokens.numpy() for tokens in tensors]


def _scales(exact: Mapping[str, Exact] | None) -> dict[str, Sequence[float]]:
    """The oracle's scales, joined as the arrays are; infinity where it does not judge an element."""
    joined: dict[str, Sequence[float]] = {}
    for name, one in (exact or {}).items():
        scales = [scale if one.judged(index) else math.inf for index, scale in enumerate(one.scales)]
        joined[name.partition("[")[0]] = [*joined.get(name.partition("[")[0], ()), *scales]
    return joined


_REFERENCES: dict[str, Callable[[Case], Reference]] = {
    "advantages": _advantages,
    "normalization": _stage,
    "objective": _stage,
    "reduction": _stage,
    "log_probs": _log_probs,
    "policy_loss": lambda case: Reference(*policy_step(case)),
}
