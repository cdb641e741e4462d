"""Models that don't speak the same tokens are told apart before they talk."""

from __future__ import annotations

import pytest
import tokenizers

from slipstream.drafters.vocabulary import SharedVocabulary, align_vocabulary
from slipstream.errors import VocabularyMismatch
from slipstream.models.tokenizer import Tokenizer


def tokenizer_of(words: list[str]) -> Tokenizer:
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "?")
    return Tokenizer(tokenizers.Tokenizer(model))


def test_equal_tokenizers_share_what_both_models_are_wide_enough_for() -> None:
    mine, theirs = tokenizer_of(["?", "a", "b"]), tokenizer_of(["?", "a", "b"])
    assert align_vocabulary(mine, 3, theirs, 3) == SharedVocabulary(3, 3)
    assert align_vocabulary(mine, 8, theirs, 4) == SharedVocabulary(3, 8)
    assert align_vocabulary(mine, 4, theirs, 2) == SharedVocabulary(2, 4)


def test_a_mismatch_names_the_first_token_that_differs() -> None:
    target = tokenizer_of(["?", "a", "b", "c"])
    with pytest.raises(VocabularyMismatch, match="token 2 is 'b' to the target and 'x'"):
        align_vocabulary(target, 4, tokenizer_of(["?", "a", "x", "y"]), 4)
    with pytest.raises(VocabularyMismatch, match="token 3 is 'c' to the target and unknown to"):
        align_vocabulary(target, 4, tokenizer_of(["?", "a", "b"]), 4)
