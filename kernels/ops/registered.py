"""The operators as torch knows them: schema, implementation, shapes without data, gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.operators import OPERATORS
from kernels.ops.arguments import Operand, read, result_shape
from kernels.ops.calling import call
from kernels.ops.gradients import BACKWARD, remember
from kernels.ops.groups import world_of

NAMESPACE = "workbench"
DEVICES = ("cpu", "cuda")


def _implementation(operator: str) -> Callable[..., Tensor]:
    def run(first: Tensor, second: Tensor, group_name: str = "", schedule: str = "") -> Tensor:
        result, is_ours = call(operator, first, second, group_name, schedule)
        return result if is_ours else result.clone()

    return run


def _shape_only(operator: str) -> Callable[..., Tensor]:
    def fake(first: Tensor, second: Tensor, group_name: str = "", schedule: str = "") -> Tensor:
        sizes = read(operator, Operand.of(first), Operand.of(second), world_of(group_name))
        return first.new_empty(result_shape(operator, sizes))

    return fake


def _register(operator: str) -> Any:
    """torch.ops.workbench.<operator>."""
    first, second = OPERATORS[operator].operands()
    schema = f"(Tensor {first}, Tensor {second}, str group_name='', str schedule='') -> Tensor"
    made = torch.library.custom_op(
        f"{NAMESPACE}::{operator}", _implementation(operator), mutates_args=(), device_types=DEVICES, schema=schema
    )
    made.register_fake(_shape_only(operator))
    made.register_autograd(BACKWARD[operator], setup_context=remember)
    return made


REGISTERED = {operator: _register(operator) for operator in OPERATORS}
"""By operator; torch forgets what nobody holds."""
