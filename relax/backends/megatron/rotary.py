"""Rotary positions on any device: the angles, which megatron's attention turns queries and keys by."""

from __future__ import annotations

from typing import Any

import torch


class Rotary(torch.nn.Module):
    """Stands for ``rotary_pos_emb`` in a GPTModel of megatron, whose own one asks for CUDA.

    Position p turns the pair (j, j + D/2) of a head by ``p * base ** (-2j / D)``. Sequences are whole on each rank.
    """

    inverse_wavelengths: torch.Tensor

    def __init__(self, *, head_dim: int, base: float) -> None:
        super().__init__()
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        self.register_buffer("inverse_wavelengths", 1.0 / base**exponents, persistent=False)  # [D/2]

    def get_rotary_seq_len(
        self, inference: Any, decoder: Any, decoder_input: torch.Tensor, config: Any, packed_seq_params: Any = None
    ) -> int:
        """How many positions this batch needs: the width of its rows, or its longest packed sequence."""
        return decoder_input.shape[0] if packed_seq_params is None else int(packed_seq_params.max_seqlen_q)

    def forward(self, length: int, **_: Any) -> torch.Tensor:
        """The angles of positions 0 to ``length``, exclusive: float32 ``[length, 1, 1, D]``."""
        positions = torch.arange(length, dtype=torch.float32, device=self.inverse_wavelengths.device)
        angles = torch.outer(positions, self.inverse_wavelengths)
        return torch.cat((angles, angles), dim=-1)[:, None, None]
