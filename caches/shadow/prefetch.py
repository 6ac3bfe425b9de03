"""Asks the processor to fetch a row of an array before it is needed. A hint: it changes no result."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WRITE, KEEP, DATA = 1, 3, 1  # arguments of LLVM's prefetch: for writing, worth keeping, data rather than code


def _prefetch(typing_context: Any, array: Any, row: Any) -> Any:  # noqa: ARG001, the form that Numba wants
    """Types and code of `prefetch`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, base.strides)[0]
        address = builder.add(builder.ptrtoint(base.data, cgutils.intp_t), builder.mul(arguments[1], stride))
        number = cgutils.int32_t
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.inttoptr(address, cgutils.voidptr_t)
        builder.call(fetch, [pointer, number(WRITE), number(KEEP), number(DATA)])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


# prefetch(array, row), for use in a compiled function. row: unsigned 64-bit, of the first axis; a row that does not
# exist does no harm.
prefetch: Any = intrinsic(_prefetch)
