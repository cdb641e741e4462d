"""Whether two models speak the same tokens, and how to give one's logits the other's width.

Token ids must mean the same to drafter and target, or every draft is noise that still costs a pass.
Widths may differ: models pad their vocabularies to round numbers, each to its own. V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import VocabularyMismatch

if TYPE_CHECKING:
    from slipstream.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class SharedVocabulary:
    """The tokens that both models know.

    Args:
        common: ids below this mean the same to both.
        width: the target's V, which receipts must have.
    """

    common: int
    width: int

    @property
    def proposable(self) -> TrimmedVocabulary:
        """What the drafter can propose to the target: the common tokens."""
        if self.common == self.width:
            return TrimmedVocabulary(self.width)
        return TrimmedVocabulary(self.width, np.arange(self.common))


def align_vocabulary(
    target_tokenizer: Tokenizer,
    target_vocab_size: int,
    draft_tokenizer: Tokenizer,
    draft_vocab_size: int,
) -> SharedVocabulary:
    """Check that both tokenizers are the same, and find what both models have logits for.

    Args:
        target_vocab_size, draft_vocab_size: widths of the logits, padding included.

    Raises:
        VocabularyMismatch: the tokenizers differ; names the first token that does.
    """
    if target_tokenizer.fingerprint != draft_tokenizer.fingerprint:
        difference = target_tokenizer.first_difference(draft_tokenizer)
        assert difference is not None
        token, target, draft = difference
        raise VocabularyMismatch(
            f"drafter and target don't speak the same tokens: token {token} is "
            f"{_spelled(target)} to the target and {_spelled(draft)} to the drafter"
        )
    common = min(target_tokenizer.vocab_size, target_vocab_size, draft_vocab_size)
    return SharedVocabulary(common, target_vocab_size)


def _spelled(token: str | None) -> str:
    return "unknown" if token is None else repr(token)
