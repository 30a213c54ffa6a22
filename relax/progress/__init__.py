"""What a person sees of a run: numbers on the terminal, metrics.csv, TensorBoard, and a figure of the rewards."""

from __future__ import annotations

from relax.progress.watch import Progress

__all__ = ["Progress"]
