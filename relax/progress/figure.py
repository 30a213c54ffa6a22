"""The rewards of runs over time, as a figure: a panel a reward, a colour an algorithm, a thin line a run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax.progress.metrics_file import numbered_rows
from relax.progress.numbers import REWARD

SIZE = (4.2, 3.2)  # of a panel, in inches
DPI = 110


class FigureError(ValueError):
    """There is nothing to draw; names the folder and the remedy."""


@dataclass(frozen=True)
class Curves:
    """The mean rewards of one run, by name, each as rollout to value.

    ``label`` is the algorithm's name; ``components`` are the rewards that it was told of by name.
    """

    label: str
    components: tuple[str, ...]
    rewards: Mapping[str, Mapping[int, float]]


def read_curves(folder: Path) -> Curves:
    """Those of a run that had ``--log-dir folder``; a `FigureError` where it left none."""
    from relax.progress.watch import METRICS, OPTIONS

    try:
        rows = numbered_rows(folder / METRICS, "rollout")
        options = json.loads((folder / OPTIONS).read_text())
        names = [name for name in (rows[0][1] if rows else ()) if name.startswith(REWARD)]
        rewards = {
            name.removeprefix(REWARD): {rollout: float(row[name]) for rollout, row in rows if row[name]}
            for name in names
        }
    except (OSError, ValueError) as error:
        raise FigureError(f"{folder} holds no metrics of a run ({error}): give the folder of its --log-dir") from None
    if not names:
        raise FigureError(f"{folder / METRICS} holds no reward: nothing was sampled in that run")
    components = options.get("gdpo_reward_keys") or ()
    return Curves(str(options.get("advantage_estimator", folder.name)), tuple(components), rewards)


def draw(folders: Sequence[Path], path: Path, rewards: Sequence[str] | None = None) -> None:
    """Writes the figure of the runs below ``folders`` to ``path``, as PNG.

    ``rewards`` are the panels; by default the components that the runs' options name, else all that every run has. Runs
    of one algorithm share a colour, and their mean is the thick line.
    """
    from matplotlib.figure import Figure

    runs = [read_curves(folder) for folder in folders]
    shared = [name for name in runs[0].rewards if all(name in run.rewards for run in runs)]
    named = [name for name in shared if all(name in run.components for run in runs)]
    panels = list(rewards or named or shared)
    for name in panels:
        if name not in shared:
            raise FigureError(f"no reward {name!r} in every run: there are {', '.join(shared) or 'none'}")
    if not panels:
        raise FigureError("the runs have no reward in common: draw them one by one")
    figure = Figure(figsize=(SIZE[0] * len(panels), SIZE[1]), dpi=DPI, layout="constrained")
    for axes, name in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _panel(axes, name, runs)
    figure.savefig(path, format="png", metadata={"Software": None})


def _panel(axes: Any, name: str, runs: Sequence[Curves]) -> None:
    for number, label in enumerate(dict.fromkeys(run.label for run in runs)):
        of_label = [run.rewards[name] for run in runs if run.label == label]
        colour = f"C{number}"
        if len(of_label) > 1:
            for curve in of_label:
                axes.plot(list(curve), list(curve.values()), color=colour, linewidth=0.7, alpha=0.5)
        mean = {
            rollout: statistics.fmean(curve[rollout] for curve in of_label)
            for rollout in of_label[0]
            if all(rollout in curve for curve in of_label)
        }
        text = label if len(of_label) == 1 else f"{label}, mean of {len(of_label)}"
        axes.plot(list(mean), list(mean.values()), color=colour, linewidth=1.8, label=text)
    if all(0 <= value <= 1 for run in runs for value in run.rewards[name].values()):
        axes.set_ylim(-0.03, 1.03)
    axes.set_title(name)
    axes.set_xlabel("rollout")
    axes.set_ylabel("mean reward")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
