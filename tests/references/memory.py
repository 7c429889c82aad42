"""How large the tensors are that a computation makes."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LargestTensor(TorchDispatchMode):
    """Remembers how many elements the largest tensor had that any operation made."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for value in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(value, torch.Tensor):
                self.largest = max(self.largest, value.numel())
        return made
