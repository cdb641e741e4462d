"""Learned drafters beside a Hugging Face target: on its device, and to the same text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slipstream import Engine, SamplingParams
from slipstream.config import EngineConfig
from slipstream.drafters.checkpoint import load_drafter
from slipstream.drafters.network import EagleNetwork, MedusaNetwork, operators_for
from slipstream.drafters.numpy_operators import NumpyOperators
from slipstream.models.base import PREFIX, Rows
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.hf import HuggingFaceModel
from slipstream.models.reference import ReferenceModel
from tests.drafters.tiny_drafters import config_for, identity, write_drafter

VOCABULARY = np.arange(0, 320, 3)


@pytest.fixture(scope="module")
def hugging_face(tiny_model_dir: Path) -> HuggingFaceModel:
    return HuggingFaceModel.from_pretrained(tiny_model_dir, device="cpu")


def test_torch_and_numpy_compute_the_same(
    tmp_path: Path, tiny_checkpoint: Checkpoint, hugging_face: HuggingFaceModel
) -> None:
    features = np.random.default_rng(0).normal(size=(5, 48)).astype(np.float32)
    parents = np.array([PREFIX, 0, 0, 1, 2])
    eagle = load_drafter(
        write_drafter(tmp_path / "e", tiny_checkpoint, "eagle", vocabulary=VOCABULARY)
    )
    medusa = load_drafter(write_drafter(tmp_path / "m", tiny_checkpoint, "medusa"))
    results = []
    for lender in (ReferenceModel(tiny_checkpoint), hugging_face):
        operators = operators_for(lender, EngineConfig())
        network = EagleNetwork(eagle, lender, operators)
        handle = network.open()
        network.forward(Rows(np.full(2, handle), np.array([7, 8]), parents[:2], None, features[:2]))
        network.commit(handle, [0, 1])
        rows = Rows(np.full(5, handle), np.arange(5) + 30, parents, None, features)
        output = network.forward(rows)
        heads = MedusaNetwork(medusa, lender, operators).forward(features, 2)
        results.append([np.asarray(a) for a in (output.logits, output.features, heads)])
    assert not isinstance(operators, NumpyOperators)
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["medusa", "eagle2", "draft"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_coupled_output_is_plain_output(
    tmp_path: Path,
    tiny_checkpoint: Checkpoint,
    hugging_face: HuggingFaceModel,
    kind: str,
    temperature: float,
) -> None:
    import dataclasses

    from slipstream.drafters.checkpoint import save_drafter
    from tests.drafters.tiny_drafters import random_tensors

    target = dataclasses.replace(
        identity(tiny_checkpoint), fingerprint=hugging_face.info.fingerprint
    )
    config = config_for(tiny_checkpoint, kind.rstrip("2"))  # type: ignore[arg-type]
    config = dataclasses.replace(config, target=target)
    save_drafter(tmp_path, config, random_tensors(config))
    texts = []
    for spec in ("none", f"{kind}:{tmp_path}"):
        engine = Engine(hugging_face, tokenizer=tiny_checkpoint.tokenizer, drafter=spec, k=3)
        params = SamplingParams(max_tokens=10, seed=3, temperature=temperature, ignore_eos=True)
        texts.append(engine.generate("The quick brown", params).token_ids)
    assert texts[0] == texts[1]
