"""Field cases that only several ranks can show; what each is about is in ``RANK_CASES`` of ``cases/field.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from verification.cases.advantage import advantage_case, rewards_for
from verification.cases.batches import batch_case
from verification.cases.case import Case
from verification.cases.families import ALL, COMPONENTS, TOKEN_GLOBAL, TOKEN_WHITEN
from verification.cases.integers import Integers
from verification.cases.normalization import normalize_case
from verification.cases.tokens import masks, noise

IDLE = "idle"  # tag: one data-parallel rank holds no sample
LATE = "late"  # tag: all responses lie in the last chunk of their sequences, with one context-parallel rank


def rank_field_cases() -> Iterator[Case]:
    """All of them."""
    yield from whitening()
    yield from nothing_to_hold()
    yield from hidden_origin()


def whitening() -> Iterator[Case]:
    """``cp-whitening``: one mean and one variance for the whole batch, however its tokens are cut."""
    lengths = (9, 4, 16, 6)
    for algorithm in (*TOKEN_WHITEN, *TOKEN_GLOBAL):
        stream = Integers("ranks/cp-whitening")
        # Each response at a level of its own, so that a slice's own mean is far from the batch's.
        levels = [tokens + np.float32(4 * k) for k, tokens in enumerate(noise(stream, lengths, reach=1))]
        yield normalize_case(algorithm, "field-cp-whitening", levels, masks("holes", stream, lengths))


def nothing_to_hold() -> Iterator[Case]:
    """``empty-slice``, ``early-return``: a rank without a token, and one without a sample, join every collective."""
    for name, lengths, tags in (("empty-slice", (1, 2, 1), (LATE,)), ("early-return", (5, 2), (IDLE,))):
        for algorithm in ALL:
            stream = Integers(f"ranks/{name}/{algorithm}")
            case = advantage_case(
                algorithm, f"field-{name}", rewards_for(stream, len(lengths)), noise(stream, lengths),
                loss_masks=masks("full", stream, lengths), values=noise(stream, lengths),
                mini_batch_sizes=[len(lengths)], normalize_advantages=algorithm not in COMPONENTS, kl_coef=0.1,
                gamma=0.9, lambd=0.95,
            )  # fmt: skip
            yield replace(case, tags=tags)


def hidden_origin() -> Iterator[Case]:
    """``hidden-origin``: what one rank alone is given wrong, before the whitening and in it, fails every rank."""
    rewards = rewards_for(Integers("ranks/hidden-origin"), 3)
    lengths = [2, 3, 1]
    short = [np.ones(2, dtype=np.float32), np.ones(2, dtype=np.float32), np.ones(1, dtype=np.float32)]
    yield batch_case("field-hidden-origin-nan", [*rewards[:2], float("nan")], [3], error=("value 2",))
    yield batch_case("field-hidden-origin-plan", rewards, [2], error=("mini_batch_sizes", "2", "3"))
    kl = noise(Integers("ranks/hidden-origin/kl"), lengths)
    yield advantage_case(
        "reinforce_plus_plus", "field-hidden-origin-mask", rewards, kl, loss_masks=short, kl_coef=0.1,
        error=("response 1", "2", "3"),
    )  # fmt: skip
    yield advantage_case("ppo", "field-hidden-origin-values", rewards, kl, error=("values",), kl_coef=0.1)
