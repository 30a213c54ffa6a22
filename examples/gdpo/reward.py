"""The rewards of the example, component by component: what GDPO weighs one against the other."""

from __future__ import annotations

from argparse import Namespace

from relax.tasks.sums import correctness_of, format_of, sum_rewards
from relax.types import Sample


def rewards(args: Namespace, sample: Sample) -> dict[str, float]:
    """``correctness`` 0 or 1 and ``format`` 0, 0.5 or 1; ``total``, their sum, is what GRPO is given.

    For ``--custom-rm-path``. A function of yours has this form too: it reads what the task left in ``sample.metadata``,
    here the texts ``answer`` and ``response``, and gives one finite number a component.
    """
    response, answer = sample.metadata["response"], sample.metadata["answer"]
    correctness, form = correctness_of(response, answer), format_of(response)
    return {"correctness": correctness, "format": form, "total": correctness + form}


def rewards_with_length(args: Namespace, sample: Sample) -> dict[str, float]:
    """As `rewards`, with ``length``: 1 up to a dozen characters, 0 at twice as many."""
    return sum_rewards(args, sample)
