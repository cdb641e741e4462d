"""A running generation, piece by piece.

Knows no model: it takes pieces from whoever decodes. Promises: an error of the request is raised at
its end, and no piece comes after ``close``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from slipstream.engine.generation import Generation
from slipstream.engine.request import Piece
from slipstream.errors import InvalidInput


class Stream(Iterator[Piece]):
    """Pieces of a running generation; ``result`` holds the whole once they are exhausted."""

    def __init__(self, pieces: Iterator[Piece], result: Callable[[], Generation]) -> None:
        self._pieces = pieces
        self._finished = result
        self._result: Generation | None = None
        self._closed = False

    def __next__(self) -> Piece:
        if self._closed:
            raise StopIteration
        try:
            return next(self._pieces)
        except StopIteration:
            if self._result is None:
                self._result = self._finished()
            if self._result.error is not None:
                raise self._result.error from None
            raise

    @property
    def result(self) -> Generation:
        """The finished generation.

        Raises:
            InvalidInput: the stream isn't exhausted yet.
        """
        if self._result is None:
            raise InvalidInput("the stream has no result before its last piece was taken")
        return self._result

    def close(self) -> None:
        """Stop decoding and free the request; no piece comes after it."""
        self._closed = True
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
