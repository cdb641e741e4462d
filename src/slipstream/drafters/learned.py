"""From ``eagle:PATH`` to a loaded checkpoint that fits the target, with the target's weights.

Without a path, the drafter that ships for the target is taken, found by the target's fingerprint
among the package's data. ``smollm2-135m/eagle`` names a shipped one outright.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slipstream.drafters.checkpoint import CONFIG, DrafterCheckpoint, is_drafter, load_drafter
from slipstream.drafters.checkpoint_config import Architecture, DrafterConfig, TargetIdentity
from slipstream.drafters.decoder import SharedWeights
from slipstream.drafters.network import Operators, operators_for, shared_weights
from slipstream.errors import InvalidInput, UnsupportedModel

if TYPE_CHECKING:
    from slipstream.drafters.draft_network import DraftNetwork
    from slipstream.drafters.registry import DrafterContext


class Learned(NamedTuple):
    """What a drafter's network is made of."""

    checkpoint: DrafterCheckpoint
    shared: SharedWeights
    operators: Operators


def load_learned(spec: str, architecture: Architecture, context: DrafterContext) -> Learned:
    """Find and check a drafter for the context's target.

    Args:
        spec: a directory, the name of a shipped drafter, or "" for the one shipped for the target.

    Raises:
        InvalidInput: nothing there, or nothing shipped for this target.
        ModelError, VocabularyMismatch: see :func:`slipstream.drafters.checkpoint.load_drafter`;
            a checkpoint of another architecture as well.
        Unsupported: the target's backend doesn't lend its weights.
    """
    target = TargetIdentity.of(context.target.info, context.tokenizer)
    checkpoint = load_drafter(
        _locate(spec, architecture, target), target, allow_other_target=context.allow_other_target
    )
    found = checkpoint.config.architecture
    if found != architecture:
        raise UnsupportedModel(
            f"{checkpoint.path} is a {found} drafter, not {architecture}; "
            f"use it as {found}:{checkpoint.path}"
        )
    operators = operators_for(context.target, context.config)
    return Learned(checkpoint, shared_weights(context.target), operators)


def load_draft_network(spec: str, context: DrafterContext) -> DraftNetwork | None:
    """The distilled decoder that a directory or shipped name holds; None if it names no drafter.

    Raises:
        ModelError, VocabularyMismatch, Unsupported: see :func:`load_learned`.
    """
    if spec in shipped_drafters() or is_drafter(Path(spec).expanduser()):
        from slipstream.drafters.draft_network import DraftNetwork

        return DraftNetwork(*load_learned(spec, "draft", context))
    return None


def shipped_drafters() -> dict[str, Path]:
    """Drafters in the package's data, by name: ``model/architecture``."""
    data = Path(str(files("slipstream.drafters") / "data"))
    found = sorted(path.parent for path in data.glob(f"*/*/{CONFIG}"))
    return {f"{path.parent.name}/{path.name}": path for path in found}


def shipped_for(target: TargetIdentity) -> dict[str, DrafterConfig]:
    """Those of :func:`shipped_drafters` that were made for a model, by name."""
    found = {}
    for name, path in shipped_drafters().items():
        text = (path / CONFIG).read_text(encoding="utf-8")
        config = DrafterConfig.from_json(text, source=str(path / CONFIG))
        if config.drafts_for(target):
            found[name] = config
    return found


def _locate(spec: str, architecture: Architecture, target: TargetIdentity) -> Path:
    shipped = shipped_drafters()
    if not spec:
        for name, config in shipped_for(target).items():
            if config.architecture == architecture:
                return shipped[name]
        raise InvalidInput(
            f"no {architecture} drafter ships for {target.name!r} (fingerprint "
            f"{target.fingerprint}); make one with `slipstream train {architecture}` and give its "
            f"directory: {architecture}:PATH"
        )
    path = Path(spec).expanduser()
    if path.is_dir():
        if not is_drafter(path):
            raise UnsupportedModel(f"{path} holds no Slipstream drafter")
        return path
    if spec in shipped:
        return shipped[spec]
    raise InvalidInput(
        f"no drafter at {spec!r}; give a directory"
        + (f" or one of {', '.join(shipped)}" if shipped else "")
    )
