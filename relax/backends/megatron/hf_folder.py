"""A model folder in Hugging Face's layout, read from disk: ``config.json`` and one or more files of safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file. Raises ValueError naming the file where there is none, or where it holds none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist: give --hf-checkpoint a folder of Hugging Face's layout") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}; download it anew") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object: download it anew")
    return content


@dataclass(frozen=True)
class TensorFolder:
    """The tensors of a folder, which stay on disk until they are asked for."""

    folder: Path
    files: Mapping[str, str]
    """The file of each tensor."""

    @classmethod
    def open(cls, folder: Path) -> TensorFolder:
        """Reads which tensor lies where: from ``model.safetensors``, or from the files that the index names.

        Raises ValueError naming the file that is missing or damaged, or the tensor that is not where the index says.
        """
        if not (folder / INDEX).exists():
            return cls(folder, dict.fromkeys(_names(folder / WHOLE), WHOLE))
        said = read_json(folder / INDEX).get("weight_map")
        if not isinstance(said, dict) or not all(isinstance(one, str) and "/" not in one for one in said.values()):
            raise ValueError(f"{folder / INDEX} has no weight_map of tensors to files beside it: download it anew")
        held = {name: file for file in sorted(set(said.values())) for name in _names(folder / file)}
        for name in sorted(held.keys() | said.keys()):
            if said.get(name) != held.get(name):
                raise ValueError(
                    f"tensor {name!r} is in {held.get(name, 'no file')} of {folder}, and {INDEX} says "
                    f"{said.get(name, 'nothing of it')}: the files are of different downloads"
                )
        return cls(folder, held)

    def place(self, name: str) -> str:
        """The path of the file of tensor ``name``; of the folder where there is no such tensor."""
        return str(self.folder / self.files[name] if name in self.files else self.folder)

    def require(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raises ValueError, naming tensor and file, unless the folder holds just these tensors, in these shapes."""
        for name in sorted(shapes.keys() - self.files.keys()):
            raise ValueError(f"no tensor {name!r} in {self.place(name)}, which its config.json asks for")
        for name in sorted(self.files.keys() - shapes.keys()):
            raise ValueError(f"{self.place(name)} has a tensor {name!r}, for which its config.json has no place")
        for file in sorted(set(self.files.values())):
            with safe_open(self.folder / file, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118  # no mapping: it has no other way to list its names
                    found = tuple(opened.get_slice(name).get_shape())
                    if found != shapes[name]:
                        raise ValueError(
                            f"tensor {name!r} in {self.place(name)} has shape {found}, and its config.json asks for "
                            f"{shapes[name]}"
                        )

    def tensor(self, name: str) -> torch.Tensor:
        """Tensor ``name`` in float32, which holds every bfloat16 and float16 exactly; ValueError for other dtypes."""
        with safe_open(self.place(name), framework="pt") as opened:
            tensor = opened.get_tensor(name)
        if tensor.dtype not in FLOATS:
            raise ValueError(
                f"tensor {name!r} in {self.place(name)} is {tensor.dtype}: only float32, bfloat16 and float16 are "
                "read, so take the model that is not quantised"
            )
        return tensor.float()


def _names(path: Path) -> list[str]:
    try:
        with safe_open(path, framework="pt") as opened:
            return list(opened.keys())
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist: give --hf-checkpoint a folder with all of a model's files") from error
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} is no whole file of safetensors: {error}; download it anew") from error
