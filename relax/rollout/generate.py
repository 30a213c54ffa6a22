"""Sampling responses from the model, in batches whose layout no response can notice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from relax.algorithms.collective import LocalCollective
from relax.algorithms.formulas.log_probs import vocab_parallel_log_probs
from relax.backends.megatron.forward import last_output
from relax.rollout.streams import Place


@dataclass
class Response:
    """What was sampled after one prompt."""

    tokens: list[int] = field(default_factory=list)
    """Its token ids, the end token included where it was reached."""
    log_probs: list[float] = field(default_factory=list)
    """The log-probability of each under the model: the trainer computes the same bits."""
    status: str = "truncated"
    """``completed`` where the end token was reached, else ``truncated``."""


@torch.no_grad()
def generate(
    model: torch.nn.Module,
    prompts: Sequence[Sequence[int]],
    places: Sequence[Place] | None,
    *,
    max_new_tokens: int,
    end_token: int,
) -> list[Response]:
    """One response a prompt, in order, drawn from the model's own distribution (temperature 1, nothing cut off).

    ``places`` give each sample its random stream; None takes the likeliest token each time. A prompt may occur many
    times. The whole text so far goes through the model at every step, as in training, so that log-probs are the
    trainer's. Raises ValueError for a prompt that leaves no room for ``max_new_tokens``, naming it.
    """
    longest: Any = model.max_sequence_length
    for position, prompt in enumerate(prompts):
        if not prompt or len(prompt) + max_new_tokens > longest:
            raise ValueError(
                f"prompt {position} has {len(prompt)} tokens and {max_new_tokens} are to follow: the model reads "
                f"{longest}, and needs one to start from"
            )
    uniforms = None
    if places is not None:
        streams = [place.uniforms(max_new_tokens) for _, place in zip(prompts, places, strict=True)]
        uniforms = torch.tensor(streams, dtype=torch.float64)  # [n, max_new_tokens]
    responses = [Response() for _ in prompts]
    texts = [torch.tensor(prompt, dtype=torch.int64) for prompt in prompts]
    open_ = list(range(len(prompts)))
    for step in range(max_new_tokens):
        if not open_:
            break
        logits = last_output(model, [texts[i] for i in open_])  # [open, V]
        drawn = logits.argmax(dim=1) if uniforms is None else draw(logits, uniforms[open_, step].to(logits.device))
        log_probs, _ = vocab_parallel_log_probs(logits, drawn, LocalCollective())
        for i, token, log_prob in zip(open_, drawn.tolist(), log_probs.tolist(), strict=True):
            responses[i].tokens.append(token)
            responses[i].log_probs.append(log_prob)
            texts[i] = torch.cat([texts[i], torch.tensor([token])])
            if token == end_token:
                responses[i].status = "completed"
        open_ = [i for i in open_ if responses[i].status != "completed"]
    return responses


def draw(logits: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """The first token of each row ``[n, V]`` at which its cumulated probability exceeds its uniform number: ``[n]``."""
    cumulated = logits.double().softmax(dim=1).cumsum(dim=1)
    # The last sum may round to something beside 1: the number is scaled to it, and stays below it.
    last = cumulated[:, -1]
    numbers = torch.minimum(uniforms * last, torch.nextafter(last, torch.zeros_like(last)))
    return torch.searchsorted(cumulated, numbers[:, None], right=True).squeeze(1)
