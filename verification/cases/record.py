"""Record reward groups of reasoning-gym tasks, scored by their own verifiers: ``python -m verification.cases.record``.

The recording is data of the project (``data/real-groups.json``); nothing else imports reasoning-gym.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from pathlib import Path
from typing import Any

from verification.cases.integers import Integers
from verification.cases.solver import TEMPERAMENTS, extract_answer, format_score, respond

DESTINATION = Path(__file__).parent / "data" / "real-groups.json"

GROUP_SIZE = 8
GROUPS_A_TASK = 30
LONGEST_PROMPT = 300  # characters: the prompt is context for the reader, the numbers are what a case uses

TASKS: dict[str, dict[str, Any]] = {
    "chain_sum": {"min_terms": 2, "max_terms": 4, "min_digits": 1, "max_digits": 3},
    "gcd": {"max_value": 400},
    "lcm": {"max_value": 60},
    "letter_counting": {"min_words": 4, "max_words": 10},
    "base_conversion": {"max_value": 500},
    "basic_arithmetic": {"min_terms": 2, "max_terms": 4},
    "spell_backward": {},
    "count_bits": {"max_n": 100_000},
}


def record_groups() -> list[dict[str, Any]]:
    """Every group: one task entry, ``GROUP_SIZE`` responses, and their three scores as hex doubles."""
    groups = []
    for task in TASKS:
        groups += record_task(task, settings=TASKS[task])
    return groups


def record_task(task: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of one task. Entries with a long prompt are passed over."""
    import reasoning_gym

    seed = 1000 + list(TASKS).index(task)
    dataset = reasoning_gym.create_dataset(task, seed=seed, size=4 * GROUPS_A_TASK, **settings)
    groups: list[dict[str, Any]] = []
    for entry_index in range(len(dataset)):
        entry = dataset[entry_index]
        if len(entry["question"]) > LONGEST_PROMPT:
            continue
        stream = Integers(f"{task}/{seed}/{entry_index}")
        temperament = TEMPERAMENTS[len(groups) % len(TEMPERAMENTS)]
        responses = [respond(stream, entry["answer"], temperament) for _ in range(GROUP_SIZE)]
        correctness = [float(dataset.score_answer(extract_answer(response), entry)) for response in responses]
        groups.append(
            {
                "task": task,
                "seed": seed,
                "entry": entry_index,
                "prompt": entry["question"],
                "truth": entry["answer"],
                "responses": responses,
                "correctness": [score.hex() for score in correctness],
                "format": [format_score(response).hex() for response in responses],
                "length": [float(len(response)).hex() for response in responses],
            }
        )
        if len(groups) == GROUPS_A_TASK:
            return groups
    raise ValueError(f"task {task!r} gave {len(groups)} of {GROUPS_A_TASK} groups: raise LONGEST_PROMPT or its size")


def main() -> None:
    """Write the recording."""
    parser = argparse.ArgumentParser(prog="python -m verification.cases.record", description=main.__doc__)
    parser.add_argument("--output", type=Path, default=DESTINATION, help="where to write (default: %(default)s)")
    output = parser.parse_args().output
    version = importlib.metadata.version("reasoning_gym")
    content = {
        "about": "Reward groups of reasoning-gym tasks, scored by the tasks' own verifiers; responses by a scripted"
        " solver. Scores are C99 hex doubles; length counts characters. See README.md in this folder.",
        "source": f"reasoning-gym {version} (Apache-2.0)",
        "groups": record_groups(),
    }
    output.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
