"""Which numbers of a row people watch, under which short names."""

from __future__ import annotations

from collections.abc import Mapping

Number = float | int
Row = Mapping[str, Number]
REWARD = "reward/"
EVALUATED = "rollouts"
"""Of the row of an evaluation: the rollouts that were trained on before it."""
EVALUATION = "evaluation/"

# Name of the metric, or of a family that ends in a slash, and what it is called on the terminal.
WATCHED = (
    ("rollout", "rollout"),
    ("step", "step"),
    (REWARD, ""),
    (EVALUATION, ""),
    ("train/loss", "loss"),
    ("train/ppo_kl", "KL"),
    ("train/kl_loss", "KL to reference"),
    ("train/grad_norm", "gradient norm"),
    ("critic/loss", "critic loss"),
    ("rollout/zero_std", "flat groups"),
    ("rollout/gdpo/zero_std/", "flat: "),
    ("supervised_step", "warm-up step"),
    ("supervised/loss", "loss"),
    ("supervised/grad_norm", "gradient norm"),
    ("samples_per_second", "samples/s"),
)


def watched(row: Row) -> dict[str, Number]:
    """Short name to number, in the order in which they are shown; what the row lacks is left out."""
    found: dict[str, Number] = {}
    for metric, name in WATCHED:
        if metric.endswith("/"):
            family = {key: value for key, value in row.items() if key.startswith(metric)}
            found |= {name + key.removeprefix(metric): _counted(key, value) for key, value in family.items()}
        elif metric in row:
            found[name] = _counted(metric, row[metric])
    return found


def _counted(metric: str, value: Number) -> Number:
    """A count of groups as the whole number that it is, where it is no mean over rollouts."""
    return int(value) if "zero_std" in metric and value == int(value) else value


def shown(number: Number) -> str:
    """A number with as many digits as one looks at, in at most eight characters where it is not huge."""
    if isinstance(number, int):
        return str(number)
    if number == 0 or 1e-3 <= abs(number) < 10:
        return f"{number:.4f}"
    return f"{number:.1f}" if 10 <= abs(number) < 1e5 else f"{number:.1e}"
