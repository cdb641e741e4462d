"""The core and the instruction set of this process, looked up once: sampling asks in every row."""

from __future__ import annotations

import functools
from typing import Any

from slipstream.kernels import available, isa, native


@functools.cache
def present() -> bool:
    """Whether there is a core."""
    return available()


@functools.cache
def core() -> Any:
    """See :func:`slipstream.kernels.native`."""
    return native()


@functools.cache
def isa_in_use() -> str:
    """See :func:`slipstream.kernels.isa`."""
    return isa()
