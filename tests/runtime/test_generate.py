"""Sampling: its log-probs are the trainer's, and a response depends on its place in the run alone."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from relax.backends.megatron.model import policy_model
from relax.backends.megatron.scoring import score_log_probs
from relax.backends.megatron.weights import load_weights, weights_of
from relax.rollout.collect import collect, mean_rewards
from relax.rollout.columns import rollout_columns
from relax.rollout.generate import Response, draw, generate
from relax.rollout.streams import Place
from tests.runtime.small_run import MAX_NEW_TOKENS, SHAPE, SmallRun, arguments

pytestmark = pytest.mark.usefixtures("alone")

END = 2
PROMPTS = [[1, 5, 9, 4], [1], [1, 7, 7, 3, 8, 8, 3], [1, 4], [1, 5, 9, 4], [1, 12, 13, 14, 15]]
PLACES = [Place(seed=3, rollout=5, prompt=number, sample=0) for number in range(len(PROMPTS))]


def model_that_ends() -> torch.nn.Module:
    """A model whose responses are of many lengths: some end at once, some never."""
    model = policy_model(SHAPE, seed=4)
    weights = {name: 20 * tensor if "output_layer" in name else tensor for name, tensor in weights_of(model).items()}
    load_weights(model, weights)
    return model


def responses(model: torch.nn.Module, which: list[int]) -> list[Response]:
    """The responses to these prompts, generated together."""
    return generate(
        model, [PROMPTS[i] for i in which], [PLACES[i] for i in which], max_new_tokens=MAX_NEW_TOKENS, end_token=END
    )


def test_batches_do_not_matter() -> None:
    """A response has the same tokens and log-probs alone, with others, in another order and in a second run."""
    model = model_that_ends()
    everyone = list(range(len(PROMPTS)))
    together = responses(model, everyone)
    assert len({len(response.tokens) for response in together}) > 2
    assert together == responses(model, everyone)
    assert together == responses(model, everyone[::-1])[::-1]
    assert together == [responses(model, [i])[0] for i in everyone]


def test_places_matter() -> None:
    """Every part of its place gives a sample another stream; the prompt's text alone does not."""
    base = PLACES[0]
    others = [Place(4, 5, 0, 0), Place(3, 6, 0, 0), Place(3, 5, 1, 0), Place(3, 5, 0, 1)]
    others += [Place(3, 1, 11, 0), Place(3, 11, 1, 0)]  # the same digits in a row
    streams = [tuple(place.uniforms(4)) for place in (base, *others)]
    assert len(streams) == len(set(streams))
    assert base.uniforms(4) == base.uniforms(9)[:4]
    same_prompt = responses(model_that_ends(), [0, 4])
    assert same_prompt[0] != same_prompt[1]


@pytest.mark.parametrize("qkv_format", ["thd", "bshd"])
@pytest.mark.parametrize("micro_batch_size", [1, 5, 16])
def test_recorded_log_probs(qkv_format: str, micro_batch_size: int) -> None:
    """What was recorded at each token has the bits that the trainer computes, however it batches."""
    run = SmallRun(arguments("grpo", qkv_format=qkv_format))
    samples = run.sample()
    columns = rollout_columns(run.args, samples)
    recomputed = score_log_probs(run.args, run.parts["actor"].model, columns, micro_batch_size=micro_batch_size)
    assert sum(map(len, recomputed)) > 100
    for expected, recorded in zip(recomputed, columns["rollout_log_probs"], strict=True):
        assert torch.equal(expected, recorded)
        assert bool((recorded < 0).all())


def test_distribution() -> None:
    """Tokens are drawn as often as the model says: of 2,000 draws none is further off than five standard errors."""
    model = model_that_ends()
    draws, prompt = 2000, [1, 5, 9]
    places = [Place(seed=1, rollout=0, prompt=0, sample=number) for number in range(draws)]
    found = Counter(
        response.tokens[0] for response in generate(model, [prompt] * draws, places, max_new_tokens=1, end_token=END)
    )
    ids = torch.tensor(prompt)[None]
    with torch.no_grad():
        chances = model(ids, torch.arange(3)[None], None)[0, -1].double().softmax(0).tolist()
    assert max(chances) < 0.9
    for token, chance in enumerate(chances):
        error = (draws * chance * (1 - chance)) ** 0.5
        assert abs(found[token] - draws * chance) <= 5 * error + 1, f"token {token}"


def test_impossible_tokens() -> None:
    """Whatever the uniform number, its lowest and its highest too, no token of probability 0 is drawn."""
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 1.0, -math.inf]]).expand(4, 5)
    uniforms = torch.tensor([0.0, 0.2, 0.3, 1 - 2**-53], dtype=torch.float64)
    assert draw(logits, uniforms).tolist() == [1, 1, 3, 3]


def test_greedy() -> None:
    """Without places the likeliest token is taken each time, and recorded with its own log-prob."""
    model = model_that_ends()
    first, second = (generate(model, PROMPTS[:1], None, max_new_tokens=4, end_token=END)[0] for _ in range(2))
    ids = torch.tensor(PROMPTS[0])[None]
    with torch.no_grad():
        expected = model(ids, torch.arange(4)[None], None)[0, -1].argmax()
    assert first == second
    assert int(expected) == first.tokens[0]


def test_ends() -> None:
    """A response stops at its end token, which it holds, or at the bound, and says which."""
    for response in responses(model_that_ends(), list(range(len(PROMPTS)))):
        completed = response.status == "completed"
        assert completed == (response.tokens[-1] == END)
        assert completed or len(response.tokens) == MAX_NEW_TOKENS
        assert END not in response.tokens[:-1]
        assert len(response.tokens) == len(response.log_probs)


@pytest.mark.parametrize("prompt", [[], [1] * 19])
def test_prompts_refused(prompt: list[int]) -> None:
    """A prompt that is empty, or leaves no room for the response, is named by its place."""
    with pytest.raises(ValueError, match=rf"prompt 1 has {len(prompt)} tokens and 14 are to follow.*reads 32"):
        generate(model_that_ends(), [[1], prompt], None, max_new_tokens=MAX_NEW_TOKENS, end_token=END)


def test_samples() -> None:
    """A rollout is whole prompt groups in order, scored, with what training needs; a part of it is the same samples."""
    run = SmallRun(arguments("gdpo"))
    samples = run.sample()
    args, model, group = run.args, run.parts["actor"].model, run.args.n_samples_per_prompt
    assert list(range(16)) == [sample.index for sample in samples]
    assert [number // group for number in range(16)] == [sample.group_index for sample in samples]
    for sample in samples:
        assert run.task.tokenizer.decode(sample.tokens[-sample.response_length :]) == sample.metadata["response"]
        assert {"correctness", "format", "length", "total"} == sample.reward.keys()
        assert len(sample.rollout_log_probs) == sample.response_length
    second = collect(args, model, run.task, [10**6 + 1], rollout=0, max_new_tokens=MAX_NEW_TOKENS)
    assert [sample.tokens for sample in samples[group : 2 * group]] == [sample.tokens for sample in second]
    assert mean_rewards(samples)["length"] == sum(sample.reward["length"] for sample in samples) / 16 > 1
