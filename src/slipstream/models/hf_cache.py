"""Keys and values of all open sequences, in the form in which transformers asks for them.

A table of (line per sequence, slot per token) a layer, grown on demand; ``hf_slots`` says what lies
where. Each attention layer hands in the pass's new keys and values and gets back everything that
its rows may see. Sequences never share a line, so not even a NaN can spread from one to another.

Shape letters: N lines, C slots of the table, R rows, B sequences of a pass, T rows of its longest
sequence, S slots shown, D width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers

from slipstream.models.hf_slots import Layout, room


@dataclass
class _Layer:
    keys: torch.Tensor  # (N, heads, C, D)
    values: torch.Tensor


class SlotCache(transformers.Cache):  # type: ignore[misc]
    """The table of every layer; made when a layer first writes, as wide as its heads are.

    Layers may differ in heads, width and device.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._tables: dict[int, _Layer] = {}
        self._layout: Layout | None = None

    def start(self, layout: Layout, device: torch.device) -> None:
        """Prepare for a pass with this layout."""
        self._layout = layout
        self._batch = torch.from_numpy(layout.batch).to(device)
        self._column = torch.from_numpy(layout.column).to(device)
        self._slots = torch.from_numpy(layout.slots).to(device)
        first, last = int(layout.lines[0]), int(layout.lines[-1])
        lines = torch.from_numpy(layout.lines).to(device)
        self._line = lines[self._batch]
        self._lines_needed = last + 1
        # Neighbouring lines are shown as they lie, without a copy: the usual case.
        contiguous = last - first + 1 == len(layout.lines)
        self._shown: slice | torch.Tensor = slice(first, last + 1) if contiguous else lines

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's (B, heads, T, D) keys and values; returns (B, heads, S, D) of each."""
        assert self._layout is not None
        table = self._reserve(layer_idx, key_states, value_states)
        shown = []
        for store, new in ((table.keys, key_states), (table.values, value_states)):
            device = store.device
            rows = new[self._batch.to(device), :, self._column.to(device)]
            store[self._line.to(device), :, self._slots.to(device)] = rows
            lines = self._shown if isinstance(self._shown, slice) else self._shown.to(device)
            shown.append(store[lines, :, : self._layout.span])
        return shown[0], shown[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Slots shown; models ask, but get every position and mask spelled out."""
        return 0 if self._layout is None else self._layout.span

    def vacate(self, gap: int, last: int) -> None:
        """Line ``gap`` is closed: move line ``last`` there, and wipe what it leaves.

        Wiped, because a masked NaN is still a NaN after multiplication by zero.
        """
        if last == 0:
            self._tables.clear()  # nothing is open: give the memory back
        for table in self._tables.values():
            for store in (table.keys, table.values):
                if last < store.shape[0]:
                    store[gap].copy_(store[last])
                    store[last].zero_()
                elif gap < store.shape[0]:
                    store[gap].zero_()

    def _reserve(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> _Layer:
        assert self._layout is not None
        old = self._tables.get(layer)
        if (
            old is not None
            and self._lines_needed <= old.keys.shape[0]
            and self._layout.span <= old.keys.shape[2]
        ):
            return old
        lines, slots = self._lines_needed, room(self._layout.span)
        if old is not None:
            lines = max(old.keys.shape[0], 1 << (lines - 1).bit_length())
            slots = max(old.keys.shape[2], slots)

        def grown(new: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
            store = new.new_zeros((lines, new.shape[1], slots, new.shape[3]))
            if before is not None:
                store[: before.shape[0], :, : before.shape[2]] = before
            return store

        table = _Layer(
            grown(keys, old.keys if old else None), grown(values, old.values if old else None)
        )
        self._tables[layer] = table
        return table
