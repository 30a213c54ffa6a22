"""Lints about imports, calls and file names: collectives, random inputs, unpickling, printing, start-up weight."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath

from verification.parity.source import (
    Finding,
    Rule,
    Source,
    below,
    dotted,
    imported_modules,
    module_level_imports,
    starts_with_module,
)

COLLECTIVE = "relax/algorithms/collective.py"
UNPICKLERS = frozenset({"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"})
RANDOM_TENSORS = frozenset(
    {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"}
    | {"normal", "bernoulli", "multinomial", "poisson"}
)
RANDOM_IN_PLACE = frozenset(
    {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "cauchy_", "geometric_", "log_normal_"}
)
VAGUE_NAMES = frozenset({"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers"})
HEAVY = frozenset({"ray", "transfer_queue", "tensordict", "megatron", "relax.components", "relax.backends"})
# Modules that the command line imports before it knows that it needs torch: they load the standard library and one
# another. A package's __init__ runs with every module below it.
LIGHT = frozenset(
    {
        "relax",
        "relax.algorithms",
        "relax.algorithms.spec",
        "relax.arguments",
        "relax.component_options",
        "relax.configuration",
        "relax.core",
        "relax.core.registry",
        "relax.core.rows",
        "relax.option_ranges",
        "relax.options",
        "relax.refusals",
        "relax.runtime_options",
        "relax.runtime_refusals",
        "relax.types",
        "relax.unread_options",
    }
)


def check_distributed(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """torch.distributed, imported or reached through torch."""
    for node in ast.walk(source.tree):
        reached = dotted(node) == "torch.distributed" or any(
            starts_with_module(module, frozenset({"torch.distributed"})) for module in imported_modules(node)
        )
        if reached:
            yield source.finding(node, f"torch.distributed outside {COLLECTIVE}: take a Collective as an argument")


def check_random(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """A random tensor of torch, whose stream depends on the CPU."""
    for node in ast.walk(source.tree):
        parts = dotted(node).split(".") if isinstance(node, ast.Attribute) else []
        from_torch = len(parts) == 2 and parts[0] == "torch" and parts[1] in RANDOM_TENSORS
        in_place = isinstance(node, ast.Attribute) and node.attr in RANDOM_IN_PLACE
        imported = any(module.removeprefix("torch.") in RANDOM_TENSORS for module in imported_modules(node))
        if from_torch or in_place or imported:
            yield source.finding(node, "random tensor from torch: make the input from integers of the standard library")


def check_unpickling(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """Reading data that can run code: pickle and its kin, eval and exec, torch.load, allow_pickle."""
    for node in ast.walk(source.tree):
        for module in imported_modules(node):
            if module.split(".")[0] in UNPICKLERS:
                yield source.finding(node, f"{module.split('.')[0]} runs code from data: use JSON, text or safetensors")
        if isinstance(node, ast.Call):
            called = dotted(node.func)
            if called in ("eval", "exec", "builtins.eval", "builtins.exec"):
                yield source.finding(node, f"{called} runs code from data: parse the data instead")
            elif called == "torch.load":
                yield source.finding(node, "torch.load unpickles: use safetensors")
            if any(word.arg == "allow_pickle" and _is_true(word.value) for word in node.keywords):
                yield source.finding(node, "allow_pickle unpickles: store plain arrays")


def _is_true(node: ast.AST) -> bool:
    return not (isinstance(node, ast.Constant) and node.value is False)


def check_print(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """print in the system under test."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and dotted(node.func) == "print":
            yield source.finding(node, "print under relax: use logging, or return what is to be shown")


def check_file_name(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """A file or folder whose name says nothing about what is in it."""
    path = PurePosixPath(source.path)
    for part in (*path.parts[:-1], path.stem):
        if part.removeprefix("test_") in VAGUE_NAMES:
            yield Finding(source.path, 1, f"the name {part!r} says nothing about the contents: name the concern")


def check_light_imports(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """A module of the start-up path that loads more than the standard library and its like."""
    for node in module_level_imports(source.tree):
        for module in imported_modules(node) or ["a relative import"]:
            standard = module.split(".")[0] in sys.stdlib_module_names
            if not standard and module not in LIGHT and module.rpartition(".")[0] not in LIGHT:
                message = f"{module} is loaded at start-up: import it in the function that needs it"
                yield source.finding(node, message)
            elif module.rpartition(".")[0] in ("relax", "relax.algorithms", "relax.core") and module not in LIGHT:
                message = f"{module} is no module of the start-up path: import it in the function that needs it"
                yield source.finding(node, message)


def check_heavy_imports(source: Source, names: frozenset[str]) -> Iterator[Finding]:
    """A formula that cannot be imported without the runtime."""
    for node in module_level_imports(source.tree):
        for module in imported_modules(node):
            if starts_with_module(module, HEAVY):
                message = f"{module} is imported at module level: import it in the function that needs it"
                yield source.finding(node, message)


def _light(path: str) -> bool:
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return module in LIGHT


RULES = (
    Rule("collective", below("relax/algorithms", but=(COLLECTIVE,)), check_distributed),
    Rule("random-tensor", below("verification/cases"), check_random),
    Rule("unpickling", lambda path: True, check_unpickling),
    Rule("print", below("relax"), check_print),
    Rule("file-name", lambda path: True, check_file_name),
    Rule("start-up-import", _light, check_light_imports),
    Rule("runtime-import", below("relax/algorithms"), check_heavy_imports),
)
