"""Training from the command line: ``python -m relax.train --config examples/gdpo/cpu.yaml``."""

from __future__ import annotations

import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relax.arguments import parse_aloud

if TYPE_CHECKING:
    from relax.core.checkpoint import Checkpoint
    from relax.progress.summary import Summary

COMMAND = "python -m relax.train"
DESCRIPTION = (
    "Trains a policy with one of the registered algorithms, in processes on this machine, and shows how it goes. Exit "
    "status: 0 done, 1 failed in the run, 2 refused before anything was started, 130 interrupted or terminated."
)
DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
FAILURE = "failure.txt"
"""Below ``--log-dir``: the traceback of what ended the run inside a role."""


def main(argv: Sequence[str] | None = None) -> int:
    """Trains; gives the exit status: 0 done, 1 failed in the run, 2 refused before anything started, 130 interrupted
    or terminated.
    """
    with ExitStack() as held:
        return _tried(argv, held)


def _tried(argv: Sequence[str] | None, held: ExitStack) -> int:
    """As `main`; ``held`` is given what the run has for itself until its end."""
    try:
        args = parse_aloud(argv, command=COMMAND, description=DESCRIPTION)
        checkpoint = _checked(args, held)
        if args.check:
            sys.stdout.write("nothing speaks against this run\n")
            return DONE
    except (ValueError, OSError) as refusal:
        return _say(refusal, REFUSED)
    except KeyboardInterrupt:
        return _say("interrupted before anything was started", INTERRUPTED)
    try:
        with _terminated_as_interrupted():
            return _run(args, checkpoint)
    except _Terminated:
        return _say(f"terminated; {_advice(args)}", INTERRUPTED)
    except KeyboardInterrupt:
        return _say(f"interrupted; {_advice(args)}", INTERRUPTED)


class _Terminated(KeyboardInterrupt):
    """Somebody asked this process to end, as a batch system does before it kills."""


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Within the block SIGTERM ends the run as Ctrl-C does."""

    def end(number: int, frame: Any) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():  # which alone may say what a signal does
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(args: Namespace, checkpoint: Checkpoint | None) -> int:
    from relax.core.checkpoint import CheckpointError
    from relax.core.cluster import ClusterError
    from relax.core.execution import RunError
    from relax.core.going_on import nothing_left
    from relax.core.trace import TraceError
    from relax.progress.kept import kept
    from relax.progress.watch import ProgressError
    from relax.transport.queue import TransportError

    if nothing_left(args, checkpoint):
        sys.stdout.write(f"nothing is left to do: all {args.num_rollout} rollouts are in {args.load}\n{kept(args)}")
        return DONE
    try:
        summary = _trained(args, checkpoint)
    except RunError as failure:
        return _say(f"{failure}{_kept(args, failure.trace)}; {_advice(args)}", FAILED)
    except (ClusterError, TransportError, CheckpointError, TraceError, ProgressError) as failure:
        return _say(f"{failure}; {_advice(args)}", FAILED)
    sys.stdout.write(f"{kept(args)}{summary.text()}")
    return DONE if summary.nothing_lost else _say("samples were lost or trained on twice: see the counts", FAILED)


def _checked(args: Namespace, held: ExitStack) -> Checkpoint | None:
    """The checkpoint to go on from, if any; ValueError for what cannot be done here."""
    from relax.core.preflight import preflight

    for line in preflight(args):
        _warn(line)
    from relax.core.own_folders import own_folders
    from relax.core.resume import checkpoint_of

    held.enter_context(own_folders(args))
    checkpoint = checkpoint_of(args)
    if checkpoint is not None and args.trace_rollout is not None and args.trace_rollout < checkpoint.step:
        _warn(
            f"--trace-rollout {args.trace_rollout} and --load {args.load}: --trace-rollout has no effect, as the run "
            f"goes on with rollout {checkpoint.step}; give that or a later one"
        )
    return checkpoint


def _trained(args: Namespace, checkpoint: Checkpoint | None) -> Summary:
    """The whole run: nothing that it started outlives this call."""
    from relax.core.cluster import DEADLINE, cluster
    from relax.core.controller import Controller
    from relax.core.going_on import beginning
    from relax.core.guard import guarded
    from relax.core.preflight import logical_cpus
    from relax.progress import Progress
    from relax.transport.queue import start_queue

    needed, deadline = logical_cpus(args), min(args.call_timeout, DEADLINE)
    first = None if checkpoint is None else checkpoint.step
    began = time.monotonic()
    sys.stdout.write(f"{beginning(args, checkpoint)}starting Ray and {needed} processes\n")
    sys.stdout.flush()
    with (
        guarded(_advice(args)) as run,
        cluster(args.ray_logical_cpus or needed, needed=needed, deadline=deadline, announce=run.remove) as folder,
        _terminated_as_interrupted(),  # again: Ray, as it starts, answers SIGTERM in its own way
        start_queue(args.storage_units, deadline=args.call_timeout) as queue,
        Progress(args, first=first, began=began) as progress,
    ):
        progress.started("Ray is up")
        return Controller(args, queue, progress, folder, checkpoint=checkpoint, announce=progress.started).run()


def _advice(args: Namespace) -> str:
    if args.save is None:
        return "start again; with --save and --save-interval a run can be continued"
    return f"continue with --load {args.save}"


def _kept(args: Namespace, trace: str | None) -> str:
    """Where the traceback is, which would bury the one line."""
    if trace is None:
        return ""
    if args.log_dir is None:
        return " (--log-dir keeps the traceback)"
    path = Path(args.log_dir) / FAILURE
    try:
        path.write_text(trace)
    except OSError as error:
        return f" (the traceback is lost: {path} cannot be written: {error.strerror or error})"
    return f" (traceback in {path})"


def _warn(line: str) -> None:
    sys.stderr.write(f"relax: warning: {line}\n")


def _say(message: object, status: int) -> int:
    sys.stderr.write(f"relax: error: {message}\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
