"""A settings file: what ``slipstream tune`` found best, as ``generate`` reads it.

JSON with the model's name, the fields of :class:`SpeculationConfig` and :class:`EngineConfig`, and
the measured costs that ``k = auto`` starts from; further entries (why, and the like for other
engines) are for people. Knows no engine: reading a file loads no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from slipstream.config import EngineConfig, SpeculationConfig
from slipstream.engine.cost_table import CostTable
from slipstream.errors import InvalidInput

VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to build an engine.

    Args:
        model: name or path of the target.
        speculation: what drafts, how far, which rule.
        engine: where and how the target runs.
        costs: measured with this model and drafter on the machine that wrote the file.
    """

    model: str
    speculation: SpeculationConfig
    engine: EngineConfig
    costs: CostTable | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "slipstream_settings": VERSION,
            "model": self.model,
            "speculation": asdict(self.speculation),
            "engine": asdict(self.engine),
            "costs": None if self.costs is None else self.costs.as_dict(),
        }


def read_settings(path: Path) -> Settings:
    """Read a settings file.

    Raises:
        InvalidInput: no settings file, of another version, or with values that are refused.
        OSError: it can't be read.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise InvalidInput(f"{path} is no settings file: it isn't JSON") from None
    if not isinstance(values, Mapping) or "slipstream_settings" not in values:
        raise InvalidInput(f"{path} is no settings file: `slipstream tune` writes one")
    if values["slipstream_settings"] != VERSION:
        raise InvalidInput(
            f"{path} has version {values['slipstream_settings']!r}; this Slipstream reads {VERSION}"
        )
    for name, kind in (("model", str), ("speculation", Mapping), ("engine", Mapping)):
        if not isinstance(values.get(name), kind):
            raise InvalidInput(f"{path} lacks a valid {name!r}")
    try:
        return Settings(
            model=values["model"],
            speculation=SpeculationConfig.from_mapping(values["speculation"]),
            engine=EngineConfig.from_mapping(values["engine"]),
            costs=CostTable.from_mapping(values["costs"]) if values.get("costs") else None,
        )
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
