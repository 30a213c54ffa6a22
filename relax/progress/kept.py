"""What a run left in files, and how to look at it."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from relax.core.checkpoint import checkpoints
from relax.progress.watch import BOARDS, FIGURE, NUMBERED


def kept(args: Namespace) -> str:
    """As lines for the terminal: what is there below ``--log-dir``, and the latest checkpoint in ``--save``."""
    found = [*_numbers(args.log_dir), *_checkpoint(args.save)]
    width = max((len(what) for what, _ in found), default=0)
    return "".join(f"{what.ljust(width)}  {where}\n" for what, where in found)


def _numbers(log_dir: str | None) -> Iterator[tuple[str, str]]:
    if log_dir is None:
        return
    folder = Path(log_dir)
    for name in (*NUMBERED, FIGURE):
        if (folder / name).is_file():
            yield "figure" if name == FIGURE else "numbers", str(folder / name)
    if (folder / BOARDS).is_dir():
        yield "TensorBoard", f"tensorboard --logdir {shlex.quote(log_dir)}"


def _checkpoint(save: str | None) -> Iterator[tuple[str, str]]:
    if save is not None and (there := checkpoints(Path(save))):
        yield "checkpoint", str(Path(save) / f"step-{there[-1]:08d}")
