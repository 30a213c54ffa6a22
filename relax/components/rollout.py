"""The rollout role: samples scored responses to the task's problems and puts them into the queue as rows."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from relax.backends.megatron.build import build_policy
from relax.backends.megatron.weights import load_weights
from relax.core.checkpoint import open_checkpoint, write_part
from relax.core.clock import Clock
from relax.core.counts import Counted
from relax.core.fingerprint import fingerprint
from relax.core.random_states import OwnRandomStates
from relax.core.registry import ACTOR, ROLLOUT
from relax.core.rows import rollout_keys, sampled_version, samples_of_rollout, steps_before
from relax.core.trace import tracing
from relax.rollout.collect import collect, mean_rewards, most_likely
from relax.rollout.columns import rollout_columns
from relax.rollout.debug_data import write_rollout
from relax.rollout.metrics import group_label, reward_metrics
from relax.rollout.post_process import load_function
from relax.tasks.task import FIRST_EVALUATED, FIRST_SAMPLED
from relax.transport.queue import Queue
from relax.types import Sample

MOST_DRAWN = 16  # rollouts' worth of prompts that a filter may reject before it is told


@dataclass(frozen=True)
class _Place:
    """Where the role is in the data, and in random numbers."""

    next_problem: int
    states: Mapping[str, torch.Tensor]


class Rollout:
    """Holds a model of its own, whose weights are handed to it."""

    def __init__(self, args: Namespace, queue: Queue) -> None:
        self.args, self.queue = args, queue
        self.task = load_function(args.task_path)(args)
        self.model = build_policy(args, self.task)
        self._next_problem = FIRST_SAMPLED
        self._random = OwnRandomStates()  # what a reward function or a filter may draw from
        self._before: dict[int, _Place] = {}  # by rollout: where a run that goes on with it has to start
        self._clock = Clock()

    def generate(self, rollout: int, weights: Mapping[str, torch.Tensor] | None = None) -> dict[str, Any]:
        """Puts rollout number ``rollout``, whole prompt groups; sampled with ``weights``, or with those of the call
        before.

        The function of ``--agentic-custom-advantage-path`` is called with the options and all samples, and writes each
        one's ``custom_advantage``. With a dynamic filter, prompts are drawn until as many groups as a rollout has are
        kept. Gives the counts of samples ``generated`` and ``enqueued``, prompts ``drawn``, mean ``rewards`` and other
        ``metrics`` of all drawn. Raises ValueError where the filter keeps next to nothing.
        """
        keys = rollout_keys(self.args, rollout)
        self._take(weights)
        self._remember(rollout)
        with self._clock("sample"):
            groups, drawn = self._groups(rollout)
        samples = [sample for group in groups for sample in group]
        with self._clock("rewards"), self._random.drawn_from(), tracing(self.args, [rollout], ROLLOUT):
            if self.args.agentic_custom_advantage_path is not None:
                load_function(self.args.agentic_custom_advantage_path)(self.args, samples)
            columns = rollout_columns(self.args, samples)
            metrics = reward_metrics(self.args, drawn)
        with self._clock("transport"):
            self.queue.put(keys, columns)
            enqueued = Counted.of(set(self.queue.keys()) & set(keys))
        if self.args.debug_rollout_only and self.args.save_debug_rollout_data:
            labels = [group_label(self.args, group) for group in groups]
            write_rollout(Path(self.args.save_debug_rollout_data), rollout, columns, groups=labels)
        return {
            "generated": Counted.of(key for key, _ in zip(keys, samples, strict=True)),
            "enqueued": enqueued,
            "drawn": len(drawn),
            "rewards": mean_rewards([sample for group in drawn for sample in group]),
            "metrics": metrics,
            "response_length": sum(columns["response_lengths"]) / len(samples),
            "fingerprint": fingerprint(keys, columns["tokens"]),
            "seconds": self._clock.take(),
        }

    def evaluate(self, weights: Mapping[str, torch.Tensor] | None = None) -> dict[str, Any]:
        """The mean rewards of the likeliest responses to ``--eval-problems`` problems that are never trained on."""
        self._take(weights)
        states = self._random.states  # a reward function may draw: what is sampled later must not notice
        with self._clock("evaluate"):
            problems = range(FIRST_EVALUATED, FIRST_EVALUATED + self.args.eval_problems)
            samples = most_likely(self.args, self.model, self.task, problems, **self._sampling())
        self._random.states = states
        return {"rewards": mean_rewards(samples), "seconds": self._clock.take()}

    def save(self, folder: str, rollout: int) -> dict[str, Any]:
        """Writes the place from which rollout ``rollout`` was sampled, or will be; rollouts in flight are sampled
        again by whoever goes on from here.
        """
        place = self._before.get(rollout, self._place())
        write_part(Path(folder), ROLLOUT, tensors=place.states, facts={"next_problem": place.next_problem})
        return {}

    def load(self, folder: str) -> dict[str, Any]:
        """Continues from a checkpoint; alone, also with the actor's weights."""
        checkpoint = open_checkpoint(Path(folder))
        self._next_problem = checkpoint.facts(ROLLOUT)["next_problem"]
        self._random.states = checkpoint.tensors(ROLLOUT)
        if self.args.debug_rollout_only:
            held = checkpoint.tensors(ACTOR)
            weights = {key.removeprefix("weights/"): held[key] for key in held if key.startswith("weights/")}
            load_weights(self.model, weights)
        return {}

    def _take(self, weights: Mapping[str, torch.Tensor] | None) -> None:
        if weights is not None:
            with self._clock("transport"):
                load_weights(self.model, weights)

    def _remember(self, rollout: int) -> None:
        # No checkpoint is still to come that goes on with a rollout before the version it is sampled with.
        version = sampled_version(self.args, rollout)
        self._before = {one: place for one, place in self._before.items() if steps_before(self.args, one) >= version}
        self._before[rollout] = self._place()

    def _place(self) -> _Place:
        return _Place(self._next_problem, self._random.states)

    def _groups(self, rollout: int) -> tuple[list[list[Sample]], list[list[Sample]]]:
        """The prompt groups of a rollout, numbered in their order, and all that were drawn for it."""
        args = self.args
        path = args.dynamic_sampling_filter_path
        keep = load_function(path) if path else lambda args, group: True
        kept: list[list[Sample]] = []
        drawn: list[list[Sample]] = []
        while missing := args.rollout_batch_size - len(kept):
            if len(drawn) >= MOST_DRAWN * args.rollout_batch_size:
                raise ValueError(
                    f"rollout {rollout}: of {len(drawn)} prompts drawn, --dynamic-sampling-filter-path {path} kept "
                    f"{len(kept)}, and {args.rollout_batch_size} are needed: the responses of a prompt are alike; "
                    "raise --n-samples-per-prompt, warm up for longer, or drop the filter"
                )
            groups = self._draw(rollout, missing)
            drawn += groups
            with self._random.drawn_from():
                kept += [group for group in groups if keep(args, group)]
        for number, group in enumerate(kept):
            for place, sample in enumerate(group):
                sample.index, sample.group_index = number * args.n_samples_per_prompt + place, number
        assert sum(map(len, kept)) == samples_of_rollout(args)
        return kept, drawn

    def _draw(self, rollout: int, prompts: int) -> list[list[Sample]]:
        problems = range(self._next_problem, self._next_problem + prompts)
        self._next_problem = problems.stop
        samples = collect(self.args, self.model, self.task, problems, rollout=rollout, **self._sampling())
        size = self.args.n_samples_per_prompt
        return [samples[start : start + size] for start in range(0, len(samples), size)]

    def _sampling(self) -> dict[str, Any]:
        return {"max_new_tokens": self.args.max_new_tokens, "scoring": self._scoring}

    @contextmanager
    def _scoring(self) -> Iterator[None]:
        with self._clock("rewards"), self._random.drawn_from():
            yield
