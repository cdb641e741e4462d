"""The exception tree: every error that Slipstream raises on purpose, and nothing else.

::

    SlipstreamError
    ├── InvalidInput (ValueError)        a value that can't be honoured; says what is valid
    │   ├── UnknownName                  no such drafter, rule or model; lists the known ones
    │   ├── PromptTooLong                the prompt leaves no room in the context
    │   └── VocabularyMismatch           drafter and target don't speak the same tokens
    ├── ModelError (ValueError)          a model file that can't be used
    │   ├── UnsupportedModel             readable, but an architecture or format we don't run
    │   └── CorruptModel                 truncated, damaged or inconsistent
    ├── DownloadError                    a model could not be fetched; nothing half-written stays
    ├── NumericalError                   NaN logits, or a row in which every token is masked
    ├── MissingExtra (ImportError)       an optional dependency is needed; names the extra
    └── Unsupported                      this backend can't do what was asked, and won't pretend

User mistakes derive from ``ValueError`` as well, so callers who don't know this tree still catch
what they expect. Broken internal invariants are ``assert`` statements, not members of this tree.
"""

from __future__ import annotations

from collections.abc import Iterable


class SlipstreamError(Exception):
    """Base of every deliberate error."""


class InvalidInput(SlipstreamError, ValueError):
    """A value that can't be honoured. The message names the value and what is valid."""


class UnknownName(InvalidInput):
    """An unknown drafter, rule, model or field; the message lists the known ones."""

    def __init__(self, kind: str, name: str, valid: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}; valid: {', '.join(sorted(valid))}")
        self.kind = kind
        self.name = name


class PromptTooLong(InvalidInput):
    """The prompt leaves no room for a single new token in the model's context."""


class VocabularyMismatch(InvalidInput):
    """Drafter and target don't share a vocabulary; the message names the first differing token."""


class ModelError(SlipstreamError, ValueError):
    """A model file that can't be used."""


class UnsupportedModel(ModelError):
    """A readable model of an architecture, format or option that this backend doesn't run."""


class CorruptModel(ModelError):
    """A truncated, damaged or self-contradicting model file."""


class DownloadError(SlipstreamError):
    """A model could not be fetched or verified. Nothing half-written is left behind."""


class NumericalError(SlipstreamError):
    """Logits with NaN, or a row in which every token is masked."""


class MissingExtra(SlipstreamError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


class Unsupported(SlipstreamError):
    """This backend can't do what was asked, and doesn't pretend to."""
