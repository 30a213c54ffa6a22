"""The rules about sources: who imports whom, and what must not be written where. Each is shown to fire."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from verification.parity import lints, name_lints, run_lints
from verification.parity.source import Finding, Source

ROOT = Path(__file__).resolve().parents[2]
NAMES = frozenset({"grpo", "gdpo"})
RULES = {rule.name: rule for rule in lints.RULES}


def planted(rule: str, path: str, text: str) -> list[Finding]:
    """What ``rule`` finds in a file ``path`` with the contents ``text``, which must be in its scope."""
    assert RULES[rule].applies_to(path)
    return list(RULES[rule].check(Source.parse(path, text), NAMES))


def test_the_tree_obeys_every_lint() -> None:
    """Each rule holds in each file of its scope."""
    found = run_lints(ROOT)
    assert [str(one.detail) for one in found if not one.agrees] == []
    assert {one.against for one in found} == {*RULES, "spec-field-without-consumer"}
    assert {one.judge for one in found} == {"lint"}


def test_another_folder_is_no_checkout(tmp_path: Path) -> None:
    """A folder without the registry is refused instead of passing for want of files."""
    with pytest.raises(ValueError, match=r"holds no relax/algorithms/spec.py"):
        run_lints(tmp_path)


FIRES = [
    ("algorithm-name-literal", "relax/rollout/filters.py", "x = 1\nNAMES = ['one', 'gdpo']\n", 2, "'gdpo'"),
    ("algorithm-name-literal", "relax/core/registry.py", "TABLE = {\n    'grpo': 1,\n}\n", 2, "'grpo'"),
    ("algorithm-name-comparison", "relax/a.py", "if args.advantage_estimator == name:\n    pass\n", 1, "comparison"),
    ("algorithm-name-comparison", "relax/a.py", "\nx = args.advantage_estimator in names\n", 2, "comparison"),
    ("algorithm-name-comparison", "relax/a.py", "if estimator.startswith('rein'):\n    pass\n", 1, "startswith"),
    (
        "algorithm-name-comparison",
        "relax/a.py",
        "match args.advantage_estimator:\n    case x:\n        y = 1\n",
        1,
        "match",
    ),
    (
        "collective",
        "relax/algorithms/advantages.py",
        "import torch\ntorch.distributed.all_reduce(x)\n",
        2,
        "Collective",
    ),
    ("collective", "relax/algorithms/exact/batch.py", "from torch import distributed\n", 1, "Collective"),
    ("collective", "relax/algorithms/policy.py", "def f():\n    import torch.distributed as dist\n", 2, "Collective"),
    ("random-tensor", "verification/cases/kl.py", "import torch\nx = torch.randn(3)\n", 2, "random"),
    ("random-tensor", "verification/cases/kl.py", "from torch import rand\n", 1, "random"),
    ("random-tensor", "verification/cases/kl.py", "x = torch.empty(3).normal_()\n", 1, "random"),
    ("unpickling", "verification/goldens/store.py", "import json\nimport pickle\n", 2, "pickle"),
    ("unpickling", "tests/relax/test_kl.py", "x = 1\ny = eval('x')\n", 2, "eval"),
    ("unpickling", "relax/a.py", "import torch\nx = torch.load(path)\n", 2, "torch.load"),
    ("unpickling", "relax/a.py", "x = np.load(path, allow_pickle=True)\n", 1, "allow_pickle"),
    ("print", "relax/rollout/metrics.py", "def f():\n    print('x')\n", 2, "print"),
    ("file-name", "relax/algorithms/utils.py", "", 1, "'utils'"),
    ("file-name", "verification/helpers/ulps.py", "", 1, "'helpers'"),
    ("file-name", "tests/relax/test_misc.py", "", 1, "'test_misc'"),
    ("start-up-import", "relax/arguments.py", "import argparse\nimport torch\n", 2, "torch"),
    ("start-up-import", "relax/algorithms/__init__.py", "from relax.algorithms.rewards import x\n", 1, "rewards"),
    ("start-up-import", "relax/types.py", "try:\n    import numpy as np\nexcept ImportError:\n    pass\n", 2, "numpy"),
    ("runtime-import", "relax/algorithms/policy.py", "from megatron.core import parallel_state\n", 1, "megatron"),
    (
        "runtime-import",
        "relax/algorithms/rewards.py",
        "import math\nfrom relax.components import actor\n",
        2,
        "components",
    ),
    (
        "tolerance",
        "tests/relax/test_kl.py",
        "def test_a():\n    assert_close(a, b, rtol=1e-5, atol=0)\n",
        2,
        "no reason",
    ),
    ("tolerance", "tests/relax/test_kl.py", "def test_a():\n    assert x == pytest.approx(y)\n", 2, "no reason"),
    ("tolerance", "tests/relax/test_kl.py", "def test_a():\n    assert abs(x - y) < 1e-4\n", 2, "no reason"),
    ("tolerance", "tests/relax/test_kl.py", "# a reason\nassert torch.allclose(a, b, rtol=0.1)\n", 2, "more than 0.01"),
    ("tolerance", "tests/relax/test_kl.py", "# a reason\nassert_almost_equal(a, b, decimal=1)\n", 2, "more than 0.01"),
    ("tolerance", "tests/relax/test_kl.py", "# a reason\nassert (a - b).abs().max() <= 0.5\n", 2, "more than 0.01"),
    (
        "tolerance",
        "tests/a.py",
        "def test_same_bits():\n    assert isclose(a, b, rel_tol=1e-9)  # why\n",
        2,
        "claims bits",
    ),
]


@pytest.mark.parametrize(("rule", "path", "text", "line", "word"), FIRES)
def test_a_lint_fires(rule: str, path: str, text: str, line: int, word: str) -> None:
    """A planted breach is found once for each message, with file, line and the word that says what it is."""
    found = planted(rule, path, text)
    assert [(one.path, one.line) for one in found if word in one.message] == [(path, line)]
    assert str(found[0]).startswith(f"{path}:{line}: ")


def test_every_rule_has_a_planted_breach() -> None:
    """No rule is without a proof that it can fire."""
    assert {rule for rule, *_ in FIRES} == set(RULES)


SILENT = [
    ("algorithm-name-literal", "relax/rollout/filters.py", 'x = "--gdpo-reward-keys"\ny = "gdpo/zero_std"\n'),
    (
        "algorithm-name-comparison",
        "relax/a.py",
        "spec = get_algorithm(args.advantage_estimator)\nx = spec.kl_level == y\n",
    ),
    ("algorithm-name-comparison", "relax/a.py", "x = args.loss_type == SFT_LOSS_TYPE\n"),
    ("collective", "relax/algorithms/advantages.py", "x = collective.sum(y)\n"),
    ("random-tensor", "verification/cases/kl.py", "import random\nx = random.Random(1).getrandbits(8)\n"),
    ("unpickling", "relax/a.py", "model.eval()\nx = np.load(path, allow_pickle=False)\n"),
    ("print", "relax/a.py", "parser.print_help()\n"),
    ("file-name", "relax/algorithms/reward_inputs.py", ""),
    ("start-up-import", "relax/arguments.py", "from relax.algorithms.spec import get_algorithm\n"),
    ("start-up-import", "relax/arguments.py", "def f():\n    import torch\n"),
    ("start-up-import", "relax/types.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"),
    ("runtime-import", "relax/algorithms/policy.py", "def f():\n    from megatron.core import parallel_state\n"),
    ("tolerance", "tests/relax/test_kl.py", "assert_close(a, b, rtol=0, atol=0)\n"),
    ("tolerance", "tests/relax/test_kl.py", "# exp differs by an ulp\nassert isclose(a, b, rel_tol=1e-7)\n"),
    ("tolerance", "tests/relax/test_kl.py", "assert isclose(a, b, rel_tol=2**-24)  # half an ulp\n"),
    ("tolerance", "tests/relax/test_corpus.py", "assert abs(count - 1000) < 145\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), SILENT)
def test_a_lint_is_silent(rule: str, path: str, text: str) -> None:
    """What the rule allows is not reported."""
    assert planted(rule, path, text) == []


SPEC_TEXT = "class AlgorithmSpec:\n    name: str\n    kl_level: str\n\nALGORITHM_SPECS: dict = {'one': 1}\n"


def test_a_field_without_consumer_is_found() -> None:
    """A field that only its own module, or an object that is no spec, reads is reported at its line."""
    sources = [
        Source.parse(name_lints.SPEC, SPEC_TEXT + "x = spec.kl_level\n"),
        Source.parse("relax/a.py", "x = spec.name\ny = args.kl_level\nspec.kl_level = 1\n"),
        Source.parse("tests/a.py", "x = spec.kl_level\n"),
    ]
    assert [(one.path, one.line) for one in name_lints.check_consumers(sources)] == [(name_lints.SPEC, 3)]
    consumer = Source.parse("relax/b.py", "x = get_algorithm(name).kl_level\n")
    assert list(name_lints.check_consumers([*sources, consumer])) == []


def test_names_are_read_from_the_registry() -> None:
    """The names that the lints look for are those of the registry, read without importing it."""
    from relax.algorithms.spec import list_algorithm_names

    registry = Source.read(ROOT, ROOT / name_lints.SPEC)
    assert name_lints.algorithm_names([registry]) == set(list_algorithm_names())


# Contract of .importlinter: a module and the import that breaks it.
BREACHES = {
    "relax does not know that it is being looked at": ("relax/rollout/filters.py", "import verification.cases.case"),
    "The frozen copies import torch and nothing else": ("verification/frozen/kl.py", "import relax.algorithms.policy"),
    "The oracle knows neither the live code nor the frozen copies": (
        "verification/oracle/exact.py",
        "from verification.frozen import kl",
    ),
    "Formulas need no runtime and nothing above them": ("relax/algorithms/advantages.py", "import ray"),
    "Formulas do not know which algorithm uses them": (
        "relax/algorithms/formulas/gae.py",
        "from relax.algorithms import spec",
    ),
    "Formulas take a collective, and know no training engine": (
        "relax/algorithms/formulas/ratio.py",
        "import relax.backends.megatron.loss",
    ),
    "The registry is data of the standard library": ("relax/algorithms/spec.py", "import torch"),
    "Cases know neither subjects nor judges": ("verification/cases/case.py", "import verification.judges.bits"),
}


def contracts(folder: Path) -> dict[str, str]:
    """Contract to KEPT or BROKEN, as import-linter prints them for ``folder``."""
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    command = [sys.executable, "-c", code, "--config", str(ROOT / ".importlinter"), "--no-cache"]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    lines = [line.rsplit(" ", 1) for line in printed.splitlines()]
    found = {line[0]: line[1] for line in lines if line[-1] in ("KEPT", "BROKEN")}
    assert found, printed
    return found


def test_import_contracts_hold() -> None:
    """Every contract about imports is kept."""
    pytest.importorskip("importlinter", reason="import-linter belongs to the extra 'dev'")
    assert contracts(ROOT) == dict.fromkeys(BREACHES, "KEPT")


def test_import_contracts_fire(tmp_path: Path) -> None:
    """In a tree of the same modules with one forbidden import for each contract, every contract is broken."""
    pytest.importorskip("importlinter", reason="import-linter belongs to the extra 'dev'")
    for package in ("relax", "verification"):
        for path in (ROOT / package).rglob("*.py"):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("")
    for path, line in BREACHES.values():
        (tmp_path / path).write_text(f"{line}\n")
    assert contracts(tmp_path) == dict.fromkeys(BREACHES, "BROKEN")
