"""Which numbers of a row people watch, under which short names."""

from __future__ import annotations

from collections.abc import Mapping

Number = float | int
Row = Mapping[str, Number]
REWARD = "reward/"

# Name of the metric, or of a family that ends in a slash, and what it is called on the terminal.
_WATCHED = (
    ("rollout", "rollout"),
    ("step", "step"),
    (REWARD, ""),
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
    for metric, name in _WATCHED:
        if metric.endswith("/"):
            family = {key: value for key, value in row.items() if key.startswith(metric)}
            found |= {name + key.removeprefix(metric): value for key, value in family.items()}
        elif metric in row:
            found[name] = row[metric]
    return found


def shown(number: Number) -> str:
    """A number with as many digits as one looks at."""
    return str(number) if isinstance(number, int) else f"{number:.4g}"
