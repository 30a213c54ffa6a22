"""Random cases for the oracle's bounds: every stage and switch, from a seeded generator of the standard library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import numpy as np

from verification.cases.case import Case

Row = list[float]


def float32(values: Row) -> np.ndarray:
    """``[n]`` float32, n = 0 included, with the strides of an ordinary array."""
    array = np.zeros(len(values), dtype=np.float32)
    array[:] = values
    return array


def row(random: Random, length: int, *, spread: float = 1.0) -> np.ndarray:
    """``[length]`` float32 of one character: smooth, few-valued, constant, offset, sparse, wide or one-sided."""
    kind = random.randrange(8)
    if kind == 0:
        values = [random.gauss(0.0, spread) for _ in range(length)]
    elif kind == 1:
        values = [random.choice([0.0, 0.5, 1.0, -1.0, 0.1]) * spread for _ in range(length)]
    elif kind == 2:
        values = [random.uniform(-1, 1) * spread] * length
    elif kind == 3:
        offset = random.choice([1.0, 30.0, -1000.0]) * spread
        values = [offset + random.gauss(0.0, spread) for _ in range(length)]
    elif kind == 4:
        values = [random.gauss(0.0, spread) if random.random() < 0.2 else 0.0 for _ in range(length)]
    elif kind == 5:
        values = [random.gauss(0.0, spread) * 10.0 ** random.uniform(-6, 2) for _ in range(length)]
    elif kind == 6:
        values = [random.uniform(0.0, spread) for _ in range(length)]
    else:
        values = [random.uniform(0.9, 1.0) * spread for _ in range(length)]
    return float32(values)


def mask(random: Random, length: int) -> np.ndarray:
    """``[length]`` float32 of zeros and ones (seldom fractions) with at least one that is not zero."""
    kind = random.randrange(5)
    if kind == 0:
        values = [float(random.random() < 0.7) for _ in range(length)]
    elif kind == 1:
        values = [random.choice([0.0, 0.25, 0.7, 1.0]) for _ in range(length)]
    else:
        values = [1.0] * length
    if length and not any(values):
        values[random.randrange(length)] = 1.0
    return float32(values)


def lengths(random: Random, *, least: int = 0) -> list[int]:
    """One to six response lengths."""
    longest = random.choice([3, 12, 40, 300])
    return [random.randint(least, longest) for _ in range(random.randint(1, 6))]


def near(random: Random, base: np.ndarray) -> np.ndarray:
    """Log-probs near ``base``: equal, close, or far apart."""
    spread = random.choice([0.0, 1e-3, 0.1, 0.5, 3.0, 20.0, 60.0])
    return float32([value + random.gauss(0.0, spread) for value in base.tolist()])


def log_probs(random: Random, length: int) -> np.ndarray:
    """``[length]`` float32 log-probs."""
    spread = random.choice([0.01, 1.0, 12.0])
    return float32([-abs(random.gauss(0.0, spread)) for _ in range(length)])


def reward_case(random: Random, name: str) -> Case:
    """A reward stage of a single-reward algorithm."""
    algorithm = random.choice(["grpo", "gspo", "reinforce_plus_plus_baseline", "rloo", "ppo"])
    size, groups = random.choice([2, 3, 4, 8, 16, 33]), random.randint(1, 4)
    spread = random.choice([1.0, 1.0, 1e-3, 1e4, 1e-30, 1e20])
    values = [float(value) for _ in range(groups) for value in row(random, size, spread=spread)]
    if random.random() < 0.5:
        values = [value * random.choice([1.0, 0.1]) for value in values]  # doubles that are no float32
    samples = [{"index": i, "group_index": i // size, "reward": value} for i, value in enumerate(values)]
    options = {
        "n_samples_per_prompt": size,
        "grpo_std_normalization": random.random() < 0.8,
        "exact_statistics": random.random() < 0.3 and algorithm not in ("ppo",),
    }
    return Case(name, "reward.normalize", algorithm, {"samples": samples}, options)


def component_case(random: Random, name: str) -> Case:
    """A reward stage or a group signal of GDPO."""
    size, groups = random.choice([2, 3, 4, 8]), random.randint(1, 3)
    keys = ["correctness", "format", "length"][: random.randint(2, 3)]
    samples = []
    for group in range(groups):
        columns = [row(random, size, spread=random.choice([1.0, 1.0, 1e3])) for _ in keys]
        if random.random() < 0.3:
            columns[1] = 1.0 - columns[0].astype(np.float64)
        for i in range(size):
            reward = {key: float(column[i]) for key, column in zip(keys, columns, strict=True)}
            samples.append({"index": len(samples), "group_index": group, "reward": reward})
    weights = random.choice([None, [1.0] * len(keys), [random.gauss(0, 1) for _ in keys]])
    options = {"n_samples_per_prompt": size, "gdpo_reward_keys": keys, "gdpo_reward_weights": weights}
    if random.random() < 0.2:
        return Case(name, "reward.signal", "gdpo", {"samples": samples[:size]}, options)
    return Case(name, "reward.normalize", "gdpo", {"samples": samples}, options)


def kl_case(random: Random, name: str) -> Case:
    """A KL estimate."""
    sizes = lengths(random)
    new = [log_probs(random, size) for size in sizes]
    inputs = {
        "log_probs": new,
        "ref_log_probs": [near(random, values) for values in new],
        "values": None,
        "importance_ratios": [abs(row(random, size)) for size in sizes] if random.random() < 0.4 else None,
    }
    options = {
        "kl_coef": random.choice([0.0, 0.1, 0.1, 0.1]),
        "kl_loss_type": random.choice(["k1", "k2", "k3", "low_var_kl"]),
    }
    return Case(name, "kl.estimate", "grpo", inputs, options)


def advantage_case(random: Random, name: str) -> Case:
    """Advantages and returns of each estimator."""
    algorithm = random.choice(["grpo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo", "ppo", "gdpo"])
    sizes = lengths(random, least=1)
    rewards = [float(value) for value in row(random, len(sizes), spread=random.choice([1.0, 100.0, 1e-3]))]
    inputs = {
        "rewards": rewards,
        "kl": [row(random, size, spread=random.choice([1e-3, 1.0, 1e-40])) for size in sizes],
        "loss_masks": [mask(random, size) for size in sizes],
        "response_lengths": sizes,
        "total_lengths": [size + 5 for size in sizes],
        "values": [row(random, size, spread=random.choice([1.0, 0.1, 10.0])) for size in sizes],
    }
    if algorithm == "gdpo":
        cut = random.randint(0, len(sizes))
        inputs["mini_batch_sizes"] = [cut, len(sizes) - cut]
    options = {
        "kl_coef": random.choice([0.0, 0.05, 1.0]),
        "gamma": random.choice([1.0, 0.99, 0.9, 0.3, 0.0]),
        "lambd": random.choice([1.0, 0.95, 0.5, 0.0]),
    }
    return Case(name, "advantage.estimate", algorithm, inputs, options)


def normalization_case(random: Random, name: str) -> Case:
    """Token-level normalisation."""
    algorithm = random.choice(["grpo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"])
    sizes = lengths(random, least=1)
    inputs = {
        "advantages": [row(random, size, spread=random.choice([1.0, 0.01, 100.0])) for size in sizes],
        "loss_masks": [mask(random, size) for size in sizes],
    }
    return Case(name, "advantage.normalize", algorithm, inputs, {"normalize_advantages": random.random() < 0.85})


def policy_case(random: Random, name: str) -> Case:
    """Policy objectives with their masks and weights."""
    algorithm = random.choice(["grpo", "gspo", "sapo", "cispo", "rloo", "gdpo", "ppo"])
    sizes = lengths(random)
    new = [log_probs(random, size) for size in sizes]
    old = [near(random, values) for values in new]
    inputs = {
        "old_log_probs": old,
        "log_probs": new,
        "advantages": [row(random, size, spread=random.choice([1.0, 1.0, 1e-3, 30.0, 1e-42, 1e33])) for size in sizes],
        "loss_masks": [mask(random, size) for size in sizes],
        "rollout_log_probs": [near(random, values) for values in old],
    }
    options = {
        "eps_clip": random.choice([0.2, 0.1, 0.0]),
        "eps_clip_high": random.choice([0.2, 0.28, 5.0]),
        "eps_clip_c": random.choice([None, None, 3.0, 1.1]),
        "sapo_tau_pos": random.choice([1.0, 0.7]),
        "sapo_tau_neg": random.choice([1.05, 3.0]),
        "use_opsm": random.random() < 0.3,
        "opsm_delta": random.choice([1e-4, 0.1, 0.0]),
        "use_tis": random.random() < 0.4,
        "tis_mode": random.choice(["truncate", "icepop"]),
        "tis_clip": random.choice([2.0, 1.0, 5.0]),
        "tis_clip_low": random.choice([0.0, 0.5]),
    }
    return Case(name, "policy.loss", algorithm, inputs, options)


def reduce_case(random: Random, name: str) -> Case:
    """A reduced loss."""
    sizes = lengths(random)
    masks = [mask(random, size) for size in sizes]
    inputs = {
        "values": [row(random, size, spread=random.choice([1.0, 1e-3, 1e3, 1e-40, 1e30])) for size in sizes],
        "loss_masks": masks,
        "full_loss_masks": [mask(random, size + 3) for size in sizes] if random.random() < 0.3 else None,
    }
    return Case(name, "loss.reduce", "grpo", inputs, {"calculate_per_token_loss": random.random() < 0.5})


def log_prob_case(random: Random, name: str) -> Case:
    """Log-probs and entropy: flat, spread and peaked rows, offsets, masked entries, half precision."""
    vocabulary = random.choice([1, 2, 3, 5, 8, 17, 40, 130])
    logits, tokens = [], []
    for length in [random.randint(0, 5) for _ in range(random.randint(1, 3))]:
        rows = np.zeros((length, vocabulary), dtype=np.float32)
        for position in range(length):
            values = row(random, vocabulary, spread=random.choice([1e-3, 1.0, 1.0, 8.0, 60.0]))
            rows[position] = values + np.float32(random.choice([0.0, 0.0, 10.0, -300.0, 1e4]))
        ids = [random.randrange(vocabulary) for _ in range(length)]
        if random.random() < 0.3:
            hidden = np.array([random.random() < 0.3 for _ in range(rows.size)], dtype=np.bool_).reshape(rows.shape)
            hidden[np.arange(length), ids] = False
            rows[hidden] = -np.inf
        logits.append(rows)
        tokens.append(np.array(ids, dtype=np.int64))
    kind = random.choice(["float32", "float32", "float16", "bfloat16"])
    if kind == "float16":
        logits = [rows.astype(np.float16) for rows in logits]
    elif kind == "bfloat16":
        logits = [(rows.view(np.uint32) >> 16).astype(np.uint16) for rows in logits]
    return Case(name, "logprob.entropy", "grpo", {"logits": logits, "tokens": tokens})


MAKERS: dict[str, Callable[[Random, str], Case]] = {
    "reward": reward_case,
    "component": component_case,
    "kl": kl_case,
    "advantage": advantage_case,
    "normalization": normalization_case,
    "policy": policy_case,
    "reduce": reduce_case,
    "log-probs": log_prob_case,
}


def other_dtypes(random: Random, case: Case) -> Case:
    """The case with a critic in float64, and with masks of another dtype, or without any, where the stage has masks."""
    inputs = dict(case.inputs)
    if case.algorithm == "ppo" and case.stage == "advantage.estimate":
        inputs["values"] = [values.astype(np.float64) / 3 for values in inputs["values"]]
    masks = inputs.get("loss_masks")
    if masks is not None and random.random() < 0.5:
        inputs["loss_masks"] = None
    elif masks is not None and case.algorithm != "reinforce_plus_plus":  # whose fractions would become no mask at all
        dtype = random.choice([np.int64, np.bool_])
        inputs["loss_masks"] = [(mask > 0.5).astype(dtype) for mask in masks]
    return replace(case, id=f"{case.id}-dtypes", inputs=inputs)


def random_cases(seed: int, rounds: int) -> Iterator[Case]:
    """``rounds`` cases of each maker, half of them once more in other dtypes; one seed, one set of cases."""
    for maker, make in MAKERS.items():
        random, other = Random(f"{seed} {maker}"), Random(f"{seed} {maker} dtypes")
        for position in range(rounds):
            case = make(random, f"random/{maker}-{seed}-{position}")
            yield case
            if position % 2 and ("loss_masks" in case.inputs):
                yield other_dtypes(other, case)
