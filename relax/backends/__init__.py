"""Training backends: where the formulas of `relax.algorithms` meet the ranks and logits of a training engine."""
