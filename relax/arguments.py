"""The command line of relax, parsed and checked: ``python -m relax.arguments --help``.

The options are in ``relax.options`` and ``relax.runtime_options``; those of a file are read by ``relax.configuration``;
what is refused, and why, is in ``relax.option_ranges``, ``relax.component_options``, ``relax.refusals`` and
``relax.runtime_refusals``; what has no effect, and is warned of, in ``relax.unread_options``. A run refuses more only
of what its machine, its folders and its own code lack (``relax.core.preflight``, ``relax.core.resume``).
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence

from relax import options
from relax.configuration import read_configuration, without_excluded
from relax.refusals import validate_algorithm_args
from relax.runtime_options import add_runtime_options
from relax.runtime_refusals import validate_runtime_args
from relax.unread_options import unread_options

__all__ = ["build_parser", "main", "parse_aloud", "parse_args", "validate_algorithm_args", "validate_runtime_args"]

COMMAND = "python -m relax.arguments"
DESCRIPTION = "Checks a command line of relax and shows the options in force; starts nothing."
_NOT_GIVEN = object()


def build_parser(command: str = COMMAND, description: str = DESCRIPTION) -> argparse.ArgumentParser:
    """The parser of every option, and of ``--no-`` before the name of a switch; `parse_args` also checks.

    ``command`` and ``description`` are what its help says.
    """
    parser = options.build_parser()
    parser.usage, parser.description = f"{command} [options]", description
    add_runtime_options(parser)
    for switch in [action for action in parser._actions if isinstance(action.const, bool)]:
        parser.add_argument(
            f"--no-{switch.option_strings[0].removeprefix('--')}",
            action="store_const",
            const=not switch.const,
            dest=switch.dest,
            default=switch.default,
            help=argparse.SUPPRESS,
        )
    parser.epilog = "A switch that --config turns on is turned off by --no- before its name: --no-fully-async."
    return parser


def parse_args(
    argv: Sequence[str] | None = None, *, command: str = COMMAND, description: str = DESCRIPTION
) -> argparse.Namespace:
    """The options in force. A command line that is refused ends with exit status 2 and one line on stderr.

    ``command`` and ``description`` are what ``--help`` says.
    """
    parser = build_parser(command, description)
    try:
        args = _merged(parser, argv)
        validate_algorithm_args(args)
        _fill_in(args)
        validate_runtime_args(args)
    except ValueError as refusal:
        parser.error(str(refusal))
    for line in unread_options(args, vars(parser.parse_args([]))):
        warnings.warn(line, stacklevel=2)
    return args


def parse_aloud(argv: Sequence[str] | None = None, **said: str) -> argparse.Namespace:
    """As `parse_args`, with the same keywords; what it warns of is a line each on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        args = parse_args(argv, **said)
    for warning in caught:
        sys.stderr.write(f"relax: warning: {warning.message}\n")
    return args


def _merged(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says, over what the file of ``--config`` does, over the defaults."""
    defaults = vars(parser.parse_args([]))
    named = vars(parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(defaults, _NOT_GIVEN))))
    given = {name: value for name, value in named.items() if value is not _NOT_GIVEN}
    path = given.get("config")
    configured = {} if path is None else without_excluded(parser, read_configuration(path, parser), given)
    return argparse.Namespace(**{**defaults, **configured, **given})


def _fill_in(args: argparse.Namespace) -> None:
    """Replaces what was left open by what it stands for."""
    args.colocate = not args.fully_async
    if args.global_batch_size is None:
        args.global_batch_size = args.rollout_batch_size * args.n_samples_per_prompt
    if args.gdpo_reward_keys is not None and args.gdpo_reward_weights is None:
        args.gdpo_reward_weights = [1.0] * len(args.gdpo_reward_keys)


def main(argv: Sequence[str] | None = None) -> int:
    """Checks a command line and writes the options in force to stdout as JSON."""
    shown = vars(parse_aloud(argv))
    sys.stdout.write(json.dumps(shown, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
