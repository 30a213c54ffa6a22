"""What the command line refuses, option against option, each with its values, its reason and its remedy.

Rules read fields of the spec, never a name: a new algorithm is refused what it states, without a line here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

from relax.algorithms.spec import ADVANTAGE_FNS_WITH_KL, AlgorithmSpec, get_algorithm
from relax.component_options import check_components
from relax.core.registry import SFT_LOSS_TYPE, process_role
from relax.option_ranges import attribute_of, check_ranges

# Filters of this module ask group_carries_reward_signal, so they agree with training on which group has a signal.
OWN_FILTERS = "relax.rollout.filters"

# A blank one is the leftover of a variable that was not set: code would take it for "not given", or for a path.
NEVER_BLANK = (
    "--custom-rm-path",
    "--custom-reward-post-process-path",
    "--agentic-custom-advantage-path",
    "--dynamic-sampling-filter-path",
    "--reward-key",
    "--save",
    "--load",
)


def validate_algorithm_args(args: Any) -> None:
    """Refuses options that contradict the algorithm, or one another. ``args`` is read, never changed.

    Imports the implementations (and so torch) last, to find an identifier that none of the tables holds.

    Raises:
        ValueError: the first contradiction found; one line that names the options, their values and the remedy.
    """
    check_ranges(args)
    check_texts(args, NEVER_BLANK)
    _check_modes(args)
    if args.loss_type == SFT_LOSS_TYPE:
        return  # no reward and no advantage: the algorithm is not run
    spec = get_algorithm(args.advantage_estimator)
    if spec.disabled_reason is not None:
        raise ValueError(f"{_chosen(spec)} is disabled: {spec.disabled_reason}; choose another algorithm")
    for check in (_check_rewards, _check_components, _check_group_size, _check_loss, _check_batches, _check_async):
        check(args, spec)
    _warn(args, spec)
    from relax.algorithms.resolve import resolve_implementations

    resolve_implementations(spec)


def _refuse(first: str, second: str, reason: str, remedy: str) -> NoReturn:
    raise ValueError(f"{first} and {second}: {reason}; {remedy}")


def _chosen(spec: AlgorithmSpec) -> str:
    return f"--advantage-estimator {spec.name}"


def check_texts(args: Any, options: Iterable[str]) -> None:
    """Raises ValueError naming the first of these options whose value is blank or no text; None is "not given"."""
    for option in options:
        text = getattr(args, attribute_of(option))
        if text is not None and not (isinstance(text, str) and text.strip()):
            reason = "it is blank" if isinstance(text, str) else "it is no text"
            raise ValueError(f"{option} {text!r}: {reason}; give what it names, or leave the option out")


def _check_modes(args: Any) -> None:
    only_one = "drop one of the two"
    if args.tis_clip <= args.tis_clip_low:
        clip, low = f"--tis-clip {args.tis_clip}", f"--tis-clip-low {args.tis_clip_low}"
        _refuse(clip, low, "no weight lies between the bounds", "raise --tis-clip or lower --tis-clip-low")
    if args.hybrid and args.fully_async:
        _refuse("--hybrid (on)", "--fully-async (on)", "a run is one or the other", only_one)
    if not (args.colocate or args.fully_async):
        remedy = "add --fully-async, or drop --no-colocate"
        _refuse("--colocate (off)", "--fully-async (off)", "a run is one or the other", remedy)
    if args.debug_rollout_only and args.debug_train_only:
        _refuse("--debug-rollout-only (on)", "--debug-train-only (on)", "nothing would be started", only_one)
    process_role(args)  # which refuses supervised training without its actor


def _check_rewards(args: Any, spec: AlgorithmSpec) -> None:
    raw = "--disable-rewards-normalization (on)"
    if spec.requires_rewards_normalization and not args.rewards_normalization:
        reason = "this algorithm is its normalisation of rewards"
        _refuse(_chosen(spec), raw, reason, "drop --disable-rewards-normalization")
    hooks = [f"{option} {path}" for option, path in _hooks(args).items()]
    if hooks and not spec.allows_reward_post_process_hooks:
        reason = "the hook returns before this algorithm sees the rewards"
        _refuse(_chosen(spec), hooks[0], reason, f"drop {hooks[0].split()[0]}")
    if len(hooks) > 1:
        reason = "the first returns before the advantages of the second are read"
        _refuse(hooks[0], hooks[1], reason, "drop one of the two")
    if hooks and args.exact_statistics:
        reason = "the hook returns before any statistic is computed"
        _refuse(hooks[0], "--exact-statistics (on)", reason, "drop one of the two")
    if args.exact_statistics and spec.reward_normalizer == "none":
        reason = "this algorithm computes no statistic of a prompt group"
        _refuse(_chosen(spec), "--exact-statistics (on)", reason, "drop --exact-statistics")
    if args.exact_statistics and not args.rewards_normalization:
        _refuse("--exact-statistics (on)", raw, "no statistic is computed", "drop one of the two")


def _hooks(args: Any) -> dict[str, str]:
    """The hooks that are set, by option: each returns rewards of its own in place of the reward stage."""
    hooks = {
        "--custom-reward-post-process-path": args.custom_reward_post_process_path,
        "--agentic-custom-advantage-path": args.agentic_custom_advantage_path,
    }
    return {option: path for option, path in hooks.items() if path is not None}


def _check_components(args: Any, spec: AlgorithmSpec) -> None:
    if not spec.uses_reward_components:
        return
    try:
        check_components(args.gdpo_reward_keys, args.gdpo_reward_weights)
    except ValueError as contradiction:
        raise ValueError(f"{_chosen(spec)} and {contradiction}") from None


def _check_group_size(args: Any, spec: AlgorithmSpec) -> None:
    size = args.n_samples_per_prompt
    if size >= spec.min_group_size or _hooks(args):
        return  # where a hook is set, no statistic of a group is computed
    remedy = f"give --n-samples-per-prompt {spec.min_group_size} or more"
    if spec.reward_normalizer == "group_mean_std":
        if not (args.rewards_normalization and args.grpo_std_normalization):
            return  # the std is all that a group of one lacks
        remedy += ", or --disable-grpo-std-normalization"
    reason = f"its statistics of a prompt group need at least {spec.min_group_size} responses"
    _refuse(_chosen(spec), f"--n-samples-per-prompt {size}", reason, remedy)


def _check_loss(args: Any, spec: AlgorithmSpec) -> None:
    if spec.requires_normalize_advantages and not args.normalize_advantages:
        reason = "this algorithm normalises advantages over tokens"
        _refuse(_chosen(spec), "--normalize-advantages (off)", reason, "add --normalize-advantages")
    if spec.forbids_normalize_advantages and args.normalize_advantages:
        reason = "this algorithm's advantages must not be normalised over tokens"
        _refuse(_chosen(spec), "--normalize-advantages (on)", reason, "drop --normalize-advantages")
    if spec.forbids_reward_side_kl and args.kl_coef != 0:
        remedy = "drop --kl-coef, or give --use-kl-loss with --kl-loss-coef in its place"
        _refuse(_chosen(spec), f"--kl-coef {args.kl_coef}", "this algorithm reads no KL in the reward", remedy)
    if spec.requires_global_token_loss and not args.calculate_per_token_loss:
        reason = "a mean over each response's tokens rescales the log-probability of the response"
        _refuse(_chosen(spec), "--calculate-per-token-loss (off)", reason, "add --calculate-per-token-loss")


def _check_batches(args: Any, spec: AlgorithmSpec) -> None:
    prompts, size, slices = args.rollout_batch_size, args.n_samples_per_prompt, args.num_iters_per_train_update
    rollout = prompts * size
    batch = rollout if args.global_batch_size is None else args.global_batch_size
    option = f"--global-batch-size {batch}"
    samples = f"--rollout-batch-size {prompts} x --n-samples-per-prompt {size} = {rollout} samples a rollout"
    if spec.requires_on_policy_updates:
        reason = "this algorithm is on-policy, with one optimizer step a rollout"
        if batch != rollout:
            _refuse(_chosen(spec), f"{option} with {samples}", reason, f"give --global-batch-size {rollout}")
        if args.max_staleness != 0:
            _refuse(_chosen(spec), f"--max-staleness {args.max_staleness}", reason, "give --max-staleness 0")
    # Asynchronously, an optimizer batch may also collect several rollouts.
    if rollout % batch and not (args.fully_async and batch % rollout == 0):
        remedy = f"give a --global-batch-size that divides {rollout}"
        _refuse(option, samples, "the samples do not fill whole optimizer batches", remedy)
    if batch % slices:
        remedy = f"give a --num-iters-per-train-update that divides {batch}"
        _refuse(f"--num-iters-per-train-update {slices}", option, "the slices of a batch are not equal", remedy)


def _check_async(args: Any, spec: AlgorithmSpec) -> None:
    if not args.fully_async:
        return
    if not spec.supports_fully_async:
        reason = "this algorithm is not supported in fully asynchronous mode"
        _refuse(_chosen(spec), "--fully-async (on)", reason, "drop --fully-async")
    # The rollout role draws until a rollout is full; a service that is fed by others cannot know that they do.
    path = args.dynamic_sampling_filter_path
    if spec.uses_reward_components and args.global_batch_size is None and path:
        unknown = f"--global-batch-size (not given) with --dynamic-sampling-filter-path {path}"
        reason = "the size of the optimizer batch, over which advantages are whitened, is not known"
        _refuse(f"{_chosen(spec)} with --fully-async (on)", unknown, reason, "give --global-batch-size")


def _warn(args: Any, spec: AlgorithmSpec) -> None:
    """Warns of what is allowed and yet rarely meant."""
    path = args.dynamic_sampling_filter_path
    if spec.uses_reward_components and path and path.replace(":", ".").rpartition(".")[0] != OWN_FILTERS:
        _say(
            f"--dynamic-sampling-filter-path {path} and {_chosen(spec)}: a filter of your own may drop groups that "
            f"carry a signal in one component; ask group_carries_reward_signal in it, as {OWN_FILTERS} does"
        )
    if args.kl_coef != 0 and spec.advantage_fn not in ADVANTAGE_FNS_WITH_KL:
        _say(
            f"--kl-coef {args.kl_coef} and {_chosen(spec)}: this algorithm reads no KL in the reward, so the option "
            "has no effect; give --use-kl-loss with --kl-loss-coef in its place"
        )
    if args.normalize_advantages and args.fully_async:
        _say(
            "--normalize-advantages (on) and --fully-async (on): that mode has no normalisation over tokens, so the "
            "option has no effect; train colocated where it matters"
        )
    modes = {"--true-on-policy-mode": args.true_on_policy_mode, "--fully-async": args.fully_async}
    for mode in [option for option, on in modes.items() if on and args.use_tis][:1]:
        _say(
            f"--use-tis (on) and {mode} (on): the old log-probabilities are those of the weights that sampled, so "
            "that each weight is 1, but for rounding; drop --use-tis, or give --hybrid, whose old ones are later"
        )
    if args.use_kl_loss and args.kl_loss_coef == 0:
        _say(
            f"--use-kl-loss (on) and --kl-loss-coef {args.kl_loss_coef}: the KL is reported, and adds nothing to the "
            "loss; give --kl-loss-coef, or drop --use-kl-loss"
        )


def _say(message: str) -> None:
    warnings.warn(message, stacklevel=4)  # at the caller of validate_algorithm_args
