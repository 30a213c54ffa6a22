"""What the front of relax imports: the standard library, so that a command line answers at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "numpy", "ray", "flint", "transfer_queue", "tensordict", "megatron", "verification")
LIGHT_MODULES = (
    "relax.algorithms",
    "relax.algorithms.spec",
    "relax.algorithms.resolve",
    "relax.types",
    "relax.arguments",
    "relax.configuration",
    "relax.options",
    "relax.option_ranges",
    "relax.refusals",
    "relax.runtime_options",
    "relax.runtime_refusals",
    "relax.unread_options",
    "relax.core.registry",
    "relax.core.rows",
    "relax.train",
)
REPORT = f"""
import sys
known = set(sys.stdlib_module_names)
top = {{name.partition(".")[0] for name in sys.modules}}
print(sorted(set({HEAVY!r}) & top))
print(sorted(name for name in top - known - {{"relax", "__main__"}} if name not in before))
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    """``code`` in a fresh interpreter; what was loaded before its first line does not count."""
    code = f"import sys; before = {{name.partition('.')[0] for name in sys.modules}}\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_import(module: str) -> None:
    """Importing the module loads nothing beyond the standard library and relax itself."""
    done = python(f"import {module}\n{REPORT}")
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[]", "[]"]


@pytest.mark.parametrize("module", ["relax.arguments", "relax.train"])
def test_help(module: str) -> None:
    """``--help`` prints every option and ends with 0, without torch."""
    code = f"""
from {module} import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
{REPORT}
"""
    done = python(code)
    assert done.stderr == ""
    *text, heavy, foreign = done.stdout.splitlines()
    assert (heavy, foreign) == ("[]", "[]")
    assert "--advantage-estimator" in "\n".join(text)


def test_roles_without_torch() -> None:
    """The roles of a run are found without torch and without ray."""
    code = f"""
from types import SimpleNamespace
from relax.core.registry import process_role
flags = dict(debug_rollout_only=False, debug_train_only=False, fully_async=True, true_on_policy_mode=False)
print(list(process_role(SimpleNamespace(advantage_estimator="ppo", loss_type="policy_loss", **flags))))
{REPORT}
"""
    done = python(code)
    assert done.stderr == ""
    roles = "['actor', 'critic', 'rollout', 'advantages', 'reference', 'actor_fwd']"
    assert done.stdout.splitlines() == [roles, "[]", "[]"]


def test_advantages_need_torch_alone() -> None:
    """The advantages of the asynchronous path, and the schedule, load where only torch and numpy are installed."""
    code = """
import sys
absent = ("safetensors", "ray", "megatron", "transfer_queue", "tensordict", "reasoning_gym", "rich", "matplotlib")
sys.modules.update(dict.fromkeys(absent))  # None there: importing it fails
from relax.components.advantages import advantages_of_batch
from relax.core.schedule import schedule
print(advantages_of_batch.__name__, schedule.__name__)
"""
    done = python(code)
    assert done.stderr == ""
    assert done.stdout == "advantages_of_batch schedule\n"


def test_the_report_notices() -> None:
    """The report that the tests above read names a heavy module that was loaded."""
    done = python(f"import numpy\n{REPORT}")
    assert done.stdout.splitlines() == ["['numpy']", "['numpy']"]
