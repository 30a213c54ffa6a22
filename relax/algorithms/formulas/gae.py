"""Generalised advantage estimation over padded rows, scanned in chunks.

Source: J. Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
(arXiv 1506.02438), equation 16.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from relax.algorithms.formulas.responses import require_same_count, require_same_shapes

CHUNK = 128


def gae(
    rewards: Sequence[float] | torch.Tensor,
    kl: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    response_lengths: Sequence[int],
    *,
    kl_coef: float,
    gamma: float,
    lambd: float,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """``(advantages, returns)`` of each response, ``[R_i]`` each, in the dtype of the values.

    ``kl`` and ``values`` hold the full responses, ``[R_i]`` each. Raises ValueError naming an empty response by its
    position, and both numbers where shapes or lengths disagree.
    """
    require_same_count(rewards=rewards, kl=kl, values=values, response_lengths=response_lengths)
    require_same_shapes(kl=kl, values=values)
    for position, (tokens, length) in enumerate(zip(values, response_lengths, strict=True)):
        if tokens.shape != (length,):
            raise ValueError(f"response {position}: values has shape {tuple(tokens.shape)}, its length is {length}")
        if length == 0:
            raise ValueError(f"response {position} is empty: GAE needs a token to put its reward on; leave it out")
    if not len(values):
        return [], []
    scores = torch.as_tensor(rewards, dtype=torch.float32, device="cpu")  # [n]
    penalised = [token_rewards(score, tokens, kl_coef) for score, tokens in zip(scores, kl, strict=True)]
    padded_values = pad_sequence(list(values), batch_first=True)  # [B, L]
    padded_rewards = pad_sequence([row.to(padded_values) for row in penalised], batch_first=True)  # [B, L]
    next_values = pad(padded_values[:, 1:], (0, 1))
    deltas = padded_rewards + gamma * next_values - padded_values
    padded_advantages = discounted_scan(deltas.flip(1), gamma * lambd).flip(1)
    padded_returns = padded_advantages + padded_values
    return _rows(padded_advantages, response_lengths), _rows(padded_returns, response_lengths)


def token_rewards(score: torch.Tensor, kl: torch.Tensor, kl_coef: float) -> torch.Tensor:
    """The KL penalty on each token ``[R]``, with the float32 score added to the last."""
    penalty = kl * (-kl_coef)
    penalty[-1] += score
    return penalty


def discounted_scan(rows: torch.Tensor, decay: float) -> torch.Tensor:
    """``S_t = rows_t + decay * S_(t-1)`` along each row of ``[B, L]``, a chunk of 128 at a time.

    Inside a chunk one product with the upper triangle of powers; between chunks the last sum, times the power of its
    distance. The product of one chunk is ``[B, 128] @ [128, 128]`` and no larger: a product's bits may depend on its
    shape.
    """
    length = rows.shape[1]
    padded = pad(rows, (0, -length % CHUNK))  # [B, n * 128]
    exponents = torch.arange(CHUNK, dtype=rows.dtype, device=rows.device)
    if decay == 0:
        within = torch.eye(CHUNK, dtype=rows.dtype, device=rows.device)
        carried = None  # 0 to any power is 0, yet times an infinite sum it would be NaN
    else:
        distance = exponents[None, :] - exponents[:, None]  # [128, 128]
        within = torch.triu(decay ** distance.clamp(min=0))
        carried = decay ** (exponents + 1)  # [128]
    chunks: list[torch.Tensor] = []
    for start in range(0, padded.shape[1], CHUNK):
        chunk = padded[:, start : start + CHUNK] @ within  # [B, 128]
        if chunks and carried is not None:
            chunk = chunk + chunks[-1][:, -1:] * carried
        chunks.append(chunk)
    return torch.cat(chunks, dim=1)[:, :length]


def _rows(padded: torch.Tensor, lengths: Sequence[int]) -> list[torch.Tensor]:
    """Each row cut to its length, as a tensor of its own: a view would keep the whole padded batch alive."""
    return [row[:length].clone() for row, length in zip(padded, lengths, strict=True)]
