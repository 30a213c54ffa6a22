"""Group normalization of scalar rewards on whole arrays, with the bits of the same operations group by group."""

from __future__ import annotations

import torch

EPSILON = 1e-6
_WHOLE_SUM = 32_768  # torch splits a longer sum over its threads, in parts that depend on the shape


def group_mean(rewards: torch.Tensor) -> torch.Tensor:
    """Rewards minus the mean of their group: float32 ``[P, G]`` to ``[P, G]``."""
    if rewards.shape[1] > _WHOLE_SUM:
        return torch.stack([row - row.mean() for row in rewards])
    return rewards - rewards.mean(dim=1, keepdim=True)


def group_mean_std(rewards: torch.Tensor) -> torch.Tensor:
    """Centred rewards over the standard deviation (n-1) of their group plus 1e-6: float32 ``[P, G]`` to ``[P, G]``.

    Source: GRPO (arXiv 2402.03300, section 4.1.2).
    """
    centred = group_mean(rewards)
    return centred / (_row_std(centred)[:, None] + EPSILON)


def _row_std(rows: torch.Tensor) -> torch.Tensor:
    """``row.std()`` of each row, to the bit: float32 ``[P, G]`` to ``[P]``.

    torch reduces one row to its std in float64, in an order of its own, and rounds once. Two orders differ by less than
    (G + 64) 2^-50 of the std (a two-pass variance is off by at most (G + 5) 2^-53 of itself), so that both round to the
    same float32 except next to a tie between two of them; there, and where the std is no number, torch is asked.
    """
    std = rows.double().std(dim=1)  # [P] float64
    margin = (rows.shape[1] + 64) * 2.0**-50
    near, far = (std * (1 - margin)).float(), (std * (1 + margin)).float()
    for row in (near != far).nonzero().flatten().tolist():  # nan is unequal to itself
        far[row] = rows[row].std()
    return far
