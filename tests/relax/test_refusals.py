"""Every contradiction on the command line is refused in one line that names both options and the remedy."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from relax.algorithms.spec import ALGORITHM_SPECS, list_algorithm_names
from relax.arguments import validate_algorithm_args
from relax.options import build_parser
from relax.refusals import NEVER_BLANK
from tests.relax.command_lines import line, refused
from verification.cases.arguments import namespace

REFUSALS: dict[str, tuple[list[str], list[str]]] = {
    "token normalisation of gdpo": (
        line("gdpo", "--normalize-advantages"),
        ["--advantage-estimator gdpo and --normalize-advantages (on)", "drop --normalize-advantages"],
    ),
    "reward hook of gdpo": (
        line("gdpo", "--custom-reward-post-process-path", "my.hook"),
        ["--advantage-estimator gdpo and --custom-reward-post-process-path my.hook", "drop --custom-reward"],
    ),
    "advantage hook of gdpo": (
        line("gdpo", "--agentic-custom-advantage-path", "my.hook"),
        ["--advantage-estimator gdpo and --agentic-custom-advantage-path my.hook", "drop --agentic-custom"],
    ),
    "raw rewards of gdpo": (
        line("gdpo", "--disable-rewards-normalization"),
        ["--advantage-estimator gdpo and --disable-rewards-normalization (on)"],
    ),
    "gdpo group of one": (
        line("gdpo", "--n-samples-per-prompt", "1"),
        ["--advantage-estimator gdpo and --n-samples-per-prompt 1:", "give --n-samples-per-prompt 2 or more"],
    ),
    "gdpo group of one without std": (
        line("gdpo", "--n-samples-per-prompt", "1", "--disable-grpo-std-normalization"),
        ["--advantage-estimator gdpo and --n-samples-per-prompt 1:"],
    ),
    "no key": (
        ["--advantage-estimator", "gdpo"],
        ["--advantage-estimator gdpo and --gdpo-reward-keys (not given)", "two or more"],
    ),
    "one key": (
        ["--advantage-estimator", "gdpo", "--gdpo-reward-keys", "a"],
        ["--advantage-estimator gdpo and --gdpo-reward-keys a:", "two or more"],
    ),
    "duplicate key": (
        ["--advantage-estimator", "gdpo", "--gdpo-reward-keys", "a", "b", "a"],
        ["--advantage-estimator gdpo and --gdpo-reward-keys a b a:", "a is named more than once"],
    ),
    "blank key": (
        ["--advantage-estimator", "gdpo", "--gdpo-reward-keys", "a", " "],
        ["--advantage-estimator gdpo and --gdpo-reward-keys ['a', ' ']", "blank"],
    ),
    "three weights for two keys": (
        line("gdpo", "--gdpo-reward-weights", "1", "2", "3"),
        ["--gdpo-reward-keys correct format and --gdpo-reward-weights 1.0 2.0 3.0", "weights is 3, that of keys 2"],
    ),
    "one weight for two keys": (
        line("gdpo", "--gdpo-reward-weights", "1"),
        ["--gdpo-reward-keys correct format and --gdpo-reward-weights 1.0:", "weights is 1, that of keys 2"],
    ),
    "weight nan": (
        line("gdpo", "--gdpo-reward-weights", "1", "nan"),
        ["--gdpo-reward-keys", "--gdpo-reward-weights 1.0 nan", "weight 1 is nan", "finite"],
    ),
    "weight infinite": (
        line("gdpo", "--gdpo-reward-weights", "inf", "1"),
        ["--gdpo-reward-keys", "--gdpo-reward-weights inf 1.0", "weight 0 is inf", "finite"],
    ),
    "weights all zero": (
        line("gdpo", "--gdpo-reward-weights", "0", "-0.0"),
        ["--gdpo-reward-keys", "--gdpo-reward-weights 0.0 -0.0", "not 0"],
    ),
    "filter without batch size": (
        line("gdpo", "--fully-async", "--dynamic-sampling-filter-path", "my.filter"),
        [
            "--advantage-estimator gdpo with --fully-async (on)",
            "--global-batch-size (not given) with --dynamic-sampling-filter-path my.filter",
            "give --global-batch-size",
        ],
    ),
    "rloo kl in the reward": (
        line("rloo", "--kl-coef", "0.1"),
        ["--advantage-estimator rloo and --kl-coef 0.1", "--use-kl-loss with --kl-loss-coef"],
    ),
    "rloo sample mean": (
        ["--advantage-estimator", "rloo"],
        ["--advantage-estimator rloo and --calculate-per-token-loss (off)", "add --calculate-per-token-loss"],
    ),
    "rloo two steps": (
        line("rloo", "--global-batch-size", "128"),
        [
            "--advantage-estimator rloo and --global-batch-size 128",
            "--rollout-batch-size 32 x --n-samples-per-prompt 8 = 256 samples",
            "give --global-batch-size 256",
        ],
    ),
    "rloo half a step": (
        line("rloo", "--global-batch-size", "512"),
        ["--advantage-estimator rloo and --global-batch-size 512", "give --global-batch-size 256"],
    ),
    "rloo stale": (
        line("rloo", "--max-staleness", "1"),
        ["--advantage-estimator rloo and --max-staleness 1", "give --max-staleness 0"],
    ),
    "rloo asynchronous": (
        line("rloo", "--fully-async"),
        ["--advantage-estimator rloo and --fully-async (on)", "drop --fully-async"],
    ),
    "rloo raw rewards": (
        line("rloo", "--disable-rewards-normalization"),
        ["--advantage-estimator rloo and --disable-rewards-normalization (on)"],
    ),
    "rloo group of one": (
        line("rloo", "--n-samples-per-prompt", "1"),
        ["--advantage-estimator rloo and --n-samples-per-prompt 1:", "2 or more"],
    ),
    "exact statistics of nothing": (
        line("ppo", "--exact-statistics"),
        ["--advantage-estimator ppo and --exact-statistics (on)", "drop --exact-statistics"],
    ),
    "exact statistics of raw rewards": (
        line("grpo", "--exact-statistics", "--disable-rewards-normalization"),
        ["--exact-statistics (on) and --disable-rewards-normalization (on)", "drop one"],
    ),
    "two hooks": (
        line("grpo", "--custom-reward-post-process-path", "my.hook", "--agentic-custom-advantage-path", "my.other"),
        ["--custom-reward-post-process-path my.hook and --agentic-custom-advantage-path my.other", "drop one"],
    ),
    "exact statistics of a hook": (
        line("grpo", "--exact-statistics", "--agentic-custom-advantage-path", "my.hook"),
        ["--agentic-custom-advantage-path my.hook and --exact-statistics (on)", "drop one"],
    ),
    "neither colocated nor asynchronous": (
        ["--no-colocate", "--hybrid"],
        ["--colocate (off) and --fully-async (off)", "add --fully-async, or drop --no-colocate"],
    ),
    "ragged batches": (
        ["--global-batch-size", "100"],
        ["--global-batch-size 100 and --rollout-batch-size 32 x --n-samples-per-prompt 8", "divides 256"],
    ),
    "batch beyond rollout": (
        ["--global-batch-size", "512"],
        ["--global-batch-size 512 and --rollout-batch-size 32 x --n-samples-per-prompt 8", "divides 256"],
    ),
    "ragged asynchronous batches": (
        ["--global-batch-size", "384", "--fully-async"],
        ["--global-batch-size 384 and --rollout-batch-size 32", "divides 256"],
    ),
    "ragged slices": (
        ["--num-iters-per-train-update", "3"],
        ["--num-iters-per-train-update 3 and --global-batch-size 256", "divides 256"],
    ),
    "bounds of the weight": (
        ["--tis-clip", "0.5", "--tis-clip-low", "0.5"],
        ["--tis-clip 0.5 and --tis-clip-low 0.5", "raise --tis-clip or lower --tis-clip-low"],
    ),
    "hybrid and asynchronous": (
        ["--hybrid", "--fully-async"],
        ["--hybrid (on) and --fully-async (on)", "drop one"],
    ),
    "colocated and asynchronous": (["--colocate", "--fully-async"], ["--fully-async", "--colocate"]),
    "two debug modes": (
        ["--debug-rollout-only", "--debug-train-only"],
        ["--debug-rollout-only (on) and --debug-train-only (on)", "drop one"],
    ),
    "rollout of supervised training": (
        ["--debug-rollout-only", "--loss-type", "sft_loss"],
        ["--debug-rollout-only (on) and --loss-type sft_loss", "drop one"],
    ),
    "unknown algorithm": (
        ["--advantage-estimator", "gdop"],
        ["--advantage-estimator", "unknown algorithm 'gdop'", ", ".join(list_algorithm_names()), "did you mean 'gdpo'"],
    ),
    "unknown option": (["--gama", "1"], ["--gama"]),
    "abbreviated option": (["--rollout-batch", "1"], ["--rollout-batch"]),
    "no number": (["--gamma", "much"], ["--gamma", "much"]),
    "unknown kl": (["--kl-loss-type", "k4"], ["--kl-loss-type", "k4", "low_var_kl"]),
    "unknown mode of weights": (["--tis-mode", "mask"], ["--tis-mode", "mask", "icepop"]),
    "unknown loss": (["--loss-type", "dpo"], ["--loss-type", "dpo", "sft_loss"]),
    "unknown format": (["--qkv-format", "sbhd"], ["--qkv-format", "sbhd", "bshd"]),
    **{
        f"group of one, {algorithm}": (
            line(algorithm, "--n-samples-per-prompt", "1"),
            [
                f"--advantage-estimator {algorithm} and --n-samples-per-prompt 1:",
                "give --n-samples-per-prompt 2 or more, or --disable-grpo-std-normalization",
            ],
        )
        for algorithm in ("grpo", "gspo", "sapo", "cispo")
    },
    **{
        f"no token normalisation, {algorithm}": (
            ["--advantage-estimator", algorithm],
            [f"--advantage-estimator {algorithm} and --normalize-advantages (off)", "add --normalize-advantages"],
        )
        for algorithm in ("reinforce_plus_plus", "reinforce_plus_plus_baseline")
    },
}


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSALS)
    def test_refusal(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A contradiction ends with status 2 and one line that names both options, their values and the remedy."""
        argv, words = REFUSALS[name]
        message = refused(argv, capsys)
        assert [word for word in words if word not in message] == []

    def test_each_refusal_is_its_own(self, capsys: pytest.CaptureFixture[str]) -> None:
        """No two contradictions are told in the same words."""
        # One reason, told of two command lines: a group of one is no group to gdpo, std or no std.
        names = set(REFUSALS) - {"gdpo group of one without std"}
        messages = [refused(REFUSALS[name][0], capsys) for name in sorted(names)]
        assert len(set(messages)) == len(messages)

    def test_validation_says_the_same(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Options that did not come from a command line are refused in the same words, by a ValueError."""
        argv = line("gdpo", "--normalize-advantages")
        with pytest.raises(ValueError, match="--advantage-estimator gdpo and --normalize-advantages") as error:
            validate_algorithm_args(build_parser().parse_args(argv))
        assert str(error.value) in refused(argv, capsys)

    def test_disabled_algorithm(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """A disabled algorithm is refused with its reason, before anything else about it."""
        closed = dataclasses.replace(ALGORITHM_SPECS["gdpo"], disabled_reason="its service is not there yet")
        monkeypatch.setitem(ALGORITHM_SPECS, "gdpo", closed)
        message = refused(["--advantage-estimator", "gdpo"], capsys)
        assert "--advantage-estimator gdpo is disabled: its service is not there yet; choose another" in message

    @pytest.mark.parametrize("key", [3, None, ""])
    def test_key_that_is_no_name(self, key: Any) -> None:
        """A key that is no text, or an empty one, is refused with the keys."""
        with pytest.raises(ValueError, match=r"--advantage-estimator gdpo and --gdpo-reward-keys \['a', "):
            validate_algorithm_args(namespace("gdpo", gdpo_reward_keys=["a", key]))

    @pytest.mark.parametrize(
        "weight",
        [
            True,
            np.bool_(True),
            "1",
            "x",
            None,
            1j,
            [1.0],
            pytest.param(10**400, id="beyond doubles"),
            pytest.param(10**5000, id="beyond digits"),
            Decimal(1),
        ],
    )
    def test_weight_that_is_no_number(self, weight: Any) -> None:
        """A weight that is no real number within the doubles is refused with its position."""
        args = namespace("gdpo", gdpo_reward_keys=["a", "b"], gdpo_reward_weights=[1.0, weight])
        with pytest.raises(ValueError, match=r"--gdpo-reward-keys a b and --gdpo-reward-weights .*weight 1 is"):
            validate_algorithm_args(args)

    @pytest.mark.parametrize(
        "weights",
        [[None, "x"], "12", 5, None, {}, {1.0, 2.0}, [[1.0, 2.0]], np.array(1.0), iter([1.0, 2.0])],
        ids=lambda value: type(value).__name__,
    )
    def test_weights_from_code(self, weights: Any) -> None:
        """Weights of the wrong type, or of none, end in a ValueError that names both options, or in the defaults."""
        args = namespace("gdpo", gdpo_reward_keys=["a", "b"], gdpo_reward_weights=weights)
        if weights is None:
            validate_algorithm_args(args)
            return
        with pytest.raises(ValueError, match=r"--gdpo-reward-keys a b and --gdpo-reward-weights "):
            validate_algorithm_args(args)

    @pytest.mark.parametrize(
        "keys", ["ab", 5, {"a": 1, "b": 2}, {"a", "b"}, [["a"], ["b"]]], ids=lambda value: type(value).__name__
    )
    def test_keys_from_code(self, keys: Any) -> None:
        """Keys that are no list of texts are refused; a text is not read letter by letter."""
        with pytest.raises(ValueError, match=r"--advantage-estimator gdpo and --gdpo-reward-keys "):
            validate_algorithm_args(namespace("gdpo", gdpo_reward_keys=keys))

    @pytest.mark.parametrize("option", NEVER_BLANK)
    @pytest.mark.parametrize("text", ["", " ", "\t"])
    @pytest.mark.parametrize("loss_type", ["policy_loss", "sft_loss"])
    def test_blank_text(self, option: str, text: str, loss_type: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A blank path or key is refused with its option and the remedy: it is not taken for "not given"."""
        message = refused([option, text, "--loss-type", loss_type], capsys)
        assert f"{option} {text!r}: it is blank; give what it names, or leave the option out" in message

    @pytest.mark.parametrize("value", [3, True, ["a.b"], b"a.b"])
    def test_path_that_is_no_text(self, value: Any) -> None:
        """A path from code that is no text is refused with its option."""
        with pytest.raises(ValueError, match=r"^--custom-reward-post-process-path .*: it is no text"):
            validate_algorithm_args(namespace("grpo", custom_reward_post_process_path=value))

    def test_every_text_has_a_rule(self) -> None:
        """Each option that takes a text either chooses among given values or may not be blank."""
        free = {a.option_strings[0] for a in build_parser()._actions if a.type is str and a.choices is None}
        assert free - {"--gdpo-reward-keys"} == set(NEVER_BLANK)

    def test_line_breaks(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A line break in a value does not break the line."""
        argv = ["--advantage-estimator", "gdpo", "--gdpo-reward-keys", "a\nb", "a\nb"]
        assert "--gdpo-reward-keys a b a b" in refused(argv, capsys)
