"""The compiled core's Python face: is it here, and which instruction set does it use?

The extension ``_native`` is optional. Importing this package costs nothing and never fails without
it; ``available()`` says whether it is there. ``SLIPSTREAM_ISA`` forces an instruction set.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from slipstream.errors import UnknownName, Unsupported

__all__ = ["available", "isa", "isas", "native"]

ISA_VARIABLE = "SLIPSTREAM_ISA"


def available() -> bool:
    """Whether the compiled core is part of this installation and loads."""
    try:
        native()
    except Unsupported:
        return False
    return True


def native() -> Any:
    """The extension module.

    Raises:
        Unsupported: it isn't there, or doesn't load.
    """
    try:
        return importlib.import_module("slipstream.kernels._native")
    except ImportError as error:
        raise Unsupported(f"the compiled core isn't part of this installation ({error})") from None


def isas() -> list[str]:
    """Instruction sets that this build and this processor have in common, best first."""
    return list(native().isas())


def isa() -> str:
    """The instruction set in use: the best one, or the one that SLIPSTREAM_ISA names.

    Raises:
        UnknownName: SLIPSTREAM_ISA names none that works here; lists those that do.
    """
    usable = isas()
    forced = os.environ.get(ISA_VARIABLE, "")
    if forced and forced not in usable:
        raise UnknownName(f"instruction set in {ISA_VARIABLE}", forced, usable)
    return forced or usable[0]
