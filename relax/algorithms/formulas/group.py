"""Group normalization of scalar rewards on whole arrays, with the bits of the same operations group by group."""

from __future__ import annotations

import torch

EPSILON = 1e-6
_TIE_MARGIN = 2.0**-40  # far above the error of a float64 two-pass std, far below half an ulp of float32


def group_mean(rewards: torch.Tensor) -> torch.Tensor:
    """Rewards minus the mean of their group: float32 ``[P, G]`` to ``[P, G]``."""
    return rewards - rewards.mean(dim=1, keepdim=True)


def group_mean_std(rewards: torch.Tensor) -> torch.Tensor:
    """Centred rewards over the standard deviation (n-1) of their group plus 1e-6: float32 ``[P, G]`` to ``[P, G]``.

    Source: GRPO (arXiv 2402.03300, section 4.1.2).
    """
    centred = group_mean(rewards)
    return centred / (_row_std(centred)[:, None] + EPSILON)


def _row_std(rows: torch.Tensor) -> torch.Tensor:
    """``row.std()`` of each row, to the bit: float32 ``[P, G]`` to ``[P]``.

    torch reduces one row to its std in float64 and rounds once, in an order of its own. Any float64 order rounds to the
    same float32 except next to a tie between two of them, and there (or where the std is no number) torch is asked.
    """
    std = rows.double().std(dim=1)  # [P] float64
    near, far = (std * (1 - _TIE_MARGIN)).float(), (std * (1 + _TIE_MARGIN)).float()
    for row in (near != far).nonzero().flatten().tolist():  # nan is unequal to itself
        far[row] = rows[row].std()
    return far
