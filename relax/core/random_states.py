"""The global random states of a process, as tensors: a reward function or a filter of one's own may draw from them.

Sampling and initialisation draw from none: their streams follow from the seed and the place in the run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_random_states(seed: int) -> None:
    """Puts this process where every process of a run begins: what draws there gives the same each time."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_states() -> dict[str, torch.Tensor]:
    """The states of ``random``, of numpy's global generator and of torch's CPU generator."""
    version, words, gauss = random.getstate()
    legacy: Any = np.random.get_state(legacy=True)
    _, keys, position, has_gauss, cached = legacy
    return {
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.tensor([*keys.tolist(), position, has_gauss], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }


def restore_random_states(states: Mapping[str, torch.Tensor]) -> None:
    """Puts this process where `random_states` was taken."""
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].tolist()
    random.setstate((version, tuple(words), gauss[0] if gauss else None))
    *keys, position, has_gauss = states["numpy"].tolist()
    cached = states["numpy_gauss"].item()
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(states["torch"])


class OwnRandomStates:
    """Random states that no library in the same process draws from: they are the process's inside a block only."""

    def __init__(self) -> None:
        self.states: Mapping[str, torch.Tensor] = random_states()

    @contextmanager
    def drawn_from(self) -> Iterator[None]:
        """The global generators go on where the last block left them, and are put back after this one."""
        others = random_states()
        restore_random_states(self.states)
        try:
            yield
        finally:
            self.states = random_states()
            restore_random_states(others)
