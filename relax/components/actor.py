"""The actor role: the policy that is trained, on one or more data-parallel ranks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from relax.backends.megatron.advantages import compute_advantages_and_returns
from relax.backends.megatron.build import build_policy
from relax.backends.megatron.loss import policy_loss_function
from relax.backends.megatron.optimizer import Optimizer, OptimizerSettings
from relax.backends.megatron.scoring import score_log_probs
from relax.backends.megatron.supervised import supervised_loss_function
from relax.backends.megatron.train_step import LossFunction, Update, train_step
from relax.backends.megatron.trained_model import TrainedModel
from relax.backends.megatron.weights import load_weights, weights_of
from relax.core.checkpoint import Checkpoint, open_checkpoint, write_part
from relax.core.clock import Clock
from relax.core.counts import Counted
from relax.core.fingerprint import fingerprint
from relax.core.registry import ACTOR, ADVANTAGES, CRITIC, process_role
from relax.core.resume import PUBLISHED
from relax.core.rows import batch_keys, demonstration_keys, needs_reference, rollout_keys, rollouts_of
from relax.core.trace import tracing
from relax.rollout.columns import SEQUENCE_COLUMNS
from relax.rollout.debug_data import read_rollout
from relax.rollout.mini_batches import mini_batch_plan
from relax.rollout.post_process import load_function
from relax.transport.queue import Queue


class Actor:
    """Rank ``rank`` of ``size``, each of which trains on its share of every batch; all hold the same weights."""

    def __init__(self, args: Namespace, queue: Queue, *, rank: int = 0, size: int = 1) -> None:
        self.args, self.queue, self.rank, self.size = args, queue, rank, size
        self._name = f"{ACTOR}-{rank}"
        self.model = build_policy(args, load_function(args.task_path)(args))
        settings = OptimizerSettings(
            learning_rate=args.lr,
            warmup_steps=args.lr_warmup_steps,
            weight_decay=args.weight_decay,
            clip_grad=args.clip_grad,
        )
        self.trained = TrainedModel(self.model, Optimizer(self.model, settings))
        self._supervised = Optimizer(
            self.model,
            OptimizerSettings(
                learning_rate=args.sft_lr,
                warmup_steps=args.sft_lr_warmup_steps,
                weight_decay=args.weight_decay,
                clip_grad=args.clip_grad,
            ),
        )
        self._published: dict[int, Mapping[str, torch.Tensor]] = {}  # by version
        self._prepared: dict[str, dict[str, Any]] = {}  # this rank's rows with all their columns, by key
        roles = process_role(args)
        self._advantages_come = ADVANTAGES in roles  # as a column, and with the log-probs
        self._values_come = CRITIC in roles
        self._clock = Clock()

    def learn(self, step: int) -> dict[str, Any]:
        """Supervised step number ``step``, on its demonstrations."""
        own = self._own(demonstration_keys(self.args, step))
        update = self._step(self._read(own, SEQUENCE_COLUMNS), self._supervised, supervised_loss_function)
        return self._facts(update, own)

    def fetch(self, rollout: int) -> dict[str, Any]:
        """Puts rollout number ``rollout`` of ``--load-debug-rollout-data`` into the queue."""
        keys = rollout_keys(self.args, rollout)
        columns = read_rollout(Path(self.args.load_debug_rollout_data), rollout, len(keys))
        with self._clock("transport"):
            self.queue.put(keys, columns)
            enqueued = Counted.of(set(self.queue.keys()) & set(keys))
        counts = {"generated": Counted.of(keys), "enqueued": enqueued}
        return {**counts, "fingerprint": fingerprint(keys, columns["tokens"]), "seconds": self._clock.take()}

    def prepare(self, batches: Sequence[int]) -> dict[str, Any]:
        """Gives this rank's rows of optimizer batches log-probs, advantages and returns: the batches of one rollout,
        or the one batch of several.

        Log-probs are those of the weights as they are now; in true on-policy mode those of the rollout.
        """
        args = self.args
        rows = [batch_keys(args, batch) for batch in batches]
        own = [self._own(batch) for batch in rows]
        keys = [key for batch in own for key in batch]
        values = ["values"] if self._values_come else []
        columns = self._read(keys, [*SEQUENCE_COLUMNS, "rewards", "rollout_log_probs", *values])
        if args.true_on_policy_mode:
            columns["log_probs"] = columns["rollout_log_probs"]
        else:
            columns["log_probs"] = self._score("log_probs", columns)
        if needs_reference(args):
            with self._weights(0):
                columns["ref_log_probs"] = self._score("ref_log_probs", columns)
        columns["keys"] = keys
        data = {**columns, "mini_batch_sizes": [len(batch) for batch in own]}
        data["mini_batch_ids"] = [batch[0] for batch in rows]
        with self._clock("advantages"), tracing(args, rollouts_of(args, batches[0]), self._name):
            compute_advantages_and_returns(args, data)
        columns |= {name: data[name] for name in ("advantages", "returns")}
        if self._values_come:
            with self._clock("transport"):
                self.queue.put(keys, {"returns": columns["returns"]})
        for position, key in enumerate(keys):
            self._prepared[key] = {name: column[position] for name, column in columns.items()}
        return {"seconds": self._clock.take()}

    def train(self, batch: int) -> dict[str, Any]:
        """One optimizer step on batch number ``batch``, whose rows are prepared, or come with their advantages.

        Gives the metrics of the whole batch, this rank's samples ``trained``, and the ``fingerprint`` of the
        advantages it trained on.
        """
        own = self._own(batch_keys(self.args, batch))
        if self._advantages_come:
            columns = self._read(own, self._columns_of_a_batch())
            columns.setdefault("log_probs", columns["rollout_log_probs"])
            columns["keys"] = own
        else:
            rows = [self._prepared.pop(key) for key in own]
            columns = {name: [row[name] for row in rows] for name in rows[0]}
        with tracing(self.args, rollouts_of(self.args, batch), self._name):
            update = self._step(columns, self.trained.optimizer, policy_loss_function)
        return {**self._facts(update, own), "fingerprint": fingerprint(own, columns["advantages"])}

    def weights(self, version: int) -> Mapping[str, torch.Tensor] | None:
        """Version ``version``: what the weights are now, or what they were when it was asked for before.

        Keeps it for those who go on from a later checkpoint. Ranks but the first have nothing to give.
        """
        if version not in self._published:
            if version != self.trained.optimizer.steps:
                raise ValueError(f"weights {version} were not published, and now are {self.trained.optimizer.steps}")
            self._published[version] = weights_of(self.model)
        given = self._published[version]
        self._forget()
        return given if self.rank == 0 else None

    def save(self, folder: str, rollout: int) -> dict[str, Any]:
        """Writes the model, its optimizer, and the earlier weights that rollouts from ``rollout`` on still need."""
        self._forget()
        self.trained.save(Path(folder), ACTOR)
        tensors = {
            f"{version}/{name}": tensor
            for version, weights in self._published.items()
            for name, tensor in weights.items()
        }
        write_part(Path(folder), PUBLISHED, tensors=tensors, facts={"versions": sorted(self._published)})
        return {}

    def load(self, folder: str) -> dict[str, Any]:
        """Continues from a checkpoint."""
        checkpoint = open_checkpoint(Path(folder))
        self.trained.load(checkpoint, ACTOR)
        self._published = _by_version(checkpoint)
        return {}

    def _forget(self) -> None:
        oldest = self.trained.optimizer.steps - self.args.max_staleness
        kept = {0} if needs_reference(self.args) else set()
        self._published = {one: held for one, held in self._published.items() if one >= oldest or one in kept}

    def _own(self, batch: Sequence[str]) -> list[str]:
        """This rank's share of a batch's rows."""
        plan = mini_batch_plan(len(batch), len(batch), rank=self.rank, size=self.size)
        return [batch[position] for position in plan.positions]

    def _columns_of_a_batch(self) -> list[str]:
        names = [*SEQUENCE_COLUMNS, "rollout_log_probs", "advantages"]
        names += [] if self.args.true_on_policy_mode else ["log_probs"]
        return [*names, "ref_log_probs"] if self.args.use_kl_loss else names

    def _read(self, keys: Sequence[str], names: Sequence[str]) -> dict[str, list[Any]]:
        with self._clock("transport"):
            return self.queue.get(keys, names)

    def _score(self, column: str, columns: Mapping[str, Sequence[Any]]) -> list[torch.Tensor]:
        with self._clock(column):
            return score_log_probs(self.args, self.model, columns, micro_batch_size=self.args.micro_batch_size)

    def _step(self, columns: Mapping[str, Sequence[Any]], optimizer: Optimizer, loss: LossFunction) -> Update:
        return train_step(
            self.args,
            self.model,
            optimizer,
            columns,
            loss,
            micro_batch_size=self.args.micro_batch_size,
            clock=self._clock,
        )

    def _facts(self, update: Update, own: Sequence[str]) -> dict[str, Any]:
        metrics = {**update.metrics, "grad_norm": update.grad_norm, "learning_rate": update.learning_rate}
        return {"trained": Counted.of(own), "metrics": metrics, "seconds": self._clock.take()}

    @contextmanager
    def _weights(self, version: int) -> Iterator[None]:
        """The model as it was at a published version, for a block that does not train."""
        now = weights_of(self.model)
        load_weights(self.model, self._published[version])
        try:
            yield
        finally:
            load_weights(self.model, now)


def _by_version(checkpoint: Checkpoint) -> dict[int, Mapping[str, torch.Tensor]]:
    published: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in checkpoint.tensors(PUBLISHED).items():
        version, _, name = key.partition("/")
        published.setdefault(int(version), {})[name] = tensor
    return dict(published)
