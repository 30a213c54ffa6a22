"""From problems to samples, and to their rewards: what the rollout role does with a model, and the demonstrations of
the SFT role.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

import torch

from relax.core.means import means
from relax.rollout.generate import Response, generate
from relax.rollout.own_functions import blamed, load_function
from relax.rollout.streams import Place
from relax.tasks.task import Problem, Task
from relax.types import Sample


def collect(
    args: Namespace,
    model: torch.nn.Module,
    task: Task,
    problems: Sequence[int],
    *,
    rollout: int,
    max_new_tokens: int,
) -> list[Sample]:
    """``n_samples_per_prompt`` responses to each problem, one prompt group after the other.

    A sample depends on the weights, on ``args.seed``, and on the numbers of its rollout, of its problem and of itself
    among that problem's: on nothing else. Its metadata hold ``problem``, ``answer`` and ``response`` (text).
    """
    size = args.n_samples_per_prompt
    with blamed("--task-path", args.task_path):
        asked = [task.problem(number) for number in problems for _ in range(size)]
    places = [Place(args.seed, rollout, problem.number, index % size) for index, problem in enumerate(asked)]
    return _answered(model, task, asked, places, max_new_tokens, group_size=size)


def most_likely(model: torch.nn.Module, task: Task, problems: Sequence[int], *, max_new_tokens: int) -> list[Sample]:
    """As `collect`, with one response a problem, of the likeliest token each time: no random number is used."""
    asked = [task.problem(number) for number in problems]
    return _answered(model, task, asked, None, max_new_tokens, group_size=1)


def score(args: Namespace, samples: Sequence[Sample]) -> None:
    """Gives each sample its reward: that of the function at ``args.custom_rm_path``, called with ``args`` and it."""
    reward = load_function(args.custom_rm_path)
    with blamed("--custom-rm-path", args.custom_rm_path):
        for sample in samples:
            sample.reward = reward(args, sample)


def demonstrations(task: Task, problems: Sequence[int]) -> list[Sample]:
    """One sample a problem, whose response is the task's demonstration."""
    samples = []
    for index, number in enumerate(problems):
        ids = [*task.tokenizer.encode(task.demonstration(number)), task.tokenizer.end]
        sample = _sample(task, task.problem(number), Response(ids, status="completed"))
        sample.index, sample.rollout_log_probs = index, None
        samples.append(sample)
    return samples


def prompt_tokens(task: Task, problem: Problem) -> list[int]:
    """What the model is given of a problem."""
    return [task.tokenizer.start, *task.tokenizer.encode(problem.question)]


def mean_rewards(samples: Sequence[Sample]) -> dict[str, float]:
    """The mean of each reward component, by name; of a reward that is one number, as ``reward``.

    Observes: each is the mean over the samples that have it as a real number, and one that none has is left out.
    """
    return means(
        sample.reward if isinstance(sample.reward, Mapping) else {"reward": sample.reward} for sample in samples
    )


def _answered(
    model: torch.nn.Module,
    task: Task,
    asked: Sequence[Problem],
    places: Sequence[Place] | None,
    max_new_tokens: int,
    *,
    group_size: int,
) -> list[Sample]:
    """One response to each problem, in order."""
    prompts = [prompt_tokens(task, problem) for problem in asked]
    responses = generate(model, prompts, places, max_new_tokens=max_new_tokens, end_token=task.tokenizer.end)
    samples = []
    for index, (problem, response) in enumerate(zip(asked, responses, strict=True)):
        sample = _sample(task, problem, response)
        sample.index, sample.group_index = index, index // group_size
        samples.append(sample)
    return samples


def _sample(task: Task, problem: Problem, response: Response) -> Sample:
    return Sample(
        prompt=problem.question,
        tokens=[*prompt_tokens(task, problem), *response.tokens],
        response_length=len(response.tokens),
        rollout_log_probs=response.log_probs,
        status=response.status,
        metadata={
            "problem": problem.number,
            "answer": problem.answer,
            "response": task.tokenizer.decode(response.tokens),
        },
    )
