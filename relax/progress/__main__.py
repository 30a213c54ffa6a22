"""``python -m relax.progress LOGDIR [LOGDIR ...] --png FILE``: the rewards of runs side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Draws the figure: 0 when it is written, 2 where it cannot be, with one line that says why."""
    parser = argparse.ArgumentParser(
        prog="python -m relax.progress", description="The mean rewards of runs over time, side by side, as a PNG."
    )
    parser.add_argument("folders", nargs="+", metavar="LOGDIR", help="what --log-dir of a run named")
    parser.add_argument("--png", required=True, metavar="FILE", help="where the figure goes")
    parser.add_argument("--rewards", nargs="+", metavar="NAME", help="which rewards (default: those of every run)")
    options = parser.parse_args(argv)
    from relax.progress.figure import FigureError, draw

    try:
        draw([Path(folder) for folder in options.folders], Path(options.png), options.rewards)
    except FigureError as error:
        sys.stderr.write(f"relax.progress: error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"relax.progress: error: {options.png} cannot be written: {error.strerror or error}\n")
        return 2
    sys.stdout.write(f"{options.png}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
