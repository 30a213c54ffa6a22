"""GDPO's three steps on whole arrays (arXiv 2601.05242): component groups, their weighted sum, the whitened batch."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np
import torch

from relax.algorithms.exact.batch import whiten_batches
from relax.algorithms.exact.groups import standardize_groups

EPSILON = 1e-4  # the double nearest 1e-4, in steps 1 and 3


def combine_groups(components: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """Steps 1 and 2 for many groups: float64 ``[P, G, K]`` and K weights to float32 ``[P, G]``, correctly rounded.

    A combined value beyond float32 comes back as an infinity; see ``dominating_component``.
    """
    return standardize_groups(components, weights, EPSILON)


def combine_group(group: torch.Tensor | Sequence, weights: torch.Tensor | Sequence[float]) -> torch.Tensor:
    """Steps 1 and 2 for one group: ``[G, K]`` and ``[K]`` to float32 ``[G]``, each the float32 nearest the exact value.

    Raises ValueError for another shape, fewer than two samples, what is no finite real number within float32, weights
    that are all 0, and a combined value that overflows float32.
    """
    x, w = _reals("group", group), _reals("weights", weights)
    if x.ndim != 2 or w.shape != x.shape[1:] or x.shape[0] < 2:
        raise ValueError(
            f"combine_group: group {list(x.shape)} and weights {list(w.shape)}: "
            "expected [G, K] with G of 2 or more, and [K]"
        )
    if not (np.abs(x) <= np.finfo(np.float32).max).all():
        sample, component = np.argwhere(~(np.abs(x) <= np.finfo(np.float32).max))[0]
        raise ValueError(
            f"combine_group: component {component} of sample {sample} is {x[sample, component]}: "
            "a reward must be finite and within the range of float32"
        )
    if not np.isfinite(w).all() or not w.any():
        raise ValueError(f"combine_group: weights {w.tolist()}: they must be finite and not all 0")
    values = combine_groups(x[None], w.tolist())[0]
    if np.isinf(values).any():
        sample = int(np.flatnonzero(np.isinf(values))[0])
        raise ValueError(
            f"combine_group: the combined value of sample {sample} is beyond float32: "
            f"component {dominating_component(x, w, sample)} dominates; make its weight smaller"
        )
    return torch.from_numpy(values)


def _reals(name: str, values: torch.Tensor | Sequence) -> np.ndarray:
    """``values`` as float64, or a ValueError where one is no real number (text, None, a bool, a complex number)."""
    try:
        if isinstance(values, torch.Tensor):
            kept = values.detach().cpu()
            entries = (kept.double() if kept.is_floating_point() else kept).numpy()
        else:
            entries = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
        if entries.dtype.kind in "fiu" or (entries.dtype == object and all(map(_is_real, entries.flat))):
            return entries.astype(np.float64)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"combine_group: {name} is no array of numbers: {error}") from error
    raise ValueError(f"combine_group: {name} must hold real numbers only, no bool, in rows of equal length")


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def dominating_component(group: np.ndarray, weights: np.ndarray, sample: int) -> int:
    """The component of a group ``[G, K]`` that contributes most to ``sample``'s combined value."""
    centred = group - group.mean(axis=0)
    with np.errstate(over="ignore"):
        shares = np.abs(centred[sample] / (group.std(axis=0, ddof=1) + EPSILON) * weights)
    return int(np.argmax(shares))


def whiten(values: np.ndarray, own: slice = slice(None)) -> np.ndarray:
    """Step 3 for one optimizer batch ``[n]`` or several ``[B, n]``: finite float32 to float32 for the samples of
    ``own``, correctly rounded.
    """
    whitened = whiten_batches(np.atleast_2d(values), EPSILON, own)
    return whitened[0] if values.ndim == 1 else whitened
