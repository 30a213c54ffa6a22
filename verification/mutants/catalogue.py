"""All named mutants, by the part of the system that they make wrong."""

from __future__ import annotations

from verification.mutants.in_advantages import IN_ADVANTAGES
from verification.mutants.in_exact_statistics import IN_EXACT_STATISTICS
from verification.mutants.in_log_probs import IN_LOG_PROBS
from verification.mutants.in_losses import IN_LOSSES
from verification.mutants.in_ranks import IN_RANKS
from verification.mutants.in_registry import IN_REGISTRY
from verification.mutants.in_rewards import IN_REWARDS
from verification.mutants.in_token_statistics import IN_TOKEN_STATISTICS
from verification.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *IN_REWARDS,
    *IN_EXACT_STATISTICS,
    *IN_ADVANTAGES,
    *IN_TOKEN_STATISTICS,
    *IN_LOSSES,
    *IN_LOG_PROBS,
    *IN_RANKS,
    *IN_REGISTRY,
)
