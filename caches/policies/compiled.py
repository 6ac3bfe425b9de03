"""How the functions of the policies are compiled: without counting references, and inlined where they are called.

Numba counts references to every array of a state that is handed to a function, which takes many times as long as the
work itself; these functions allocate nothing, so there is nothing to count. They may not make arrays, nor copy slices.

Numba keeps a compiled kernel until the file that it stands in changes: who changes a part of the policies' kernel
touches caches/policies/kernel.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])
UNCOUNTED: dict[str, Any] = {"_nrt": False}  # an option of Numba's that its type stubs leave out


def inlined(function: Function) -> Function:
    """Makes of a function a part of a kernel, which is compiled by njit(cache=True, **UNCOUNTED)."""
    compiled: Function = njit(forceinline=True, **UNCOUNTED)(function)
    return compiled
