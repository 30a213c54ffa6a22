"""Every option of the command line with its default and its help; no rule that looks at two of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from relax.algorithms.spec import DEFAULT_ALGORITHM, get_algorithm, list_algorithm_names
from relax.core.registry import SFT_LOSS_TYPE

KL_KINDS = ("k1", "k2", "k3", "low_var_kl")
TIS_MODES = ("truncate", "icepop")
QKV_FORMATS = ("thd", "bshd")
LOSS_TYPES = ("policy_loss", SFT_LOSS_TYPE)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line: the usage of fifty options would bury it."""

    def parse_args(  # type: ignore[override]  # argparse's has a signature for each kind of namespace
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """As argparse's; an option that there is not is told with the one that was probably meant."""
        parsed, left = self.parse_known_args(args, namespace)
        if left:
            options = [one for one in left if one.startswith("--")]
            meant = meant_option(self, options[0].partition("=")[0]) if options else None
            self.error(f"unrecognized arguments: {' '.join(left)}" + (f"; did you mean {meant}?" if meant else ""))
        return parsed

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.splitlines())
        self.exit(2, f"{self.prog}: error: {line} (--help lists the options)\n")


def meant_option(parser: argparse.ArgumentParser, option: str) -> str | None:
    """The option of ``parser`` that is most like ``option``, if one is; those that its help does not show are none."""
    from relax.spelling import closest  # only a mistake pays for this import

    shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    names = [name.removeprefix("--") for action in shown for name in action.option_strings if name.startswith("--")]
    meant = closest(option.removeprefix("--"), names)
    return None if meant is None else f"--{meant}"


def build_parser() -> argparse.ArgumentParser:
    """The options that decide what is computed; ``relax.arguments`` adds those of running it, checks and fills in."""
    parser = _Parser(
        prog="relax",
        usage="%(prog)s [options]",
        allow_abbrev=False,
    )
    for add in (_algorithm, _rewards, _batches, _advantages, _kl, _objective, _off_policy, _mode, _parallel, _run):
        add(parser)
    return parser


def _algorithm_name(text: str) -> str:
    """The name itself; an unknown one is told with its closest match, which argparse's choices do not do."""
    try:
        return get_algorithm(text).name
    except ValueError as unknown:
        raise argparse.ArgumentTypeError(str(unknown)) from None


def add_value(group: argparse._ArgumentGroup, option: str, type_: Any, default: Any, help_: str, **more: Any) -> None:
    """Adds an option with a value, whose help shows the default where it is one."""
    shown = "" if default is None else " (default: %(default)s)"
    group.add_argument(option, type=type_, default=default, help=help_ + shown, **more)


def add_switch(group: argparse._ActionsContainer, option: str, help_: str) -> None:
    """Adds an option without a value, off unless given."""
    group.add_argument(option, action="store_true", help=help_)


def _algorithm(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("algorithm")
    add_value(
        group,
        "--advantage-estimator",
        _algorithm_name,
        DEFAULT_ALGORITHM,
        "the registered algorithm to train with",
        choices=list_algorithm_names(),
    )
    add_value(
        group,
        "--loss-type",
        str,
        "policy_loss",
        f"{SFT_LOSS_TYPE}: supervised training, which needs no algorithm",
        choices=LOSS_TYPES,
    )


def _rewards(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rewards")
    add_value(group, "--reward-key", str, None, "the entry to read where a reward is a mapping")
    add_value(group, "--custom-rm-path", str, None, "your reward function, as module.function or module:function")
    add_value(
        group,
        "--gdpo-reward-keys",
        str,
        None,
        "names of the reward components, two or more, separated by spaces",
        nargs="+",
        metavar="KEY",
    )
    add_value(
        group,
        "--gdpo-reward-weights",
        float,
        None,
        "one weight a component, in the order of the keys (default: ones)",
        nargs="+",
        metavar="WEIGHT",
    )
    group.add_argument(
        "--disable-rewards-normalization",
        dest="rewards_normalization",
        action="store_false",
        help="train on raw rewards: no baseline and no scale from the prompt group",
    )
    group.add_argument(
        "--disable-grpo-std-normalization",
        dest="grpo_std_normalization",
        action="store_false",
        help="centre the rewards of a group, but do not divide by their std",
    )
    add_switch(group, "--exact-statistics", "group scores correctly rounded: the same bits on every machine")
    add_value(
        group,
        "--custom-reward-post-process-path",
        str,
        None,
        "your function in place of the reward stage, as module.function or module:function",
    )
    add_value(
        group,
        "--agentic-custom-advantage-path",
        str,
        None,
        "your function that writes each sample's custom_advantage, as module.function or module:function",
    )
    add_value(
        group,
        "--dynamic-sampling-filter-path",
        str,
        None,
        "which prompt groups to keep, as module.function or module:function",
    )


def _batches(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("batches")
    add_value(group, "--n-samples-per-prompt", int, 8, "responses to one prompt: the group size")
    add_value(group, "--rollout-batch-size", int, 32, "prompts in one rollout")
    add_value(group, "--global-batch-size", int, None, "samples in one optimizer step (default: those of one rollout)")
    add_value(group, "--num-rollout", int, 1, "rollouts in the run")


def _advantages(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("advantages")
    add_switch(group, "--normalize-advantages", "normalise advantages over the tokens of a rollout, where colocated")
    add_value(group, "--gamma", float, 1.0, "discount of a later token's reward, from 0 to 1")
    add_value(group, "--lambd", float, 1.0, "lambda of generalised advantage estimation, from 0 to 1")


def _kl(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("distance to the reference model")
    add_value(group, "--kl-coef", float, 0.0, "weight of the KL in the reward")
    add_value(group, "--kl-loss-type", str, "k1", "estimator of the KL", choices=KL_KINDS)
    add_switch(group, "--use-kl-loss", "add the KL to the loss")
    add_value(group, "--kl-loss-coef", float, 0.0, "weight of the KL in the loss")


def _objective(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("policy objective")
    add_value(group, "--eps-clip", float, 0.2, "the ratio is clipped below at 1 minus this, from 0 to 1")
    add_value(group, "--eps-clip-high", float, 0.2, "the ratio is clipped above at 1 plus this")
    add_value(
        group, "--eps-clip-c", float, None, "dual clip: bound of the loss where the advantage is negative, above 1"
    )
    add_value(group, "--sapo-tau-pos", float, 1.0, "temperature of the soft gate where the advantage is positive")
    add_value(group, "--sapo-tau-neg", float, 1.05, "temperature of the soft gate elsewhere")
    add_switch(group, "--calculate-per-token-loss", "sum over all tokens of the batch, not a mean over each response")


def _off_policy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("off-policy corrections")
    add_switch(group, "--use-opsm", "mask responses of negative advantage that moved further than --opsm-delta")
    add_value(group, "--opsm-delta", float, 1e-4, "the mean difference of log-probabilities that masks a response")
    add_switch(group, "--use-tis", "weight the loss by the ratio of training to rollout probability")
    add_value(group, "--tis-mode", str, "truncate", "what happens to a weight outside the bounds", choices=TIS_MODES)
    add_value(group, "--tis-clip", float, 2.0, "upper bound of the weight")
    add_value(group, "--tis-clip-low", float, 0.0, "lower bound of the weight")


def _mode(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("mode")
    exclusive = group.add_mutually_exclusive_group()
    exclusive.add_argument(
        "--colocate",
        action="store_true",
        default=True,
        help="rollout and training share devices (the default)",
    )
    add_switch(exclusive, "--fully-async", "rollout, advantages and training run side by side")
    add_switch(group, "--hybrid", "the colocated roles, sampling ahead of training by --max-staleness")
    add_value(group, "--max-staleness", int, 0, "optimizer steps that a rollout may lag behind")
    add_value(
        group,
        "--num-iters-per-train-update",
        int,
        1,
        "slices in which an optimizer batch arrives in fully asynchronous mode; read in no other",
    )
    add_switch(group, "--true-on-policy-mode", "rollout log-probabilities are the old ones: no forward pass for them")
    add_switch(group, "--debug-rollout-only", "start the rollout role alone")
    add_switch(group, "--debug-train-only", "start the actor role alone")


def _parallel(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("parallelism")
    add_value(group, "--tensor-model-parallel-size", int, 1, "ranks that share each layer; a training run takes 1")
    add_value(
        group,
        "--pipeline-model-parallel-size",
        int,
        1,
        "ranks that share the sequence of layers; a training run takes 1",
    )
    add_value(group, "--context-parallel-size", int, 1, "ranks that share each response; a training run takes 1")
    add_value(group, "--qkv-format", str, "thd", "thd: packed responses; bshd: padded rows", choices=QKV_FORMATS)


def _run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    add_value(group, "--save", str, None, "folder to write checkpoints to")
    add_value(group, "--load", str, None, "folder to continue from")
    add_value(group, "--seed", int, 1234, "seed of sampling and initialisation")
