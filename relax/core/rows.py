"""Which samples belong to what: rollouts, optimizer batches and their slices, by number, as keys of the queue's rows;
and which version of the weights samples a rollout.

Version v of the weights is that after v optimizer steps of the policy phase.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable


def row_keys(rollout: int, positions: Iterable[int]) -> list[str]:
    """The keys of a rollout's rows at ``positions``: ``"000003/000017"``, sorted as the numbers are."""
    return [f"{rollout:06d}/{position:06d}" for position in positions]


def samples_of_rollout(args: Namespace) -> int:
    """How many samples a rollout brings."""
    return args.rollout_batch_size * args.n_samples_per_prompt


def steps_before(args: Namespace, rollout: int) -> int:
    """Whole optimizer batches that the samples before rollout number ``rollout`` fill."""
    return rollout * samples_of_rollout(args) // args.global_batch_size


def sampled_version(args: Namespace, rollout: int) -> int:
    """The version of the weights that rollout number ``rollout`` is sampled with."""
    return max(0, steps_before(args, rollout) - args.max_staleness)


def needs_reference(args: Namespace) -> bool:
    """Whether an option reads the log-probs of the policy before its first step."""
    return args.kl_coef != 0 or args.use_kl_loss


def rollout_keys(args: Namespace, rollout: int) -> list[str]:
    """The row keys of a rollout's samples."""
    return row_keys(rollout, range(samples_of_rollout(args)))


def batch_keys(args: Namespace, batch: int) -> list[str]:
    """The row keys of an optimizer batch: the samples in the order in which rollouts bring them."""
    size, samples = args.global_batch_size, samples_of_rollout(args)
    places = (divmod(number, samples) for number in range(batch * size, (batch + 1) * size))
    return [key for rollout, position in places for key in row_keys(rollout, [position])]


def rollouts_of(args: Namespace, batch: int) -> range:
    """The rollouts whose samples an optimizer batch holds."""
    size, samples = args.global_batch_size, samples_of_rollout(args)
    return range(batch * size // samples, ((batch + 1) * size - 1) // samples + 1)


def slice_keys(args: Namespace, batch: int, slice: int) -> list[str]:
    """The row keys of one of the equal slices that an optimizer batch comes in, ``slice`` from 0 on."""
    size = args.global_batch_size // args.num_iters_per_train_update
    return batch_keys(args, batch)[slice * size : (slice + 1) * size]


def demonstration_keys(args: Namespace, step: int) -> list[str]:
    """The row keys of the demonstrations of supervised step ``step``."""
    return [f"demonstration/{step:06d}/{position:06d}" for position in range(args.sft_batch_size)]


def keys_of(
    args: Namespace,
    *,
    rollout: int | None = None,
    batch: int | None = None,
    slice: int | None = None,
    step: int | None = None,
) -> list[str]:
    """The row keys of what is named: a rollout, an optimizer batch, a slice of it, or a supervised step."""
    if rollout is not None:
        return rollout_keys(args, rollout)
    if step is not None:
        return demonstration_keys(args, step)
    assert batch is not None
    return batch_keys(args, batch) if slice is None else slice_keys(args, batch, slice)
