"""The command line of relax, parsed and checked: ``python -m relax.arguments --help``.

The options are in ``relax.options``; what is refused, and why, in ``relax.option_ranges``, ``relax.component_options``
and ``relax.refusals``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from relax.options import build_parser
from relax.refusals import validate_algorithm_args

__all__ = ["build_parser", "main", "parse_args", "validate_algorithm_args"]


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options in force. A command line that is refused ends with exit status 2 and one line on stderr."""
    parser = build_parser()
    args = parser.parse_args(argv)
    try:
        validate_algorithm_args(args)
    except ValueError as refusal:
        parser.error(str(refusal))
    _fill_in(args)
    return args


def _fill_in(args: argparse.Namespace) -> None:
    """Replaces what was left open by what it stands for."""
    args.colocate = not args.fully_async
    if args.global_batch_size is None:
        args.global_batch_size = args.rollout_batch_size * args.n_samples_per_prompt
    if args.gdpo_reward_keys is not None and args.gdpo_reward_weights is None:
        args.gdpo_reward_weights = [1.0] * len(args.gdpo_reward_keys)


def main(argv: Sequence[str] | None = None) -> int:
    """Checks a command line and writes the options in force to stdout as JSON."""
    options = vars(parse_args(argv))
    sys.stdout.write(json.dumps(options, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
