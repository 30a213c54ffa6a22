"""Named cases of ``arguments.validate``: command lines that are accepted, and every refusal with its words."""

from __future__ import annotations

from collections.abc import Iterator

from verification.cases.case import Case
from verification.cases.families import ALL, COMPONENTS, DIVIDE_BY_STD, NO_GROUPS, TOKEN_GLOBAL

KEYS = "--gdpo-reward-keys correct format"
ESTIMATOR = "--advantage-estimator"

NEEDED = {
    **dict.fromkeys(TOKEN_GLOBAL, "--normalize-advantages"),
    "rloo": "--calculate-per-token-loss",
    "gdpo": KEYS,
}

# Options whose text names something: a blank one is the leftover of a variable that was not set.
BLANK = (
    "--custom-rm-path", "--custom-reward-post-process-path", "--agentic-custom-advantage-path",
    "--dynamic-sampling-filter-path", "--reward-key", "--save", "--load",
)  # fmt: skip


def command_line_cases() -> Iterator[Case]:
    """All of them."""
    yield from accepted()
    yield from refused_by_algorithm()
    yield from refused_for_components()
    yield from refused_numbers()
    yield from refused_combinations()


def line(
    algorithm: str, rest: str, more: str = "", *, error: tuple[str, ...] | None = None, bare: bool = False
) -> Case:
    """A case of ``arguments.validate``: ``algorithm`` with what it needs (unless ``bare``), and ``more`` options."""
    needed = "" if bare else NEEDED.get(algorithm, "")
    argv = f"{ESTIMATOR} {algorithm} {needed} {more}".split()
    return Case(f"arguments.validate/{algorithm}/{rest}", "arguments.validate", algorithm, {"argv": argv}, error=error)


def accepted() -> Iterator[Case]:
    """What must be let through: each algorithm as it is meant, and each option once."""
    for algorithm in ALL:
        yield line(algorithm, "plain")
        yield line(algorithm, "batches", "--rollout-batch-size 4 --n-samples-per-prompt 8 --global-batch-size 32")
        yield line(algorithm, "seed", "--seed 7 --num-rollout 3 --save out --load in")
    for algorithm in (*DIVIDE_BY_STD, "ppo", *COMPONENTS):
        yield line(algorithm, "async", "--fully-async --max-staleness 2 --global-batch-size 256")
        yield line(algorithm, "two-batches", "--rollout-batch-size 4 --global-batch-size 16")
    options = {
        "reward-key": "--reward-key score",
        "custom-rm": "--custom-rm-path my.rewards.score",
        "hook": "--custom-reward-post-process-path verification.cases.hooks.doubled",
        "custom-advantage": "--agentic-custom-advantage-path verification.cases.hooks.doubled",
        "hook-colon": "--custom-reward-post-process-path verification.cases.hooks:doubled",
        "filter": "--dynamic-sampling-filter-path relax.rollout.filters.keep_groups_with_signal",
        "raw": "--disable-rewards-normalization",
        "nostd": "--disable-grpo-std-normalization",
        "g1-nostd": "--n-samples-per-prompt 1 --disable-grpo-std-normalization",
        "exact": "--exact-statistics",
        "normalize": "--normalize-advantages",
        "kl-loss": "--use-kl-loss --kl-loss-coef 0.01 --kl-loss-type low_var_kl",
        "clips": "--eps-clip 0.1 --eps-clip-high 0.28 --eps-clip-c 3.0",
        "opsm": "--use-opsm --opsm-delta 0.01",
        "tis": "--use-tis --tis-clip 1.5 --tis-clip-low 0.5",
        "icepop": "--use-tis --tis-mode icepop",
        "per-token": "--calculate-per-token-loss",
        "hybrid": "--hybrid",
        "on-policy": "--fully-async --true-on-policy-mode",
        "parallel": "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --context-parallel-size 2",
        "bshd": "--qkv-format bshd",
        "colocate": "--colocate",
    }
    for name, text in options.items():
        yield line("grpo", name, text)
    yield line("ppo", "gae", "--gamma 0.99 --lambd 0.95 --kl-coef 0.1 --kl-loss-type k3")
    yield line("ppo", "g1", "--n-samples-per-prompt 1")
    yield line("reinforce_plus_plus", "kl", "--gamma 0.9 --kl-coef 0.05 --kl-loss-type k2")
    yield line("reinforce_plus_plus", "g1", "--n-samples-per-prompt 1")
    yield line("sapo", "taus", "--sapo-tau-pos 0.5 --sapo-tau-neg 2.0")
    yield line("gdpo", "weights", "--gdpo-reward-weights 1.0 0.5")
    yield line("gdpo", "three", "--gdpo-reward-keys a b c --gdpo-reward-weights 1 -0.5 0", bare=True)
    yield line("gdpo", "filter", "--dynamic-sampling-filter-path relax.rollout.filters.keep_groups_with_signal")
    yield line("gdpo", "filter-colon", "--dynamic-sampling-filter-path relax.rollout.filters:keep_groups_with_signal")
    yield line("gdpo", "per-token", "--calculate-per-token-loss")
    yield line("gdpo", "g2", "--n-samples-per-prompt 2")


def refused_by_algorithm() -> Iterator[Case]:
    """What a spec requires or forbids: the refusal names both options."""
    size = "--n-samples-per-prompt"
    for algorithm in (*DIVIDE_BY_STD, "rloo", *COMPONENTS):
        yield line(algorithm, "g1", f"{size} 1", error=(ESTIMATOR, algorithm, size))
    for algorithm in TOKEN_GLOBAL:
        yield line(algorithm, "unnormalized", bare=True, error=(ESTIMATOR, algorithm, "--normalize-advantages"))
    yield line("rloo", "kl", "--kl-coef 0.1", error=(ESTIMATOR, "rloo", "--kl-coef"))
    yield line("rloo", "per-response", bare=True, error=(ESTIMATOR, "rloo", "--calculate-per-token-loss"))
    yield line("rloo", "raw", "--disable-rewards-normalization", error=("rloo", "--disable-rewards-normalization"))
    yield line("rloo", "two-steps", "--global-batch-size 128", error=(ESTIMATOR, "rloo", "--global-batch-size"))
    yield line("rloo", "stale", "--max-staleness 1", error=(ESTIMATOR, "rloo", "--max-staleness"))
    yield line("rloo", "async", "--fully-async", error=(ESTIMATOR, "rloo", "--fully-async"))
    yield line("rloo", "nostd-g1", f"{size} 1 --disable-grpo-std-normalization", error=("rloo", size))
    yield line("gdpo", "nostd-g1", f"{size} 1 --disable-grpo-std-normalization", error=("gdpo", size))
    for algorithm in NO_GROUPS:
        yield line(algorithm, "exact", "--exact-statistics", error=(ESTIMATOR, algorithm, "--exact-statistics"))
    unknown = ["--advantage-estimator", "grppo"]
    identity = "arguments.validate/grpo/unknown-algorithm"
    yield Case(identity, "arguments.validate", "grpo", {"argv": unknown}, error=(ESTIMATOR, "grppo", "grpo"))


def refused_for_components() -> Iterator[Case]:
    """GDPO: token normalisation, hooks, normalisation off, group size, keys and weights."""
    keys, weights = "--gdpo-reward-keys", "--gdpo-reward-weights"
    hooks = {"hook": "--custom-reward-post-process-path", "custom-advantage": "--agentic-custom-advantage-path"}
    for name, option in hooks.items():
        text = f"{option} verification.cases.hooks.doubled"
        yield line("gdpo", name, text, error=(ESTIMATOR, "gdpo", option))
    off = "--disable-rewards-normalization"
    yield line("gdpo", "normalize", "--normalize-advantages", error=(ESTIMATOR, "gdpo", "--normalize-advantages"))
    yield line("gdpo", "raw", off, error=(ESTIMATOR, "gdpo", off))
    yield line("gdpo", "no-keys", bare=True, error=(ESTIMATOR, "gdpo", keys))
    yield line("gdpo", "one-key", f"{keys} correct", bare=True, error=(ESTIMATOR, keys, "correct"))
    yield line("gdpo", "duplicate-keys", f"{keys} correct format correct", bare=True, error=(keys, "correct"))
    yield line("gdpo", "three-weights", f"{weights} 1 1 1", error=(keys, weights, "3", "2"))
    yield line("gdpo", "one-weight", f"{weights} 1", error=(keys, weights, "1", "2"))
    yield line("gdpo", "zero-weights", f"{weights} 0 0", error=(weights,))
    for name in ("nan", "inf"):
        yield line("gdpo", f"weight-{name}", f"{weights} 1 {name}", error=(weights, name))
    yield line("gdpo", "weight-text", f"{weights} 1 heavy", error=(weights, "heavy"))
    yield line(
        "gdpo", "async-unknown-batch", "--fully-async --dynamic-sampling-filter-path my.filters.keep",
        error=("--fully-async", "--global-batch-size"),
    )  # fmt: skip


def refused_numbers() -> Iterator[Case]:
    """Numbers outside their range or at its end, and text that is no number or blank."""
    outside = {
        "--gamma": ("1.5", "-0.1", "nan"),
        "--lambd": ("1.01", "-1", "inf"),
        "--eps-clip": ("-0.1", "1.5", "nan"),
        "--eps-clip-high": ("-0.2", "inf"),
        "--eps-clip-c": ("1.0", "0.5", "nan"),
        "--sapo-tau-pos": ("0", "-1", "nan"),
        "--sapo-tau-neg": ("0", "inf"),
        "--kl-coef": ("nan", "inf"),
        "--kl-loss-coef": ("nan",),
        "--opsm-delta": ("nan",),
        "--tis-clip": ("nan", "-1"),
        "--tis-clip-low": ("-0.5", "nan"),
        "--n-samples-per-prompt": ("0", "-8", "2.5"),
        "--rollout-batch-size": ("0", "-1"),
        "--global-batch-size": ("0", "-32"),
        "--num-rollout": ("0",),
        "--max-staleness": ("-1",),
        "--num-iters-per-train-update": ("0",),
        "--tensor-model-parallel-size": ("0",),
        "--context-parallel-size": ("-2",),
        "--pipeline-model-parallel-size": ("0",),
    }
    for option, values in outside.items():
        for value in values:
            name = f"{option.removeprefix('--')}-{value}".replace("--", "-minus-")
            yield line("grpo", name, f"{option} {value}", error=(option, value))
    for option in ("--gamma", "--seed", "--kl-coef", "--tis-clip"):
        yield line("grpo", f"{option.removeprefix('--')}-text", f"{option} much", error=(option, "much"))
    yield line("grpo", "seed-largest", f"--seed {2**63 - 1}")
    yield line("grpo", "seed-beyond", f"--seed {2**63}", error=("--seed", str(2**63)))
    choices = {"--kl-loss-type": "k4", "--tis-mode": "drop", "--qkv-format": "sbhd", "--loss-type": "dpo"}
    for option, value in choices.items():
        yield line("grpo", f"{option.removeprefix('--')}-unknown", f"{option} {value}", error=(option, value))
    for option in BLANK:
        for name, text in (("blank", ""), ("spaces", "  ")):
            identity = f"arguments.validate/grpo/{option.removeprefix('--')}-{name}"
            argv = [ESTIMATOR, "grpo", option, text]
            yield Case(identity, "arguments.validate", "grpo", {"argv": argv}, error=(option, "blank"))
    yield line("grpo", "unknown-option", "--group-size 8", error=("--group-size",))
    yield line("grpo", "abbreviated", "--kl 0.1", error=("--kl",))
    yield line("grpo", "missing-value", "--gamma", error=("--gamma",))


def refused_combinations() -> Iterator[Case]:
    """Options that contradict one another, whatever the algorithm."""
    yield line(
        "grpo", "tis-bounds", "--use-tis --tis-clip 0.5 --tis-clip-low 0.9", error=("--tis-clip", "--tis-clip-low")
    )
    yield line("grpo", "hybrid-async", "--hybrid --fully-async", error=("--hybrid", "--fully-async"))
    yield line("grpo", "colocate-async", "--colocate --fully-async", error=("--colocate", "--fully-async"))
    yield line(
        "grpo", "debug-both", "--debug-rollout-only --debug-train-only",
        error=("--debug-rollout-only", "--debug-train-only"),
    )  # fmt: skip
    yield line("grpo", "exact-raw", "--exact-statistics --disable-rewards-normalization",
               error=("--exact-statistics", "--disable-rewards-normalization"))  # fmt: skip
    yield line(
        "grpo", "uneven-batches", "--rollout-batch-size 3 --n-samples-per-prompt 4 --global-batch-size 5",
        error=("--global-batch-size", "--rollout-batch-size"),
    )  # fmt: skip
