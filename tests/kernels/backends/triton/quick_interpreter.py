"""Triton's interpreter at almost twice its speed: it looks through its own language once, not at every call.

At a launch it puts interpreted functions in the place of the builtins of `triton.language`, and looks for them among
all members of five modules and classes. It looks again at every call of a device function, where it has replaced them
already. And it makes a table of NumPy's types whenever it asks for one. That was a third of the time of a gang of
interpreted ranks (Triton 3.7, `interpreter.py`: `_patch_builtin`, `_get_np_dtype`).

These are Triton's private names. Where one is missing or takes other arguments, nothing is changed, and tests are slow.
Only tests call this: people's interpreted kernels run as Triton has them.
"""

from __future__ import annotations

import inspect
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

PARAMETERS = {
    "_patch_builtin": ["pkg", "builder", "scope"],
    "_patch_attr": ["obj", "name", "member", "builder", "scope"],
    "_get_np_dtype": ["tt_dtype"],
}
"""What is replaced or called, and what it takes."""


def is_known() -> bool:
    """Whether this Triton has all that is replaced here, in the form that is known."""
    named = {name: getattr(interpreter, name, None) for name in PARAMETERS}
    return all(
        inspect.isfunction(function) and list(inspect.signature(function).parameters) == PARAMETERS[name]
        for name, function in named.items()
    )


def builtins(place: Any) -> list[str]:
    """The names of the builtins of *place* that are not replaced at present."""
    return [name for name, member in inspect.getmembers(place) if tl.core.is_builtin(member)]


def quicken() -> bool:
    """Makes interpreted kernels of this process quicker; False where Triton is another one. Call it before a launch."""
    if not is_known():
        return False
    replace, numpy_type = interpreter._patch_attr, interpreter._get_np_dtype
    names: dict[Any, list[str]] = {}
    types: dict[str, Any] = {}

    def replace_builtins(pkg: Any, builder: Any, scope: Any) -> None:
        if pkg not in names:
            names[pkg] = builtins(pkg)
        # all or none: an outer call has replaced them, and puts them back at its end; of `tl.core` not even then
        if names[pkg] and tl.core.is_builtin(getattr(pkg, names[pkg][0])):
            for name in names[pkg]:
                replace(pkg, name, getattr(pkg, name), builder, scope)

    def type_in_numpy(tt_dtype: Any) -> Any:
        scalar = tt_dtype.element_ty if isinstance(tt_dtype, tl.block_type) else tt_dtype
        if isinstance(scalar, tl.pointer_type):
            return numpy_type(tt_dtype)
        if scalar.name not in types:
            types[scalar.name] = numpy_type(scalar)
        return types[scalar.name]

    interpreter._patch_builtin, interpreter._get_np_dtype = replace_builtins, type_in_numpy
    return True
