"""Every drafter, tree and rule through the whole engine: the text is the plain text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slipstream import Engine, Generation, SamplingParams
from slipstream.errors import InvalidInput
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel
from tests.drafters.tiny_drafters import Tame, write_drafter, write_good_draft, write_good_eagle

PROMPTS = ("The quick brown fox jumps over the quick brown", "T")
DRAFTERS = (
    "medusa:{}/medusa",
    "eagle:{}/eagle",
    "eagle2:{}/eagle",
    "eagle2:{}/trimmed",
    "draft:{}/draft",
    "draft:{}/trimmed-draft",
    "composite:prompt-lookup+eagle2:{}/eagle",
    "composite:prompt-lookup+medusa:{}/medusa",
)
TREE_RULES = ("coupled", "recursive", "greedy_siblings")


@pytest.fixture(scope="module")
def target(tiny_checkpoint: Checkpoint) -> Checkpoint:
    return Tame(tiny_checkpoint)


@pytest.fixture(scope="module")
def drafters(tmp_path_factory: pytest.TempPathFactory, target: Checkpoint) -> Path:
    path = tmp_path_factory.mktemp("drafters")
    some = np.sort(np.random.default_rng(0).permutation(320)[:240])
    write_drafter(path / "medusa", target, "medusa", rank_accuracy=((0.5, 0.3, 0.1), (0.3, 0.2)))
    write_good_eagle(path / "eagle", target)
    write_good_eagle(path / "trimmed", target, vocabulary=some)
    write_good_draft(path / "draft", target)
    write_good_draft(path / "trimmed-draft", target, vocabulary=some)
    return path


def run(
    target: Checkpoint,
    drafter: str,
    *,
    nodes: int | None = None,
    k: int = 4,
    verify: str = "coupled",
    **params: object,
) -> list[Generation]:
    model = ReferenceModel(target)
    engine = Engine(
        model, tokenizer=target.tokenizer, drafter=drafter, k=k, nodes=nodes, verify=verify
    )
    settings = SamplingParams(max_tokens=16, seed=5, **params)  # type: ignore[arg-type]
    results = engine.generate(list(PROMPTS), settings)
    assert not model._caches, "a finished request leaves nothing open"
    return results


def texts(results: list[Generation]) -> list[tuple[int, ...]]:
    return [result.token_ids for result in results]


@pytest.fixture(scope="module")
def plain(target: Checkpoint) -> dict[float, list[tuple[int, ...]]]:
    return {t: texts(run(target, "none", temperature=t)) for t in (0.0, 0.8)}


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize(("verify", "nodes"), [*((rule, 9) for rule in TREE_RULES), ("coupled", 4)])
def test_greedy_output_is_plain_greedy_output(
    target: Checkpoint,
    drafters: Path,
    plain: dict[float, list[tuple[int, ...]]],
    drafter: str,
    verify: str,
    nodes: int,
) -> None:
    results = run(target, drafter.format(drafters), nodes=nodes, verify=verify)
    assert texts(results) == plain[0.0]


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("verify", ["rejection", "block"])
def test_chains_under_chain_rules_are_plain_greedy_output(
    target: Checkpoint,
    drafters: Path,
    plain: dict[float, list[tuple[int, ...]]],
    drafter: str,
    verify: str,
) -> None:
    assert texts(run(target, drafter.format(drafters), verify=verify)) == plain[0.0]


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("nodes", [4, 9])
def test_coupled_output_is_plain_output_at_temperature(
    target: Checkpoint,
    drafters: Path,
    plain: dict[float, list[tuple[int, ...]]],
    drafter: str,
    nodes: int,
) -> None:
    results = run(target, drafter.format(drafters), nodes=nodes, temperature=0.8)
    assert texts(results) == plain[0.8]


@pytest.mark.parametrize("verify", TREE_RULES)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_batch_gets_what_each_request_gets_alone(
    target: Checkpoint, drafters: Path, verify: str, temperature: float
) -> None:
    spec = f"eagle2:{drafters}/eagle"
    params = SamplingParams(max_tokens=12, seed=5, temperature=temperature)
    engine = Engine(
        ReferenceModel(target), tokenizer=target.tokenizer, drafter=spec, nodes=10, verify=verify
    )
    together = [r.token_ids for r in engine.generate(list(PROMPTS), params)]
    assert together == [engine.generate(prompt, params).token_ids for prompt in PROMPTS]


def test_good_drafters_are_accepted_and_trees_more_than_chains(
    target: Checkpoint, drafters: Path
) -> None:
    def length(drafter: str, nodes: int, **params: object) -> float:
        results = run(target, drafter.format(drafters), nodes=nodes, **params)
        emitted = sum(result.stats.emitted for result in results)
        return emitted / sum(result.stats.cycles for result in results)

    chain = length("eagle:{}/eagle", 4)
    assert chain > 1.5
    assert length("eagle2:{}/eagle", 16) > chain
    assert length("eagle:{}/eagle", 16) > chain
    assert length("draft:{}/draft", 4) > 1.5
    for verify in TREE_RULES:
        assert length("eagle2:{}/eagle", 16, temperature=0.3, verify=verify) > 1.2


def test_trees_are_the_default_where_drafter_and_rule_know_them(
    target: Checkpoint, drafters: Path
) -> None:
    spec = f"eagle2:{drafters}/eagle"
    wide = run(target, spec)[0].stats
    narrow = run(target, spec, verify="rejection")[0].stats
    assert wide.drafted / wide.cycles > 5 and narrow.drafted / narrow.cycles <= 4


def test_a_tree_for_a_chain_rule_is_refused(target: Checkpoint, drafters: Path) -> None:
    with pytest.raises(InvalidInput, match=r"rejection.*chains only.*up to 4"):
        run(target, f"eagle2:{drafters}/eagle", nodes=9, verify="rejection")


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 1.5, "temperature": 0.8},
        {"banned_token_ids": (5, 17, 100), "temperature": 0.0},
        {"allowed_token_ids": tuple(range(0, 320, 7)), "temperature": 0.8},
        {"frequency_penalty": 2.0, "temperature": 0.0},
        {"top_k": 5, "top_p": 0.9, "temperature": 0.8},
    ],
)
@pytest.mark.parametrize("name", ["eagle2:{}/trimmed", "medusa:{}/medusa"])
def test_processors_reach_every_node(
    target: Checkpoint, drafters: Path, name: str, params: dict[str, object]
) -> None:
    drafted = run(target, name.format(drafters), nodes=9, **params)
    assert texts(drafted) == texts(run(target, "none", **params))
