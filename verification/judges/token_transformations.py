"""Transformations of the token stages that must not change the result, or change it in an exactly known way.

What holds to the bit: responses are treated one by one except where a formula sums over them (token-level
normalisation and the reducers, whose float32 sums depend on the order; GAE, whose matrix product may depend on the
rows beside it and whose chunks depend on the longest response) and except in the soft gate, whose sigmoid may be
computed by another routine at the end of a vector. Doubling is exact wherever a formula is linear in what is doubled.
Excluded tokens are given large finite contents, not NaN: the baseline multiplies by its masks, and NaN times 0 is NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from relax.algorithms.spec import ALGORITHM_SPECS
from verification.cases.case import Case
from verification.judges.families import estimate_of, objective_of
from verification.judges.transformation import (
    IGNORED,
    Arrays,
    Run,
    Transformation,
    denormals_flushed,
    doubled,
    negated,
    positive_zeros,
    safely_normal,
    with_inputs,
)


def token_transformations(case: Case, arrays: Arrays) -> Iterator[Transformation]:
    """The transformations that hold for this case, whose result was ``arrays``."""
    count = len(response_lengths(case))
    if count == 0 or case.algorithm not in ALGORITHM_SPECS:
        return
    yield from _STAGES[case.stage](case, arrays)


def response_lengths(case: Case) -> list[int]:
    """Tokens of each response, from the first input that is a list of arrays."""
    for name in ("response_lengths", "log_probs", "values", "advantages", "kl", "logits"):
        found = case.inputs.get(name)
        if found is not None:
            return [int(item) if name == "response_lengths" else len(item) for item in found]
    return []


def _kl(case: Case, arrays: Arrays) -> Iterator[Transformation]:
    yield from _one_by_one(case)
    yield _with_empty_response(case)


def _advantages(case: Case, arrays: Arrays) -> Iterator[Transformation]:
    rewards = case.inputs["rewards"]
    kl = case.inputs["kl"]
    kind = estimate_of(case.algorithm)
    if kind is None:
        return
    if kind.pooled:
        yield from _whitened(case)
        return
    doubling = {"rewards": [reward * 2 for reward in rewards]}
    sources = [torch.tensor([float(reward) for reward in rewards], dtype=torch.float64)]
    if kind.kl:
        doubling["kl"] = [item * 2 for item in kl]
        sources += [torch.from_numpy(item) for item in kl]
    if kind.values:
        doubling["values"] = [item * 2 for item in case.inputs["values"]]
        sources += [torch.from_numpy(item) for item in case.inputs["values"]]
    if safely_normal([*sources, *arrays.values()]):
        yield Transformation("rewards doubled", (Run(with_inputs(case, **doubling), _all(case)),), doubled)
    if kind.alone:
        yield from _one_by_one(case)
    if not kind.kl:
        strange = [np.full_like(item, 1e30 if index % 2 else np.nan) for index, item in enumerate(kl)]
        yield Transformation("contents of kl", (Run(with_inputs(case, kl=strange), _all(case)),))
        opposite = with_inputs(case, rewards=[-reward for reward in rewards])
        yield Transformation("rewards negated", (Run(opposite, _all(case)),), negated, positive_zeros)
        yield _with_empty_response(case, rewards=1.0)
    masks = case.inputs.get("loss_masks")
    if kind.kl and kind.masked and masks is not None:
        filled = [_filled(item, mask, 1e30) for item, mask in zip(kl, masks, strict=True)]
        yield Transformation("contents of excluded tokens", (Run(with_inputs(case, kl=filled), _all(case)),))


def _whitened(case: Case) -> Iterator[Transformation]:
    """Scores whitened by batch: one vote a sample, batch by batch, whatever the order and whatever the tokens hold."""
    rewards, sizes = case.inputs["rewards"], case.inputs["mini_batch_sizes"]
    bounds = np.cumsum([0, *sizes]).tolist()
    segments = [list(range(start, end)) for start, end in itertools.pairwise(bounds)]
    yield denormals_flushed(case, _all(case))
    inside = [item for segment in segments for item in reversed(segment)]
    yield Transformation("samples of each batch in reverse order", (_taken(case, inside),))
    if len(segments) > 1:
        turned = [item for segment in reversed(segments) for item in segment]
        run = _taken(case, turned)
        yield Transformation(
            "batches in reverse order", (Run(with_inputs(run.case, mini_batch_sizes=sizes[::-1]), run.items),)
        )
        alone = [(segment, _taken(case, segment)) for segment in segments if segment]
        runs = [Run(with_inputs(run.case, mini_batch_sizes=[len(segment)]), run.items) for segment, run in alone]
        yield Transformation("each batch alone", tuple(runs))
    yield Transformation("an empty batch added", (Run(with_inputs(case, mini_batch_sizes=[*sizes, 0]), _all(case)),))
    strange = [np.full_like(item, 1e30 if index % 2 else np.nan) for index, item in enumerate(case.inputs["kl"])]
    yield Transformation("contents of kl", (Run(with_inputs(case, kl=strange), _all(case)),))
    opposite = with_inputs(case, rewards=[-float(reward) for reward in rewards])
    yield Transformation("rewards negated", (Run(opposite, _all(case)),), negated, positive_zeros)
    shift = _exact_float32_shift([float(reward) for reward in rewards])
    if shift is not None:
        moved = with_inputs(case, rewards=[float(reward) + shift for reward in rewards])
        yield Transformation(f"rewards shifted by {shift:g}", (Run(moved, _all(case)),))


def _exact_float32_shift(values: Sequence[float]) -> float | None:
    """A shift that every value takes without rounding in float32, if one of a few does."""
    for shift in (1.0, 8.0, 1024.0, 2.0**-12):
        moved = [value + shift for value in values]  # exact in float64 whenever it is exact in float32
        if all(
            float(np.float32(value)) == value and float(np.float32(new)) == new and new - shift == value
            for value, new in zip(values, moved, strict=True)
        ):
            return shift
    return None


def _normalization(case: Case, arrays: Arrays) -> Iterator[Transformation]:
    advantages, masks = case.inputs["advantages"], case.inputs["loss_masks"]
    if not all(np.isfinite(item).all() for item in advantages):
        return
    opposite = with_inputs(case, advantages=[-item for item in advantages])
    yield Transformation("advantages negated", (Run(opposite, _all(case)),), negated, positive_zeros)
    yield _with_empty_response(case)
    if masks is None:
        return
    # 1e15: its square is still finite, and finite times 0 is 0.
    filled = [_filled(item, mask, 1e15) for item, mask in zip(advantages, masks, strict=True)]
    visible = _included_only(masks)
    run = Run(with_inputs(case, advantages=filled), _all(case))
    yield Transformation("contents of excluded tokens", (run,), visible, visible)


def _policy(case: Case, arrays: Arrays) -> Iterator[Transformation]:
    inputs, masks = case.inputs, case.inputs.get("loss_masks")
    yield _with_empty_response(case)
    kind = objective_of(case.algorithm)
    if kind is not None and kind.by_token:
        yield from _one_by_one(case)
    if safely_normal([torch.from_numpy(item) for item in inputs["advantages"]]) and safely_normal(
        [tensor for name, tensor in arrays.items() if name == "loss" or name.startswith("grad.")], 1e-36, 1e37
    ):
        twice = with_inputs(case, advantages=[item * 2 for item in inputs["advantages"]])
        yield Transformation("advantages doubled", (Run(twice, _all(case)),), _doubled_unless(("ppo_kl", "clipfrac")))
    if masks is not None and any((mask == 0).any() for mask in masks):
        filled = [
            np.where((mask == 0) & (old != new), old - np.copysign(np.float32(1e30), old - new), new)
            for old, new, mask in zip(inputs["old_log_probs"], inputs["log_probs"], masks, strict=True)
        ]
        visible = _included_only(masks)
        run = Run(with_inputs(case, log_probs=[item.astype(np.float32) for item in filled]), _all(case))
        yield Transformation("contents of excluded tokens", (run,), visible, visible)


def _reduction(case: Case, arrays: Arrays) -> Iterator[Transformation]:
    values, masks = case.inputs["values"], case.inputs["loss_masks"]
    if not all(np.isfinite(item).all() for item in values):
        return
    linear = _doubled_unless(tuple(name for name in arrays if name.startswith("grad.")))
    if safely_normal([*map(torch.from_numpy, values), arrays["loss"]]):
        twice = with_inputs(case, values=[item * 2 for item in values])
        yield Transformation("values doubled", (Run(twice, _all(case)),), linear)
    if masks is not None:
        filled = [_filled(item, mask, 1e30) for item, mask in zip(values, masks, strict=True)]
        yield Transformation("contents of excluded tokens", (Run(with_inputs(case, values=filled), _all(case)),))
    if float(arrays["loss"]) != 0.0:
        yield _with_empty_response(case)


def _log_probs(case: Case, arrays: Arrays) -> Iterator[Transformation]:
    yield from _one_by_one(case)
    yield _with_empty_response(case)
    logits, tokens = case.inputs["logits"], case.inputs["tokens"]
    others = [(ids + 1) % rows.shape[1] for rows, ids in zip(logits, tokens, strict=True)]
    run = Run(with_inputs(case, tokens=others), _all(case))
    yield Transformation("other tokens", (run,), _entropy_only, _entropy_only)
    moved = [rows.astype(np.float64) + 64.0 for rows in logits]
    if all(rows.dtype == np.float32 for rows in logits) and all((r.astype(np.float32) == r).all() for r in moved):
        shifted = with_inputs(case, logits=[rows.astype(np.float32) for rows in moved])
        yield Transformation("logits shifted by 64", (Run(shifted, _all(case)),))


def _entropy_only(name: str, tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor if "entropy" in name else None


_STAGES: dict[str, Callable[[Case, Arrays], Iterator[Transformation]]] = {
    "kl.estimate": _kl,
    "advantage.estimate": _advantages,
    "advantage.normalize": _normalization,
    "policy.loss": _policy,
    "loss.reduce": _reduction,
    "logprob.entropy": _log_probs,
}


def _all(case: Case) -> tuple[int, ...]:
    return tuple(range(len(response_lengths(case))))


def _taken(case: Case, items: Sequence[int]) -> Run:
    """The case with these responses only, in this order; lists with one entry a response are cut alike."""
    count = len(response_lengths(case))
    taken = {
        name: [value[item] for item in items]
        for name, value in case.inputs.items()
        if isinstance(value, list | tuple) and len(value) == count and name != "mini_batch_sizes"
    }
    return Run(with_inputs(case, **taken), tuple(items))


def _one_by_one(case: Case) -> Iterator[Transformation]:
    """Another order, and micro-batches: for formulas that treat each response alone."""
    items = _all(case)
    if len(items) < 2:
        return
    yield Transformation("responses in reverse order", (_taken(case, items[::-1]),))
    half = len(items) // 2
    yield Transformation("split into micro-batches", (_taken(case, items[:half]), _taken(case, items[half:])))


def _with_empty_response(case: Case, **entries: Any) -> Transformation:
    """One more response, without a token, at the end."""
    count = len(response_lengths(case))
    longer: dict[str, Any] = {}
    for name, value in case.inputs.items():
        if isinstance(value, list | tuple) and len(value) == count:
            empty = value[0][:0] if isinstance(value[0], np.ndarray) else type(value[0])(0)
            longer[name] = [*value, entries.get(name, empty)]
    return Transformation("an empty response added", (Run(with_inputs(case, **longer), (*_all(case), IGNORED)),))


def _filled(values: np.ndarray, mask: np.ndarray, content: float) -> np.ndarray:
    """Excluded elements made large, signs kept: a product with 0 keeps the sign of its zero."""
    return np.where(mask == 0, np.copysign(np.float32(content), values), values).astype(np.float32)


def _included_only(masks: Sequence[np.ndarray]) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """A view of a result that shows nothing of excluded tokens."""
    included = [torch.from_numpy(np.asarray(mask) != 0) for mask in masks]

    def view(name: str, tensor: torch.Tensor) -> torch.Tensor:
        keep = included[int(name.rpartition("[")[2][:-1])] if name.endswith("]") else torch.cat(included)
        return torch.where(keep, tensor, torch.zeros_like(tensor))

    return view


def _doubled_unless(names: tuple[str, ...]) -> Callable[[str, torch.Tensor], torch.Tensor]:
    return lambda name, tensor: tensor if name in names else doubled(name, tensor)
