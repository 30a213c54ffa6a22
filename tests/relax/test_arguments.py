"""The command line: defaults, what is filled in, what is accepted, and what is accepted with a warning."""

from __future__ import annotations

import copy
import json
import warnings

import pytest

from relax import options
from relax.algorithms.formulas import kl, off_policy
from relax.algorithms.spec import DEFAULT_ALGORITHM, list_algorithm_names
from relax.arguments import main, parse_args, validate_algorithm_args
from relax.options import build_parser
from tests.relax.command_lines import KEYS, line
from verification.cases.arguments import DEFAULTS, namespace


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
        expected = {**DEFAULTS, "advantage_estimator": "grpo", "gamma": 0.5, "global_batch_size": 256}
        assert {name: shown[name] for name in expected} == expected
        assert "task_path" in shown

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
            line("grpo", "--fully-async", "--num-rollout", "2", "--global-batch-size", "512"),
            line("grpo", "--fully-async", "--num-iters-per-train-update", "4"),
            line("grpo", *KEYS),
            ["--gamma", "0", "--lambd", "0", "--eps-clip", "0", "--eps-clip-high", "0"],
            ["--eps-clip", "1", "--eps-clip-high", "5", "--eps-clip-c", "1.0000001", "--sapo-tau-pos", "1e-9"],
            ["--loss-type", "sft_loss", "--sft-steps", "1", "--advantage-estimator", "gdpo"],
            ["--loss-type", "sft_loss", "--sft-steps", "1", "--n-samples-per-prompt", "1"],
            ["--use-tis", "--hybrid", "--max-staleness", "1"],
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
            (["--use-tis", "--fully-async"], r"--use-tis \(on\) and --fully-async \(on\): .* each weight is 1"),
            (["--use-tis", "--true-on-policy-mode"], r"--use-tis \(on\) and --true-on-policy-mode \(on\): "),
            (["--use-tis", "--true-on-policy-mode", "--fully-async"], r"--use-tis .* --true-on-policy-mode \(on\): "),
            (["--use-kl-loss"], r"--use-kl-loss \(on\) and --kl-loss-coef 0.0: the KL is reported, and adds nothing"),
        ],
    )
    def test_warning(self, argv: list[str], words: str) -> None:
        """What is allowed and yet rarely meant warns, naming both options, and is accepted."""
        with pytest.warns(UserWarning, match=words) as caught:
            parse_args(argv)
        assert len(caught) == 1


def test_the_kinds_of_kl_are_those_of_the_formula() -> None:
    """The parser, which must not load torch, offers the very kinds that the formula computes, in their order."""
    assert options.KL_KINDS == kl.KL_KINDS


def test_the_modes_of_weights_are_those_of_the_formula() -> None:
    """The parser offers the very modes that off-policy weights have."""
    assert tuple(off_policy.OFF_POLICY_WEIGHTS) == options.TIS_MODES
