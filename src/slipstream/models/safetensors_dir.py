"""A local Hugging Face directory as a checkpoint: config.json, safetensors and tokenizer files.

Architectures llama, mistral, qwen2 and qwen3, as transformers 4 and 5 write them. Whatever a
configuration states and this package doesn't honour is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.models.hf_config import llama_config, read_json
from slipstream.models.hf_tokenizer import directory_tokenizer
from slipstream.models.layout import (
    LM_HEAD,
    check_config,
    check_tensors,
    fingerprint,
    tensor_shapes,
)
from slipstream.models.safetensors_file import read_safetensors
from slipstream.models.tokenizer import Tokenizer

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"


class DirectoryCheckpoint:
    """A :class:`~slipstream.models.checkpoint.Checkpoint` read from a directory.

    Args:
        path: the directory.
        name: for people; the directory's name if not given.

    Raises:
        CorruptModel, UnsupportedModel: see the classes; the message names the file and the reason.
    """

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        self._path = path = Path(path)
        self.name: str = name or path.resolve().name
        self.config: LlamaConfig = llama_config(read_json(path / "config.json"))
        check_config(self.name, self.config)
        self._tensors = self._read_tensors()
        if self.config.tie_embeddings:
            self._tensors.pop(LM_HEAD, None)
        check_tensors(self.name, self.config, {n: t.shape for n, t in self._tensors.items()})

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return directory_tokenizer(self._path)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.config, self.names(), self.stored)

    @cached_property
    def licence(self) -> str | None:
        """What the model card (README.md) states in its header, if anything."""
        card = self._path / "README.md"
        text = card.read_text(encoding="utf-8", errors="replace") if card.exists() else ""
        header = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
        stated = re.search(r"^license:\s*(\S+)", header[1], re.MULTILINE) if header else None
        return stated[1] if stated else None

    def names(self) -> Sequence[str]:
        return list(tensor_shapes(self.config))

    def stored(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            raise CorruptModel(f"{self.name}: tensor {name!r} is missing")
        return self._tensors[name]

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        return dequantize(self.stored(name))

    def _read_tensors(self) -> dict[str, StoredTensor]:
        if (self._path / _INDEX).exists():
            index = read_json(self._path / _INDEX).get("weight_map")
            if not isinstance(index, Mapping):
                raise CorruptModel(f"{self._path / _INDEX} has no 'weight_map'")
            files = sorted({str(file) for file in index.values()})
        elif (self._path / _SINGLE).exists():
            files = [_SINGLE]
        else:
            raise UnsupportedModel(f"{self._path} has no {_SINGLE}; other formats aren't read")
        tensors: dict[str, StoredTensor] = {}
        for file in files:
            if Path(file).name != file:
                raise CorruptModel(f"{self._path / _INDEX} names a file elsewhere: {file!r}")
            tensors |= read_safetensors(self._path / file)
        # Old files carry the rotary frequencies, which follow from the configuration.
        return {n: t for n, t in tensors.items() if not n.endswith(".rotary_emb.inv_freq")}
