"""The corpus as a whole: how much it covers, that it is the same everywhere, that its data are what they say."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relax.algorithms.spec import list_algorithm_names
from verification.cases import corpus, find
from verification.cases.case import STAGES, Case
from verification.cases.families import ALL
from verification.cases.integers import Integers
from verification.cases.kl import KINDS
from verification.cases.malformed import NOT_A_REWARD
from verification.cases.real import COMPONENTS
from verification.cases.real import recorded as recorded_groups
from verification.cases.registry import SOURCES
from verification.cases.solver import format_score
from verification.cases.vectors import expected_values
from verification.judges.contract import judge_contract
from verification.oracle import evaluate
from verification.subjects.live import live_subject

MALFORMED = [case.id for case in corpus() if case.error is not None]
NAMED = [case for case in corpus() if "/vector-" not in case.id and "/real-" not in case.id]


def digest(cases: list[Case]) -> str:
    """A hash of everything that a case gives to a subject, arrays by their bits."""
    text = "\n".join(f"{case.id} {shown(case.inputs)} {shown(case.options)} {case.error}" for case in cases)
    return hashlib.sha256(text.encode()).hexdigest()


def shown(value: Any) -> str:
    """A value as text without loss."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    return f"{type(value).__name__} {value!r}"


def test_there_are_more_than_nine_hundred_named_cases() -> None:
    """Beside the vectors and the recorded groups."""
    assert len(NAMED) >= 900
    assert len({case.id for case in corpus()}) == len(corpus())


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("algorithm", ALL)
def test_every_algorithm_has_cases_of_every_stage(algorithm: str, stage: str) -> None:
    """No combination is empty."""
    assert any(case.stage == stage and case.algorithm == algorithm for case in NAMED)


def test_every_option_that_a_stage_reads_is_varied() -> None:
    """Each of these attributes takes at least two values in the corpus, the named ones all their values."""
    values: dict[str, set[str]] = {}
    for case in corpus():
        for name, value in vars(case.arguments()).items():
            values.setdefault(name, set()).add(repr(value))
    varied = (
        "reward_key rewards_normalization grpo_std_normalization exact_statistics normalize_advantages kl_coef gamma"
        " lambd eps_clip eps_clip_high eps_clip_c sapo_tau_pos sapo_tau_neg use_opsm opsm_delta use_tis tis_mode"
        " tis_clip tis_clip_low calculate_per_token_loss fully_async hybrid true_on_policy_mode loss_type"
        " debug_rollout_only debug_train_only custom_reward_post_process_path agentic_custom_advantage_path"
        " gdpo_reward_keys gdpo_reward_weights n_samples_per_prompt max_staleness"
    )
    for name in varied.split():
        assert len(values[name]) >= 2, name
    assert values["kl_loss_type"] >= set(map(repr, KINDS))
    sizes = {case.options["n_samples_per_prompt"] for case in NAMED if case.stage == "reward.normalize"}
    assert sizes >= {1, 2, 3, 4, 5, 8, 16, 17, 32, 64}


def test_the_corpus_is_the_same_each_time_it_is_built() -> None:
    """Building all sources again gives the same inputs to the bit, in the same order."""
    again = [case for generate in SOURCES.values() for case in generate()]
    assert [case.id for case in again] == [case.id for case in corpus()]
    assert digest(again) == digest(list(corpus()))


def test_the_corpus_does_not_depend_on_the_hash_seed() -> None:
    """Another process with another seed of str hashes builds the same cases."""
    command = (
        "import hashlib; from verification.cases import corpus;"
        "ids = '\\n'.join(f'{c.id} {sorted(c.options)}' for c in corpus());"
        "print(hashlib.sha256(ids.encode()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    finished = subprocess.run(
        [sys.executable, "-c", command],
        cwd=root,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    ids = "\n".join(f"{case.id} {sorted(case.options)}" for case in corpus())
    assert finished.stdout == hashlib.sha256(ids.encode()).hexdigest() + "\n"


def test_the_stream_of_integers_is_fixed() -> None:
    """These values follow from the Mersenne twister and the seeding of the standard library."""
    stream = Integers("pinned")
    assert [stream.below(1000) for _ in range(6)] == [371, 197, 924, 260, 606, 821]
    assert stream.array(3, -8 << 14, 0, 14).tobytes().hex() == "00b5cac08072a4c0808cabc0"
    assert stream.shuffled(range(6)) == [2, 5, 0, 1, 3, 4]


def test_arrays_of_integers_are_exact() -> None:
    """A float32 array holds the quotients themselves; a range that float32 would round is refused."""
    as_doubles = Integers("exact").quotients(50, -(1 << 24) + 1, (1 << 24) - 1, 16)
    as_floats = Integers("exact").array(50, -(1 << 24) + 1, (1 << 24) - 1, 16)
    assert as_floats.dtype == np.float32
    assert as_floats.astype(np.float64).tolist() == as_doubles
    assert len(set(as_doubles)) > 40
    with pytest.raises(ValueError, match="float32 would round"):
        Integers("exact").array(1, 0, 1 << 24, 0)


def test_integers_cover_their_range_evenly() -> None:
    """Six thousand throws of a die: each face within five standard deviations (29 each) of a thousand."""
    stream = Integers("die")
    faces = Counter(stream.between(1, 6) for _ in range(6000))
    assert set(faces) == {1, 2, 3, 4, 5, 6}
    assert all(abs(count - 1000) < 145 for count in faces.values())


@pytest.mark.parametrize("stage", STAGES)
def test_inputs_are_plain_data(stage: str) -> None:
    """Numbers, texts, lists, mappings and arrays: of one dimension but for logits, float32 but for some masks, ids and
    logits and some of a critic's values, small but for a few."""
    large = 0
    for case in (case for case in corpus() if case.stage == stage):
        for name, value in case.inputs.items():
            assert_plain(value, case.id, DTYPES.get(name, FLOAT32))
        arrays = [array for value in case.inputs.values() if isinstance(value, list | tuple) for array in value]
        large += sum(len(array) for array in arrays if isinstance(array, np.ndarray)) > 300
    assert large <= 24


FLOAT32 = (np.float32,)
DTYPES = {
    "loss_masks": (np.float32, np.int64, np.bool_),
    "full_loss_masks": (np.float32, np.int64, np.bool_),
    "values": (np.float32, np.float64),
    "logits": (np.float32, np.float16, np.uint16),
    "tokens": (np.int64, np.int32),
}


@pytest.mark.parametrize("stage", ["advantage.normalize", "policy.loss", "loss.reduce"])
def test_masks_are_none_integers_and_booleans_too(stage: str) -> None:
    """Each stage that takes masks has valid cases without any for every algorithm, and with each dtype; the oracle
    has a value for all of them."""
    valid = [case for case in NAMED if case.stage == stage and case.error is None and "not-numbers" not in case.id]
    without = [case for case in valid if case.inputs["loss_masks"] is None]
    assert {case.algorithm for case in without} >= set(ALL) - ({"gdpo"} if stage == "advantage.normalize" else set())
    found: dict[str, list[Case]] = {"none": without}
    for case in valid:
        for mask in case.inputs["loss_masks"] or ():
            found.setdefault(str(mask.dtype), []).append(case)
    assert set(found) == {"none", "float32", "int64", "bool"}
    for kind in ("none", "int64", "bool"):
        assert all(evaluate(case) is not None for case in found[kind])


def test_logits_come_in_every_precision() -> None:
    """float32, float16 and bfloat16, whose bits are uint16 in a case and bfloat16 in a call; the oracle has a value."""
    kinds: dict[torch.dtype, list[Case]] = {}
    for case in NAMED:
        if case.stage == "logprob.entropy" and case.error is None:
            kinds.setdefault(case.fresh_inputs()["logits"][0].dtype, []).append(case)
    assert set(kinds) == {torch.float32, torch.float16, torch.bfloat16}
    assert all(evaluate(case) is not None for cases in kinds.values() for case in cases)
    case = find("logprob.entropy/grpo/bfloat16-7")
    bits, tensor = case.inputs["logits"][0], case.fresh_inputs()["logits"][0]
    assert tensor.view(torch.int16).tolist() == bits.view(np.int16).tolist()
    assert tensor.abs().max() > 6


def test_gae_is_asked_in_double_precision() -> None:
    """Some critics' values are doubles that no float32 equals; results are judged in the values' dtype."""
    doubles = [
        case
        for case in NAMED
        if case.stage == "advantage.estimate" and any(x.dtype == np.float64 for x in case.inputs["values"] or ())
    ]
    assert {case.algorithm for case in doubles} == {"ppo"}
    assert len(doubles) >= 5
    for case in doubles:
        assert any((row != row.astype(np.float32)).any() for row in case.inputs["values"])
        assert {exact.grid for exact in evaluate(case).values()} == {torch.float64}


def test_every_registered_algorithm_is_known_to_the_corpus() -> None:
    """The families, which the corpus is built from, hold the registry's names and no other."""
    assert sorted(ALL) == sorted(list_algorithm_names())


def assert_plain(value: Any, where: str, dtypes: tuple[type, ...]) -> None:
    """``value`` is plain data throughout, its arrays of one of ``dtypes``."""
    if isinstance(value, dict):
        for key, item in value.items():
            assert isinstance(key, str), where
            assert_plain(item, where, dtypes)
    elif isinstance(value, list | tuple):
        for item in value:
            assert_plain(item, where, dtypes)
    elif isinstance(value, np.ndarray):
        assert value.dtype in dtypes, where
        assert value.ndim == (2 if dtypes is DTYPES["logits"] else 1), where
    else:
        assert value is None or isinstance(value, str | complex | np.bool_ | Real), f"{where}: {type(value)}"


def test_a_case_is_found_by_its_id() -> None:
    """``find`` gives the case itself, and names the closest ids where there is none."""
    assert find("reward.normalize/grpo/binary-g8-nostd").options["grpo_std_normalization"] is False
    with pytest.raises(KeyError, match=r"reward\.normalize/grpo/binary-g8-nostd"):
        find("reward.normalize/grpo/binary-g8-nosdt")


@pytest.mark.parametrize("identity", MALFORMED)
def test_malformed_input_is_refused_with_its_words(identity: str) -> None:
    """The live code fails with a documented error that holds every word of the case, and leaves the input alone."""
    case = find(identity)
    assert case.error
    disagreeing = [found.detail for found in judge_contract(case, live_subject().run(case)) if not found.agrees]
    assert disagreeing == []


def test_every_kind_of_bad_component_is_a_case() -> None:
    """The contract's values that are no reward each have a named case that refuses them."""
    named = {case.id.rpartition("/bad-")[2] for case in NAMED if "/bad-" in case.id}
    assert len(named & {"none", "true", "numpy-bool", "text", "nan", "inf", "1e300", "complex", "list"}) == 9
    assert len(NOT_A_REWARD) >= 9


def test_all_vectors_are_cases() -> None:
    """Each of the 600 recorded exact values belongs to a case with as many samples."""
    expected = expected_values()
    assert len(expected) == 600
    for identity, values in expected.items():
        case = find(identity)
        samples = case.inputs["samples"] if case.stage == "reward.normalize" else case.inputs["rewards"]
        assert len(samples) == len(values)
        assert all(float(np.float32(value)) == value for value in values)


def test_real_groups_are_many_and_varied() -> None:
    """At least 200 groups of eight over four kinds of task or more; every score varies within most groups."""
    groups = recorded_groups()["groups"]
    assert len(groups) >= 200
    assert len({group["task"] for group in groups}) >= 4
    for name in COMPONENTS:
        assert all(len(group[name]) == 8 for group in groups)
        assert sum(len(set(group[name])) > 1 for group in groups) > len(groups) / 2
    flat_in_one = [g for g in groups if len(set(g["correctness"])) == 1 and len(set(g["format"])) > 1]
    assert len(flat_in_one) >= 10


def test_each_real_group_has_six_cases() -> None:
    """GDPO, GRPO, RLOO and another one normalise it; GDPO and GRPO are asked for its signal."""
    cases = [case for case in corpus() if "/real-" in case.id]
    by_group = Counter(case.id.split("/real-")[1][:3] for case in cases)
    assert set(by_group.values()) == {6}
    assert len(by_group) == len(recorded_groups()["groups"])
    assert {case.algorithm for case in cases} == set(ALL)


def test_recorded_format_and_length_follow_from_the_responses() -> None:
    """Both are computed again from the recorded texts."""
    for group in recorded_groups()["groups"]:
        assert group["format"] == [format_score(response).hex() for response in group["responses"]]
        assert group["length"] == [float(len(response)).hex() for response in group["responses"]]


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("<think>so</think><answer>4</answer>", 1.0),
        (" <think></think>\n<answer>4</answer> ", 1.0),
        ("<answer>4</answer><think>so</think>", 0.5),
        ("so <answer>4</answer>", 0.5),
        ("<think>so</think> 4", 0.0),
        ("4", 0.0),
    ],
)
def test_format_score(response: str, score: float) -> None:
    """1 for both pairs of tags in order and alone, 0.5 for a tagged answer, else 0."""
    assert format_score(response) == score


def test_recording_again_gives_the_same_groups() -> None:
    """The tasks' own verifiers give the recorded correctness, where that version of the library is installed."""
    pytest.importorskip("reasoning_gym")
    from importlib.metadata import version

    from verification.cases.record import TASKS, record_task

    if version("reasoning_gym") not in recorded_groups()["source"]:
        pytest.skip("another version of reasoning-gym is installed than the groups were recorded with")
    for task in ("gcd", "chain_sum"):
        again = record_task(task, TASKS[task])
        assert again == [group for group in recorded_groups()["groups"] if group["task"] == task]
