"""Whether a drafter fits a target: same tokens, same widths, and the model that it was trained for.

The first two are conditions: without them its network can't be run on the target's features, or its
tokens mean something else. The third is not: a verification rule corrects any drafter, so another
target makes the guesses worse and never the text. It is asked for because a drafter of a wrong
model loads, runs and only slows things down, which nobody would notice.
"""

from __future__ import annotations

from pathlib import Path

from slipstream.drafters.checkpoint_config import DrafterConfig, TargetIdentity
from slipstream.errors import UnsupportedModel, VocabularyMismatch


def check_target(
    path: Path, config: DrafterConfig, target: TargetIdentity, *, allow_other_target: bool = False
) -> None:
    """Refuse a drafter that doesn't fit.

    Args:
        path: where it lies, for the message.
        config: the drafter's.
        target: whom it shall draft for.
        allow_other_target: let it draft for a model that it doesn't name.

    Raises:
        VocabularyMismatch: trained for another tokenizer.
        UnsupportedModel: other widths, or another model that wasn't allowed.
    """
    trained = config.target
    if trained.tokenizer_fingerprint != target.tokenizer_fingerprint:
        raise VocabularyMismatch(
            f"{path} was trained for {trained.name!r} with tokenizer "
            f"{trained.tokenizer_fingerprint}; {target.name!r} has {target.tokenizer_fingerprint}"
        )
    for field in ("hidden_size", "vocab_size"):
        if getattr(trained, field) != getattr(target, field):
            raise UnsupportedModel(
                f"{path} was trained for {trained.name!r} ({field} {getattr(trained, field)}); "
                f"the target is {target.name!r} ({field} {getattr(target, field)})"
            )
    if not config.drafts_for(target) and not allow_other_target:
        raise UnsupportedModel(
            f"{path} was trained for {trained.name!r} (fingerprint {trained.fingerprint}); the "
            f"target is {target.name!r} (fingerprint {target.fingerprint}). Its guesses may be "
            "poor there, which costs speed; the output stays exact, whatever drafts. To use it "
            "all the same: allow_other_target=True, or --allow-other-target"
        )
