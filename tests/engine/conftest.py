"""Small targets, drafters and a tokenizer of bytes for the tests of the loop."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from slipstream.models.tokenizer import Tokenizer

EOS = 256


def make_byte_tokenizer(eos: bool = True) -> Tokenizer:
    """Token i is byte i, token 256 ends the text: any text can be spelled out."""
    alphabet = _byte_alphabet()
    backend = tokenizers.Tokenizer(models.BPE({alphabet[i]: i for i in range(256)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    return Tokenizer(backend, eos_token_ids=[EOS] if eos else [])


def _byte_alphabet() -> list[str]:
    """The printable stand-ins that byte-level BPE uses for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {byte: chr(byte) for byte in printable}
    spelled.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [spelled[byte] for byte in range(256)]


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    return make_byte_tokenizer()
