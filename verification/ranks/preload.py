"""What every rank needs, imported once by the server that forks them: torch, and megatron where it is installed.

Nothing under examination is imported here. Megatron warns of optional packages as it loads; nobody is there to read it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings

import torch

from verification.ranks import tracing

# Whoever asks for GPUs while this loads is answered without CUDA, which does not survive the fork.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
torch.set_num_threads(1)
tracing.install()
if importlib.util.find_spec("megatron") is not None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("megatron.core.parallel_state")
