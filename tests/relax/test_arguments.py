"""The command line: defaults, what is filled in, and every refusal with the options that it names."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from relax import options
from relax.algorithms.formulas import kl, off_policy
from relax.algorithms.spec import ALGORITHM_SPECS, DEFAULT_ALGORITHM, list_algorithm_names
from relax.arguments import build_parser, main, parse_args, validate_algorithm_args
from relax.component_options import check_components
from relax.option_ranges import OPTION_RANGES, attribute_of
from relax.refusals import NEVER_BLANK
from verification.cases.arguments import DEFAULTS, namespace

KEYS = ["--gdpo-reward-keys", "correct", "format"]

# The least that each algorithm's command line must say.
LEAST: dict[str, list[str]] = {
    "grpo": [],
    "gspo": [],
    "sapo": [],
    "cispo": [],
    "ppo": [],
    "reinforce_plus_plus": ["--normalize-advantages"],
    "reinforce_plus_plus_baseline": ["--normalize-advantages"],
    "rloo": ["--calculate-per-token-loss"],
    "gdpo": KEYS,
}


def line(algorithm: str, *options: str) -> list[str]:
    return ["--advantage-estimator", algorithm, *LEAST[algorithm], *options]


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of a command line that ends with exit status 2."""
    with pytest.raises(SystemExit) as end:
        parse_args(argv)
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("relax: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


class TestDefaults:
    def test_defaults(self) -> None:
        """Every attribute and its default is the one that the harness hands to every subject, type included."""
        parsed = vars(build_parser().parse_args([]))
        assert parsed.pop("advantage_estimator") == DEFAULT_ALGORITHM
        assert parsed == DEFAULTS
        assert {name: type(value) for name, value in parsed.items()} == {n: type(v) for n, v in DEFAULTS.items()}

    @pytest.mark.parametrize("algorithm", list_algorithm_names())
    def test_every_algorithm_is_accepted(self, algorithm: str) -> None:
        """Every registered name is accepted with the least it asks for, without a warning."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert parse_args(line(algorithm)).advantage_estimator == algorithm

    def test_filled_in(self) -> None:
        """What was left open becomes what it stands for; all else stays at its default."""
        args = vars(parse_args(line("gdpo", "--rollout-batch-size", "4", "--n-samples-per-prompt", "6")))
        changed = {name: value for name, value in args.items() if name in DEFAULTS and value != DEFAULTS[name]}
        assert changed == {
            "gdpo_reward_keys": ["correct", "format"],
            "gdpo_reward_weights": [1.0, 1.0],
            "rollout_batch_size": 4,
            "n_samples_per_prompt": 6,
            "global_batch_size": 24,
        }

    def test_given_values_stay(self) -> None:
        """Given weights and a given batch size are kept."""
        args = parse_args(line("gdpo", "--gdpo-reward-weights", "2", "-0.5", "--global-batch-size", "64"))
        assert args.gdpo_reward_weights == [2.0, -0.5]
        assert args.global_batch_size == 64

    def test_mode(self) -> None:
        """A run is colocated unless it is fully asynchronous."""
        assert parse_args([]).colocate is True
        assert parse_args(["--colocate"]).colocate is True
        assert parse_args(["--hybrid"]).colocate is True
        assert parse_args(["--fully-async"]).colocate is False

    def test_switches(self) -> None:
        """The two switches that take a default away do so under the attribute of the default."""
        args = parse_args(["--disable-rewards-normalization", "--disable-grpo-std-normalization"])
        assert (args.rewards_normalization, args.grpo_std_normalization) == (False, False)

    def test_validation_changes_nothing(self) -> None:
        """Validation reads its argument only, and accepts what parsing returned."""
        args = namespace("gdpo", gdpo_reward_keys=["a", "b"])
        before = copy.deepcopy(vars(args))
        validate_algorithm_args(args)
        assert vars(args) == before
        for algorithm in list_algorithm_names():
            validate_algorithm_args(parse_args(line(algorithm)))

    def test_main(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The command shows the options in force as JSON."""
        assert main(["--gamma", "0.5"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown == {**DEFAULTS, "advantage_estimator": "grpo", "gamma": 0.5, "global_batch_size": 256}

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The help shows every option with a text of its own, and every default that is a value."""
        with pytest.raises(SystemExit) as end:
            parse_args(["--help"])
        assert end.value.code == 0
        shown = capsys.readouterr().out
        for action in build_parser()._actions:
            assert all(option in shown for option in action.option_strings)
            assert action.help
        assert "(default: 1234)" in shown
        assert "(default: None)" not in shown


# What runtime.md lists, and what follows from it: command line, then the words of the one line that refuses it.
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


class TestComponents:
    """The one rule that the command line and the reward stage share."""

    @pytest.mark.parametrize(
        ("weights", "expected"),
        [
            (None, [1.0, 1.0]),
            ([2, -0.5], [2.0, -0.5]),
            ((Fraction(1, 4), np.float32(0.1)), [0.25, float(np.float32(0.1))]),
            (np.array([3, 0]), [3.0, 0.0]),
            ([0.0, 5e-324], [0.0, 5e-324]),
            ([10**308, -1], [1e308, -1.0]),
        ],
    )
    def test_weights_are_doubles(self, weights: Any, expected: list[float]) -> None:
        """Given weights come back as the doubles nearest them, in the order of the keys; without any, ones."""
        found = check_components(["a", "b"], weights)
        assert found == expected
        assert {type(weight) for weight in found} == {float}

    @pytest.mark.parametrize(
        ("keys", "weights", "words"),
        [
            (None, None, "(not given)"),
            (["a"], [1.0], "two or more"),
            (["a", "b", "a"], None, "a is named more than once"),
            (["a", ""], None, "blank"),
            (["a", "b"], [1.0], "the number of weights is 1, that of keys 2"),
            (["a", "b"], [], "the number of weights is 0, that of keys 2"),
            (["a", "b"], [1.0, float("nan")], "weight 1 is nan"),
            (["a", "b"], [float("-inf"), 1.0], "weight 0 is -inf"),
            (["a", "b"], [None, "x"], "weight 0 is None"),
            (["a", "b"], [0, -0.0], "nothing is learnt"),
            (["a", "b"], [Fraction(1, 10**400), 0], "nothing is learnt"),
        ],
    )
    def test_refusal_names_both_options(self, keys: Any, weights: Any, words: str) -> None:
        """Each refusal is a ValueError of one line with both options and what is wrong."""
        with pytest.raises(ValueError, match=re.escape(words)) as error:
            check_components(keys, weights)
        message = str(error.value)
        assert "--gdpo-reward-keys" in message
        assert "--gdpo-reward-weights" in message
        assert "\n" not in message


class TestAccepted:
    @pytest.mark.parametrize(
        "argv",
        [
            line("grpo", "--n-samples-per-prompt", "1", "--disable-grpo-std-normalization"),
            line("grpo", "--n-samples-per-prompt", "1", "--disable-rewards-normalization"),
            line("grpo", "--n-samples-per-prompt", "1", "--agentic-custom-advantage-path", "my.hook"),
            line("grpo", "--n-samples-per-prompt", "1", "--custom-reward-post-process-path", "my.hook"),
            line("ppo", "--n-samples-per-prompt", "1", "--kl-coef", "0.1"),
            line("reinforce_plus_plus", "--n-samples-per-prompt", "1", "--kl-coef", "0.1"),
            line("reinforce_plus_plus_baseline", "--n-samples-per-prompt", "1"),
            line("grpo", "--normalize-advantages", "--exact-statistics"),
            line("reinforce_plus_plus_baseline", "--exact-statistics"),
            line("rloo", "--exact-statistics"),
            line("gdpo", "--exact-statistics"),
            line("gdpo", "--fully-async", "--max-staleness", "2"),
            line("gdpo", "--gdpo-reward-weights", "0", "-1"),
            line("gdpo", "--n-samples-per-prompt", "2", "--global-batch-size", "32"),
            line("gdpo", "--dynamic-sampling-filter-path", "relax.rollout.filters.keep_groups_with_signal"),
            line("gdpo", "--dynamic-sampling-filter-path", "relax.rollout.filters:keep_groups_with_signal"),
            line("grpo", "--custom-reward-post-process-path", "my.hooks:score", "--reward-key", "score"),
            line("grpo", "--dynamic-sampling-filter-path", "my.filter"),
            line("grpo", "--fully-async", "--dynamic-sampling-filter-path", "my.filter"),
            line("rloo", "--global-batch-size", "256", "--use-kl-loss", "--kl-loss-coef", "0.1"),
            line("grpo", "--fully-async", "--global-batch-size", "512", "--num-iters-per-train-update", "4"),
            line("grpo", *KEYS),
            ["--gamma", "0", "--lambd", "0", "--eps-clip", "0", "--eps-clip-high", "0", "--opsm-delta", "0"],
            ["--eps-clip", "1", "--eps-clip-high", "5", "--eps-clip-c", "1.0000001", "--sapo-tau-pos", "1e-9"],
            ["--loss-type", "sft_loss", "--advantage-estimator", "gdpo"],
            ["--loss-type", "sft_loss", "--n-samples-per-prompt", "1", "--debug-train-only"],
        ],
        ids=" ".join,
    )
    def test_accepted(self, argv: list[str]) -> None:
        """What contradicts nothing is accepted without a word."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parse_args(argv)

    def test_filter_with_batch_size(self) -> None:
        """Asynchronous component rewards go with a filter once the batch size is given."""
        options = ["--fully-async", "--global-batch-size", "256", "--dynamic-sampling-filter-path", "my.filter"]
        with pytest.warns(UserWarning, match="my.filter"):
            assert parse_args(line("gdpo", *options)).global_batch_size == 256


class TestWarnings:
    @pytest.mark.parametrize(
        ("argv", "words"),
        [
            (
                line("gdpo", "--dynamic-sampling-filter-path", "my.filter"),
                "--dynamic-sampling-filter-path my.filter and --advantage-estimator gdpo",
            ),
            (
                line("gdpo", "--dynamic-sampling-filter-path", "relax.rollout.filters_of_mine.keep"),
                "--dynamic-sampling-filter-path relax.rollout.filters_of_mine.keep and --advantage-estimator gdpo",
            ),
            (line("grpo", "--kl-coef", "0.5"), "--kl-coef 0.5 and --advantage-estimator grpo"),
            (line("gdpo", "--kl-coef", "0.5"), "--kl-coef 0.5 and --advantage-estimator gdpo"),
            (
                line("reinforce_plus_plus", "--fully-async"),
                r"--normalize-advantages \(on\) and --fully-async \(on\)",
            ),
        ],
    )
    def test_warning(self, argv: list[str], words: str) -> None:
        """What is allowed and yet rarely meant warns, naming both options, and is accepted."""
        with pytest.warns(UserWarning, match=words) as caught:
            parse_args(argv)
        assert len(caught) == 1


SEEDS = f"from 0 to {2**63 - 1}"

# Values just inside each range, and values outside.
INSIDE: dict[str, list[str]] = {
    "from 0 to 1": ["0", "1"],
    "of 0 or more": ["0"],
    "of 1 or more": ["1"],
    "above 0": ["5e-324"],
    "above 1": ["1.0000000000000002"],
    SEEDS: ["0", str(2**63 - 1)],
}
OUTSIDE: dict[str, list[str]] = {
    "from 0 to 1": ["-5e-324", "1.0000000000000002", "nan", "inf", "-inf"],
    "of 0 or more": ["-5e-324", "nan", "inf"],
    "of 1 or more": ["0", "-1"],
    "above 0": ["0", "-1", "nan", "inf"],
    "above 1": ["1", "0.5", "nan", "inf"],
    SEEDS: ["-1", str(2**63), "1" + "0" * 400],
}
WHOLE = {name for name, value in DEFAULTS.items() if type(value) is int} | {"global_batch_size"}


def numbers(values: dict[str, list[str]]) -> list[tuple[str, str]]:
    pairs = [(option, value) for option, allowed in OPTION_RANGES.items() for value in values[str(allowed)]]
    return [
        (option, "-1" if attribute_of(option) in WHOLE and value == "-5e-324" else value)
        for option, value in pairs
        if not (attribute_of(option) in WHOLE and value in ("nan", "inf", "-inf"))
    ]


class TestRanges:
    def test_every_number_has_a_range(self) -> None:
        """No number of the command line goes without a range."""
        numeric = {a.option_strings[0] for a in build_parser()._actions if a.type in (int, float)}
        assert numeric - {"--gdpo-reward-weights"} == set(OPTION_RANGES)

    def test_ranges(self) -> None:
        """The ranges are those that the formulas have a meaning for."""
        assert {
            option: str(allowed) for option, allowed in OPTION_RANGES.items() if attribute_of(option) not in WHOLE
        } == {
            "--gamma": "from 0 to 1",
            "--lambd": "from 0 to 1",
            "--eps-clip": "from 0 to 1",
            "--kl-coef": "of 0 or more",
            "--kl-loss-coef": "of 0 or more",
            "--eps-clip-high": "of 0 or more",
            "--opsm-delta": "of 0 or more",
            "--tis-clip-low": "of 0 or more",
            "--tis-clip": "above 0",
            "--sapo-tau-pos": "above 0",
            "--sapo-tau-neg": "above 0",
            "--eps-clip-c": "above 1",
        }
        no_counts = {"--max-staleness": "of 0 or more", "--seed": SEEDS}
        for option, allowed in OPTION_RANGES.items():
            if attribute_of(option) in WHOLE:
                assert str(allowed) == no_counts.get(option, "of 1 or more")

    @pytest.mark.parametrize(("option", "value"), numbers(INSIDE))
    def test_inside(self, option: str, value: str) -> None:
        """The ends that belong to a range are accepted, in a run that has no other objection."""
        args = ["--advantage-estimator", "ppo", f"{option}={value}"]
        parsed = parse_args(args)
        assert getattr(parsed, attribute_of(option)) == (int if attribute_of(option) in WHOLE else float)(value)

    @pytest.mark.parametrize(("option", "value"), numbers(OUTSIDE))
    @pytest.mark.parametrize("loss_type", ["policy_loss", "sft_loss"])
    def test_outside(self, option: str, value: str, loss_type: str, capsys: pytest.CaptureFixture[str]) -> None:
        """A value outside is refused with option, value and range, for supervised training too."""
        message = refused([f"{option}={value}", "--loss-type", loss_type], capsys)
        shown = value if attribute_of(option) in WHOLE else str(float(value))
        expected = f"{option} {shown} is out of range: give a finite number {OPTION_RANGES[option]}"
        assert expected in message

    @pytest.mark.parametrize("value", [True, "8", None, 1j])
    def test_no_number(self, value: Any) -> None:
        """What is no number is refused like a number out of range."""
        with pytest.raises(ValueError, match=r"--n-samples-per-prompt .* is out of range: give a finite number"):
            validate_algorithm_args(namespace("grpo", n_samples_per_prompt=value))

    def test_beyond_the_largest_double(self, capsys: pytest.CaptureFixture[str]) -> None:
        """An integer that no double holds is compared as an integer."""
        assert parse_args(["--num-rollout", "1" + "0" * 400]).num_rollout == 10**400
        assert "--gamma" in refused(["--gamma", "1" + "0" * 400], capsys)


def test_the_kinds_of_kl_are_those_of_the_formula() -> None:
    """The parser, which must not load torch, offers the very kinds that the formula computes, in their order."""
    assert options.KL_KINDS == kl.KL_KINDS


def test_the_modes_of_weights_are_those_of_the_formula() -> None:
    """The parser offers the very modes that off-policy weights have."""
    assert tuple(off_policy.OFF_POLICY_WEIGHTS) == options.TIS_MODES
