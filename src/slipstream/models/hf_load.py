"""A causal LM out of a directory or the hub, by transformers, with its complaints as our errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from slipstream.errors import InvalidInput, ModelError


def load_pretrained(
    path_or_id: str | Path,
    *,
    device: str | torch.device | None,
    dtype: str | torch.dtype | None,
    gguf_file: str | None,
) -> transformers.PreTrainedModel:
    """See :meth:`slipstream.models.hf.HuggingFaceModel.from_pretrained`."""
    if isinstance(dtype, str):
        name, dtype = dtype, getattr(torch, dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise InvalidInput(f"dtype must be float32, bfloat16 or float16, not {name!r}")
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise InvalidInput(f"no torch device {device!r}: {_first_line(error)}") from None
    options: dict[str, Any] = {"dtype": dtype or "auto"}
    if gguf_file is not None:
        options["gguf_file"] = gguf_file
    try:
        with _without_progress_bars():
            model = transformers.AutoModelForCausalLM.from_pretrained(str(path_or_id), **options)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"transformers can't load {str(path_or_id)!r}: {_first_line(error)}"
        ) from error
    try:
        loaded: transformers.PreTrainedModel = model.to(place)
    except (RuntimeError, AssertionError, ValueError) as error:  # torch doesn't have it
        raise InvalidInput(f"can't use device {str(place)!r}: {_first_line(error)}") from error
    return loaded


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Keep transformers' bars out of a command's output and error lines."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
