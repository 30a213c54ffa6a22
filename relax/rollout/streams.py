"""The random numbers of a sample: a stream that depends on the sample's place in the run and on nothing else."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Which sample of a run: number ``sample`` of prompt number ``prompt`` of rollout number ``rollout``."""

    seed: int
    rollout: int
    prompt: int
    sample: int

    def uniforms(self, count: int) -> list[float]:
        """The first ``count`` numbers of its stream, in [0, 1): one a token, the same however samples are batched."""
        stream = random.Random(f"sample {self.seed} {self.rollout} {self.prompt} {self.sample}")
        return [stream.random() for _ in range(count)]
