"""Text out of a growing list of tokens, never shown before it is certain.

Holds back incomplete UTF-8 (the tokenizer's stream does) and every tail that could still become a
stop string, across token borders. Text that was given out is never taken back; the whole text is
the concatenation of what was given out.
"""

from __future__ import annotations

from slipstream.models.tokenizer import Tokenizer


class OutputText:
    """Incremental text of one request.

    Args:
        tokenizer: decodes the tokens.
        stop: strings that end the text; the first to be complete wins, and is not part of it.
    """

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...]) -> None:
        self._decoder = tokenizer.stream()
        self._stop = stop
        self._held = ""
        self.text = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """Add a token; returns the text that has become certain. Sets ``stopped``."""
        return self._release(self._decoder.push(token), last=False)

    def flush(self) -> str:
        """The output has ended: returns what was held back."""
        return self._release(self._decoder.flush(), last=True)

    def _release(self, new: str, *, last: bool) -> str:
        if not self._stop:
            self.text += new
            return new
        if self.stopped:
            return ""
        self._held += new
        found = [(i + len(s), i) for s in self._stop if (i := self._held.find(s)) >= 0]
        if found:
            self.stopped = True
            certain, self._held = self._held[: min(found)[1]], ""
        else:
            keep = 0 if last else self._possible_stop()
            split = len(self._held) - keep
            certain, self._held = self._held[:split], self._held[split:]
        self.text += certain
        return certain

    def _possible_stop(self) -> int:
        """Length of the longest tail that is the beginning of a stop string."""
        longest = 0
        for stop in self._stop:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:size]):
                    longest = size
                    break
        return longest
