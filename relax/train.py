"""Training from the command line: ``python -m relax.train --config examples/gdpo/cpu.yaml``."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relax.arguments import parse_args

if TYPE_CHECKING:
    from relax.core.record import Record

DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Trains; the exit status says how it ended: 0 done, 1 failed, 2 refused before anything started, 130 Ctrl-C."""
    args = parse_args(argv)
    from relax.core.checkpoint import CheckpointError
    from relax.core.cluster import ClusterError
    from relax.core.execution import RunError
    from relax.core.resume import checkpoint_of
    from relax.transport.queue import TransportError

    try:
        checkpoint = checkpoint_of(args)
    except ValueError as refusal:
        return _said(refusal, REFUSED)
    try:
        record = _train(args, checkpoint)
    except (RunError, ClusterError, TransportError, CheckpointError) as failure:
        return _said(failure, FAILED)
    except KeyboardInterrupt:
        sys.stderr.write("relax: interrupted\n")
        return INTERRUPTED
    return _summary(args, record)


def _train(args, checkpoint) -> Record:
    from relax.core.cluster import cluster
    from relax.core.controller import Controller
    from relax.transport.queue import start_queue

    with cluster(args.ray_logical_cpus or 16), start_queue(args.storage_units) as queue:
        return Controller(args, queue, _Lines(), checkpoint=checkpoint).run()


class _Lines:
    def step(self, row) -> None:
        sys.stdout.write(
            " ".join(f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in row.items()) + "\n"
        )
        sys.stdout.flush()


def _said(error: Exception, status: int) -> int:
    sys.stderr.write(f"relax: error: {error}\n")
    return status


def _summary(args: Namespace, record: Record) -> int:
    sys.stdout.write(f"{record}\n")
    counts = record.counts
    sys.stdout.write(f"generated {counts.generated} == enqueued {counts.enqueued} == trained {counts.trained}\n")
    return DONE


if __name__ == "__main__":
    raise SystemExit(main())
