"""Frozen generalised advantage estimation: padded rows, reversed in time, in chunks of 128 (baseline section 3)."""

from __future__ import annotations

import torch

CHUNK = 128


def token_rewards(
    rewards: torch.Tensor, kl: list[torch.Tensor], kl_coef: float, context_parallel_rank: int
) -> list[torch.Tensor]:
    """The KL penalty of each token, and on context-parallel rank 0 the reward added at the last one."""
    result = []
    for i in range(len(kl)):
        if kl[i].numel() == 0:
            raise ValueError(f"response {i} is empty: GAE has no last token to carry its reward")
        k = kl[i] * (-kl_coef)  # [R]
        if context_parallel_rank == 0:
            k[-1] += rewards[i]
        result.append(k)
    return result


def reversed_scan(reversed_delta: torch.Tensor, w: float) -> torch.Tensor:
    """``S[t] = delta[t] + w * S[t - 1]`` along the rows of ``[B, L]``, L a multiple of 128: one product a chunk."""
    dtype = reversed_delta.dtype
    rows = reversed_delta.shape[0]
    position = torch.arange(CHUNK)
    if w == 0:
        m = torch.eye(CHUNK, dtype=dtype)
        carry_powers = torch.zeros(CHUNK, dtype=dtype)
    else:
        exponents = (position[None, :] - position[:, None]).clamp(min=0).to(dtype)  # [128, 128]
        upper = position[None, :] >= position[:, None]
        m = torch.where(upper, w**exponents, torch.zeros((), dtype=dtype))
        carry_powers = w ** (position + 1).to(dtype)  # [128]
    s_prev = torch.zeros(rows, dtype=dtype)
    chunks = []
    for start in range(0, reversed_delta.shape[1], CHUNK):
        s_local = reversed_delta[:, start : start + CHUNK] @ m  # [B, 128]
        s = s_local
        if w != 0 and start > 0:
            s = s_local + s_prev[:, None] * carry_powers[None, :]
        s_prev = s[:, -1]
        chunks.append(s)
    return torch.cat(chunks, dim=1)


def gae(
    rewards: torch.Tensor,
    kl: list[torch.Tensor],
    values: list[torch.Tensor],
    response_lengths: list[int],
    kl_coef: float,
    gamma: float,
    lambd: float,
    context_parallel_rank: int = 0,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Advantages and returns of each response, ``[R_i]``. ValueError, naming the response, where one is empty."""
    rewards_of_tokens = token_rewards(rewards, kl, kl_coef, context_parallel_rank)
    dtype = values[0].dtype
    rows = len(values)
    longest = max(response_lengths)
    v = torch.zeros(rows, longest, dtype=dtype)  # [B, L]
    r = torch.zeros(rows, longest, dtype=dtype)  # [B, L]
    for i in range(rows):
        v[i, : response_lengths[i]] = values[i]
        r[i, : response_lengths[i]] = rewards_of_tokens[i]
    v_next = torch.zeros(rows, longest, dtype=dtype)
    v_next[:, :-1] = v[:, 1:]
    delta = r + gamma * v_next - v  # [B, L]

    padded_length = (longest + CHUNK - 1) // CHUNK * CHUNK
    reversed_delta = torch.zeros(rows, padded_length, dtype=dtype)
    reversed_delta[:, :longest] = torch.flip(delta, dims=[1])
    scanned = reversed_scan(reversed_delta, gamma * lambd)
    advantages_padded = torch.flip(scanned[:, :longest], dims=[1])
    returns_padded = advantages_padded + v

    advantages = []
    returns = []
    for i in range(rows):
        advantages.append(advantages_padded[i, : response_lengths[i]])
        returns.append(returns_padded[i, : response_lengths[i]])
    return advantages, returns
