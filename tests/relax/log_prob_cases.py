"""Logits that are drawn, their log-probs in plain torch and by shards of the vocabulary."""

from __future__ import annotations

import math

import torch

from relax.algorithms.collective import LocalCollective
from relax.algorithms.formulas.log_probs import vocab_parallel_log_probs
from relax.algorithms.simulated import SimulatedWorld
from verification.cases.arguments import namespace
from verification.cases.integers import Integers

ARGS = namespace("grpo")
ONE = LocalCollective()


def drawn(name: str, count: int, vocabulary: int, dtype: torch.dtype = torch.float32):
    """Logits ``[count, vocabulary]`` between -8 and 8 and as many token ids."""
    stream = Integers(name)
    numbers = stream.quotients(count * vocabulary, -(8 << 10), 8 << 10, 10)
    logits = torch.tensor(numbers, dtype=dtype).reshape(count, vocabulary)
    return logits, torch.tensor([stream.below(vocabulary) for _ in range(count)], dtype=torch.int64)


def plain(logits: torch.Tensor, tokens: torch.Tensor):
    """The same by torch's log_softmax; an entry without probability adds nothing to the entropy."""
    log_p = torch.log_softmax(logits, dim=1)
    entropy = -torch.where(log_p == -math.inf, 0.0, log_p.exp() * log_p.clamp(min=-1e6)).sum(dim=1)
    return log_p.gather(1, tokens[:, None])[:, 0], entropy


def ours(tokens: torch.Tensor):
    """The function of the logits alone, on one rank."""
    return lambda logits: vocab_parallel_log_probs(logits, tokens, ONE)


def gradient(function, logits: torch.Tensor, of_log_probs: torch.Tensor, of_entropy: torch.Tensor) -> torch.Tensor:
    """What flows back to the logits where these flow into the two results."""
    leaf = logits.clone().requires_grad_()
    log_probs, entropy = function(leaf)
    return torch.autograd.grad((log_probs * of_log_probs).sum() + (entropy * of_entropy).sum(), leaf)[0]


def on_ranks(size: int, logits: torch.Tensor, tokens: torch.Tensor, of_log_probs=None, of_entropy=None):
    """What each rank gives, its part of the vocabulary before it: (log_probs, entropy, gradient of its logits)."""
    flows = [
        torch.ones(len(tokens), dtype=torch.float64) if flow is None else flow for flow in (of_log_probs, of_entropy)
    ]

    def one(collective, shard):
        leaf = shard.clone().requires_grad_()
        log_probs, entropy = vocab_parallel_log_probs(leaf, tokens, collective)
        before = list(world.exchanges)
        total = (log_probs * flows[0]).sum() + (entropy * flows[1]).sum()
        (found,) = torch.autograd.grad(total, leaf)
        assert before[collective.rank] == world.exchanges[collective.rank]
        return log_probs.detach(), entropy.detach(), found

    world = SimulatedWorld(size)
    results = world.run(one, logits.chunk(size, dim=1))
    failed = [result for result in results if isinstance(result, Exception)]
    if failed:
        raise failed[0]
    assert [2] * size == world.exchanges
    return results
