"""Passes of llama.cpp, for the cost curve: one process, commands on stdin, answers on stdout.

Needs the ``xllamacpp`` wheel, whose extension exports llama.cpp's C interface; it is called through
ctypes, because no Python binding times a pass of several rows. Parameter structures are passed as
opaque blocks, larger than any version's, so that only their defaults are used.

    {"fill": 64}                 empties the cache, feeds a prompt; answers its seconds
    {"rows": 8, "start": 64}     one pass of 8 rows after it, logits for each, then drops them
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

POINTER = ctypes.c_void_p


class Parameters(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 1024)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("vectors", POINTER),
        ("position", ctypes.POINTER(ctypes.c_int32)),
        ("sequences", ctypes.POINTER(ctypes.c_int32)),
        ("sequence", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class Llama:
    """A model of llama.cpp with one sequence."""

    def __init__(self, path: str, threads: int, clock: str = "perf_counter") -> None:
        import xllamacpp

        self._clock = getattr(time, clock)
        self._library = library = ctypes.CDLL(
            str(next(Path(xllamacpp.__file__).parent.glob("*.so")))
        )
        self._silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, POINTER)(
            lambda *_: None
        )
        library.llama_log_set(self._silent, None)
        library.llama_backend_init()
        for name, result, arguments in [
            ("llama_model_default_params", Parameters, []),
            ("llama_context_default_params", Parameters, []),
            ("llama_model_load_from_file", POINTER, [ctypes.c_char_p, Parameters]),
            ("llama_init_from_model", POINTER, [POINTER, Parameters]),
            ("llama_set_n_threads", None, [POINTER, ctypes.c_int32, ctypes.c_int32]),
            ("llama_get_memory", POINTER, [POINTER]),
            ("llama_memory_seq_rm", ctypes.c_bool, [POINTER, *[ctypes.c_int32] * 3]),
            ("llama_batch_init", Batch, [ctypes.c_int32] * 3),
            ("llama_batch_free", None, [Batch]),
            ("llama_decode", ctypes.c_int32, [POINTER, Batch]),
        ]:
            function: Any = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        model = library.llama_model_load_from_file(
            path.encode(), library.llama_model_default_params()
        )
        self._context = library.llama_init_from_model(model, library.llama_context_default_params())
        library.llama_set_n_threads(self._context, threads, threads)
        self._memory = library.llama_get_memory(self._context)

    def feed(self, rows: int, start: int, *, logits: bool) -> float:
        """Seconds of one pass."""
        batch = self._library.llama_batch_init(rows, 0, 1)
        batch.count = rows
        for row in range(rows):
            batch.token[row], batch.position[row] = 5 + row % 7, start + row
            batch.sequences[row], batch.sequence[row][0] = 1, 0
            batch.logits[row] = logits
        begin = self._clock()
        status = self._library.llama_decode(self._context, batch)
        seconds = self._clock() - begin
        self._library.llama_batch_free(batch)
        if status:
            raise SystemExit(f"llama_decode answered {status}")
        return seconds

    def drop(self, start: int) -> None:
        self._library.llama_memory_seq_rm(self._memory, 0, start, -1)


def main() -> None:
    llama = Llama(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "fill" in command:
            llama.drop(0)
            seconds = llama.feed(command["fill"], 0, logits=False)
        else:
            seconds = llama.feed(command["rows"], command["start"], logits=True)
            llama.drop(command["start"])
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
