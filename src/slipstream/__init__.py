"""Slipstream: exact speculative decoding for language models.

Same text, less time, and a proof. The names below are the public API; they load on first use, so
that ``import slipstream`` costs nothing. Everything else may change between minor versions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.config import EngineConfig, SamplingParams, SpeculationConfig
    from slipstream.engine.engine import Engine
    from slipstream.engine.generation import Generation
    from slipstream.engine.request import Piece
    from slipstream.engine.stats import RequestStats
    from slipstream.engine.stream import Stream
    from slipstream.errors import SlipstreamError

__version__ = "0.1.0"

_HOME = {
    "Engine": "slipstream.engine.engine",
    "EngineConfig": "slipstream.config",
    "Generation": "slipstream.engine.generation",
    "Piece": "slipstream.engine.request",
    "RequestStats": "slipstream.engine.stats",
    "SamplingParams": "slipstream.config",
    "SlipstreamError": "slipstream.errors",
    "SpeculationConfig": "slipstream.config",
    "Stream": "slipstream.engine.stream",
}

__all__ = [
    "Engine",
    "EngineConfig",
    "Generation",
    "Piece",
    "RequestStats",
    "SamplingParams",
    "SlipstreamError",
    "SpeculationConfig",
    "Stream",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
