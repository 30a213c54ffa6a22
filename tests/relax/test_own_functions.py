"""Functions of one's own: what is said of a path that names none, and of one that raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax.core.one_line import kind_and_line
from relax.rollout.own_functions import FunctionPathError, blamed, load_function
from relax.rollout.post_process import post_process_rewards
from relax.types import Sample
from verification.cases.arguments import namespace


@pytest.mark.parametrize("path", ["relax.tasks.sums:sum_rewards", "relax.tasks.sums.sum_rewards"])
def test_found(path: str) -> None:
    """Both ways to write a path find the function."""
    assert load_function(path).__name__ == "sum_rewards"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nope", "nope: it names no function: give module:function"),
        ("relax.tasks.sums:", "relax.tasks.sums:: it names no function: give module:function"),
        (".sums:task", ".sums:task: it names no function: give module:function"),
        ("nowhere.at:all", "nowhere.at:all: there is no module 'nowhere' here: give module:function, where the module"),
        ("relax.tasks.sum:task", "relax.tasks.sum:task: there is no module 'relax.tasks.sum' here"),
        ("relax.tasks.sums:sum_reward", "the module relax.tasks.sums has no function 'sum_reward'; did you mean sum_"),
        ("relax.tasks.sums:zzzzz", "the module relax.tasks.sums has no function 'zzzzz': give one that it has"),
        ("relax.tasks.sums:SHORT", "relax.tasks.sums:SHORT: 'SHORT' is int, not a function: give one"),
    ],
)
def test_not_found(path: str, said: str) -> None:
    """The line has the path once, and the part of it that is wrong."""
    with pytest.raises(FunctionPathError) as refusal:
        load_function(path)
    message = str(refusal.value)
    assert said in message
    assert message.startswith(f"{path}: ")
    assert message.count(path) == 1


def test_a_module_that_lacks_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is there and imports one that is not is not said to be missing itself."""
    (tmp_path / "lacking_rewards.py").write_text("import nowhere_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere_at_all'"):
        load_function("lacking_rewards:score")


@pytest.mark.parametrize("kind", [KeyError, SystemExit])
def test_blamed(kind: type[BaseException]) -> None:
    """What a function raises stays what it is, and its line names the function."""
    with pytest.raises(kind) as caught, blamed("--custom-rm-path", "my:rewards"):
        raise kind("total")
    assert kind_and_line(caught.value).endswith("total' (raised by --custom-rm-path my:rewards)") or (
        kind_and_line(caught.value) == "SystemExit: total (raised by --custom-rm-path my:rewards)"
    )


def told(algorithm: str, rewards: list[object], **options: object) -> str:
    """The line on rewards that cannot be trained on."""
    args = namespace(algorithm, n_samples_per_prompt=2, custom_rm_path="my:rewards", **options)
    samples = [Sample(index=i, group_index=0, reward=reward) for i, reward in enumerate(rewards)]
    with pytest.raises((KeyError, TypeError, ValueError)) as caught:
        post_process_rewards(args, samples)
    return kind_and_line(caught.value)


def test_rewards_that_lack_the_key() -> None:
    """The keys that there are are told, and whose they are."""
    assert told("grpo", [{"exact": 1.0, "short": 0.0}] * 2, reward_key="total") == (
        "KeyError: \"the reward of sample 0 (group 0) has no key 'total', which --reward-key names\" (give "
        "--reward-key one of those that it has: 'exact', 'short'; given by --custom-rm-path my:rewards)"
    )


def test_rewards_that_are_no_numbers() -> None:
    """A component that is NaN, and a reward that is text, are told with the function that gave them."""
    keys = ["exact", "short"]
    nan = told("gdpo", [{"exact": float("nan"), "short": 0.0}] * 2, gdpo_reward_keys=keys)
    assert nan.startswith(
        "ValueError: reward 'exact' of sample 0 (group 0) is nan: a reward must be a finite real number"
    )
    assert told("grpo", ["good", "bad"]).startswith("TypeError: the reward of sample 0 (group 0) is 'good': expected a")
    advantage = told("grpo", [1.0, 0.0], agentic_custom_advantage_path="my:advantages")
    assert advantage == (
        "TypeError: the custom_advantage of sample 0 (group 0) is None: expected a real number (given by "
        "--agentic-custom-advantage-path my:advantages)"
    )
    for line in (nan, told("grpo", ["good", "bad"])):
        assert line.endswith(" (given by --custom-rm-path my:rewards)")
