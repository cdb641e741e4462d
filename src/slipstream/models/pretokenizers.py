"""How text is cut before byte-level BPE, by the name that a GGUF file gives the variant.

A GGUF file states the cut by name only (``tokenizer.ggml.pre``); what the names mean is what the
tokenizer.json of the models behind them says. A wrong cut gives plausible text and wrong ids, so
an unknown name is refused. Text is not normalised, as everywhere else that reads these files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenizers import Regex, pre_tokenizers

from slipstream.errors import UnsupportedModel

_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3: Final = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2: Final = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """A way to cut.

    Args:
        pattern: pieces are its matches; None is GPT-2's pattern.
        digits: every digit is a piece of its own, before the pattern.
        whole_words: a piece that is a token is taken whole, without merging its way there.
        bos: texts begin with BOS unless the file says otherwise.
    """

    pattern: str | None = None
    digits: bool = False
    whole_words: bool = False
    bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The same as a ``tokenizers`` pre-tokenizer."""
        if self.pattern is not None:
            return pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(self.pattern), behavior="isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            )
        gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        if not self.digits:
            return gpt2
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])


_GPT2_LIKE = PreTokenizer()
_DIGITS = PreTokenizer(digits=True)
_LLAMA3_LIKE = PreTokenizer(pattern=_LLAMA3, whole_words=True, bos=True)
_QWEN2_LIKE = PreTokenizer(pattern=_QWEN2)

PRE_TOKENIZERS: Final[dict[str, PreTokenizer]] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "olmo", "exaone4"), _GPT2_LIKE),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _LLAMA3_LIKE),
    **dict.fromkeys(("dbrx", "smaug-bpe"), PreTokenizer(pattern=_LLAMA3)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"), _QWEN2_LIKE),
    "tekken": PreTokenizer(pattern=_TEKKEN, whole_words=True, bos=True),
}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The variant of that name.

    Raises:
        UnsupportedModel: an unknown name; lists the known ones.
    """
    try:
        return PRE_TOKENIZERS[name]
    except KeyError:
        raise UnsupportedModel(
            f"pre-tokenizer {name!r} of this GGUF file isn't known; known: "
            + ", ".join(sorted(PRE_TOKENIZERS))
        ) from None
