"""Who runs: requests wait in order of arrival, join while there is room, and leave as they end.

Every cycle is one pass for all running requests, so a request that ends makes room for the next
without waiting for its neighbours. Knows no model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from slipstream.engine.request import Request


class Scheduler:
    """First come, first served, up to ``max_batch`` requests at a time."""

    def __init__(self, requests: Iterable[Request], *, max_batch: int) -> None:
        self._waiting = deque(requests)
        self._max_batch = max_batch
        self.running: list[Request] = []

    def admit(self, start: Callable[[Request], None]) -> None:
        """Start waiting requests while there is room."""
        while self._waiting and len(self.running) < self._max_batch:
            request = self._waiting.popleft()
            self.running.append(request)
            start(request)

    def retire(self) -> list[Request]:
        """Remove and return the running requests that have finished."""
        finished: list[Request] = []
        for request in self.running:
            if request.finish_reason is not None:
                finished.append(request)
        if finished:
            self.running = [request for request in self.running if not request.finished]
        return finished

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return not self.running and not self._waiting
