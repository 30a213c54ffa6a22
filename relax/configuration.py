"""Options from a YAML file: keys are option names, values what the command line would be given.

    advantage-estimator: gdpo
    gdpo-reward-keys: [correctness, format]
    lr: 5e-4
    fully-async: true

A value is read as the text that the command line would hold, so that a number means the same in both places.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relax.option_ranges import OPTION_RANGES, check_number, option_of
from relax.runtime_options import RUNTIME_RANGES

CONFIG = "--config"
_KINDS = {int: "a whole number", float: "a number", str: "text"}
_TAG = "tag:yaml.org,2002:"
_NUMBERS = {f"{_TAG}int", f"{_TAG}float"}


class ConfigurationError(ValueError):
    """The file cannot be used; one line that names file, line and key, what is wrong and the remedy."""


def read_configuration(path: str, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The options in the YAML file at ``path``: attribute to value, converted and in range as ``parser`` would have it.

    Keys are written with or without leading dashes, with dashes or underscores inside. Raises `ConfigurationError`.
    """
    root = _root(path)
    options = {option: action for action in parser._actions for option in action.option_strings}
    values: dict[str, Any] = {}
    seen: dict[str, int] = {}
    for key_node, node in root:
        place = f"{path}, line {key_node.start_mark.line + 1}"
        option = option_of(str(key_node.value).lstrip("-"))
        action = options.get(option)
        if action is None or action.help == argparse.SUPPRESS or option in (CONFIG, "--help"):
            raise ConfigurationError(f"{place}: {key_node.value!r} {_unknown(option, options)}")
        if option in seen:
            raise ConfigurationError(f"{place}: {key_node.value!r} stands on line {seen[option]} already; drop one")
        seen[option] = key_node.start_mark.line + 1
        try:
            values[action.dest] = _value_of(action, option, node)
        except ValueError as wrong:
            raise ConfigurationError(f"{place}: {wrong}") from None
    for group in parser._mutually_exclusive_groups:
        on = [action for action in group._group_actions if values.get(action.dest) is True]
        if len(on) > 1:
            first, second, *_ = (action.option_strings[0] for action in on)
            raise ConfigurationError(f"{path}, line {seen[second]}: {first} and {second} exclude each other; drop one")
    return values


def without_excluded(
    parser: argparse.ArgumentParser, configured: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """``configured`` without those options that exclude one which the command line turns on."""
    left = dict(configured)
    for group in parser._mutually_exclusive_groups:
        names = {action.dest for action in group._group_actions}
        if any(given.get(name) for name in names):
            left = {name: value for name, value in left.items() if name not in names}
    return left


def _root(path: str) -> list[tuple[Any, Any]]:
    """The pairs of key and value, as nodes that know their lines."""
    if not path.strip():
        raise ConfigurationError(f"{CONFIG} {path!r}: it is blank; give the file, or leave the option out")
    try:
        import yaml
    except ImportError:
        raise ConfigurationError(
            f'{CONFIG} {path}: the package PyYAML is missing; install it with pip install "relax-verification[runtime]"'
        ) from None
    try:
        root = yaml.SafeLoader(Path(path).read_bytes()).get_single_node()
    except OSError as error:
        raise ConfigurationError(f"{CONFIG} {path} cannot be read: {error.strerror or error}; give a file") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: no YAML: it is nested too deeply; expected lines option: value") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else path
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise ConfigurationError(f"{place}: no YAML: {' '.join(str(what).split())}") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigurationError(f"{path}, line {root.start_mark.line + 1}: expected lines of the form option: value")
    return root.value


def _unknown(option: str, options: Mapping[str, argparse.Action]) -> str:
    if option in (CONFIG, "--help"):
        return "cannot stand in a configuration; drop it"
    known = [name for name, action in options.items() if action.help != argparse.SUPPRESS and name.startswith("--")]
    close = difflib.get_close_matches(option, known, n=1)
    return "is no option" + (f"; did you mean {close[0][2:]}?" if close else "; --help lists the options")


def _value_of(action: argparse.Action, option: str, node: Any) -> Any:
    """The value of one option. Raises ValueError that names the option and what it takes."""
    if node.id == "scalar" and node.tag == f"{_TAG}null":
        if action.default is None:
            return None
        raise ValueError(f"{option} has no value; give one, or drop the line")
    if action.nargs == 0:
        return _switched(action, option, node)
    if action.nargs == "+":
        if node.id != "sequence" or not node.value:
            raise ValueError(f"{option} takes a list of one or more, such as [a, b]")
        return [_scalar(action, option, one) for one in node.value]
    return _scalar(action, option, node)


def _switched(action: argparse.Action, option: str, node: Any) -> bool:
    if node.tag != f"{_TAG}bool":
        raise ValueError(f"{option} is a switch: give true or false, not {_shown(node)}")
    on = node.value.lower() in ("true", "yes", "on")
    return action.const if on else not action.const


def _scalar(action: argparse.Action, option: str, node: Any) -> Any:
    type_: Any = action.type
    kind = _KINDS.get(type_, "text")
    if node.id != "scalar":
        raise ValueError(f"{option} takes {kind}, not {_shown(node)}")
    if kind == "text" and node.tag != f"{_TAG}str":
        raise ValueError(f"{option} takes text, not {_shown(node)}; put it in quotes if it is meant")
    if kind != "text" and node.style is not None:
        raise ValueError(f"{option} takes {kind}, not the text {node.value!r}; drop the quotes")
    try:
        value = type_(node.value)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"{option}: {error}") from None
    except ValueError:
        raise ValueError(f"{option} takes {kind}, not {_shown(node)}") from None
    if action.choices is not None and value not in action.choices:
        raise ValueError(f"{option} {value!r}: choose from {', '.join(map(str, action.choices))}")
    allowed = {**OPTION_RANGES, **RUNTIME_RANGES}.get(option)
    if allowed is not None:
        check_number(option, value, allowed)
    return value


def _shown(node: Any) -> str:
    return repr(node.value) if node.id == "scalar" else f"a {node.id}"
