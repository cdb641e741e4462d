"""The front door of the Python API: a model, a drafter and a rule, put together once.

Loads and checks everything on construction, so that a wrong name, a foreign vocabulary or a rule
that can't judge the drafter's trees fails before the first token. Knows what a prompt is; the
decoding itself is :mod:`slipstream.engine.decode`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast, overload

from slipstream.config import MAX_NODES, Depth, EngineConfig, SamplingParams, SpeculationConfig
from slipstream.drafters.base import Drafter
from slipstream.drafters.registry import DrafterContext, make_drafter, parse_spec
from slipstream.engine import decode
from slipstream.engine.adaptive import PINNED, AdaptiveDepth
from slipstream.engine.controller import Controller, FixedDepth
from slipstream.engine.cost_table import CostTable
from slipstream.engine.generation import Generation
from slipstream.engine.prompts import Prompt, encode_prompt, is_batch
from slipstream.engine.request import Piece, Request
from slipstream.engine.scheduler import Scheduler
from slipstream.engine.stream import Stream
from slipstream.engine.target import load_target
from slipstream.engine.trace import Trace
from slipstream.errors import InvalidInput, PromptTooLong
from slipstream.models.base import TargetModel
from slipstream.models.tokenizer import Tokenizer
from slipstream.types import SequenceState
from slipstream.verification.registry import get_rule


class Engine:
    """Generates text from a target model, speculatively and exactly.

    Args:
        model: a built-in name, a local directory, a hub id, a ``.gguf`` file; a loaded Hugging
            Face model (with ``tokenizer``); or any :class:`TargetModel` (with ``tokenizer``).
        tokenizer: of a model that was passed in loaded; a transformers tokenizer or ours.
        drafter: a registered name such as ``prompt-lookup``, ``draft:PATH``, ``none``; ``auto``
            for the target's default; or a :class:`Drafter`.
        k: drafted depth, tokens per cycle; ``auto`` chooses it for every request and cycle by
            expected tokens per second (:mod:`slipstream.engine.adaptive`).
        nodes: most drafted tokens per cycle; more than k allows trees. None leaves it to the
            drafter: 2k for ``eagle2``, whose trees are its point, else k, a chain.
        tree_width: most children of a node of a tree; None leaves it to the drafter.
        costs: measured costs for ``auto`` to start from, as ``slipstream tune`` writes them.
        verify: the verification rule's name.
        allow_other_target: use a trained drafter with a model that it wasn't trained for.
        config: backend, precision, threads, batch size.
        progress: called with (what, done, total) while a model loads.

    Raises:
        UnknownName: no such model, drafter or rule; lists the valid ones.
        ModelError: a file that can't be used.
        VocabularyMismatch: the drafter's vocabulary isn't the target's.

    Example:
        >>> from slipstream import Engine, SamplingParams
        >>> engine = Engine("smollm2-135m", drafter="prompt-lookup", k=5)
        >>> question = [{"role": "user", "content": "Name the capital of France."}]
        >>> result = engine.generate(question, SamplingParams(max_tokens=24))
        >>> "Paris" in result.text
        True
        >>> result.stats.acceptance_length >= 1.0
        True
        >>> plain = Engine(engine.model, tokenizer=engine.tokenizer, drafter="none")
        >>> plain.generate(question, SamplingParams(max_tokens=24)).token_ids == result.token_ids
        True
    """

    def __init__(
        self,
        model: str | Path | TargetModel | Any,
        *,
        tokenizer: Tokenizer | Any | None = None,
        drafter: str | Drafter = "auto",
        k: Depth = "auto",
        nodes: int | None = None,
        tree_width: int | None = None,
        costs: CostTable | None = None,
        verify: str = "coupled",
        allow_other_target: bool = False,
        config: EngineConfig | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.config = EngineConfig() if config is None else config
        if not isinstance(self.config, EngineConfig):
            raise InvalidInput(
                f"config is an EngineConfig, not {config!r}; "
                "EngineConfig.from_mapping builds one from a dictionary"
            )
        if costs is not None and not isinstance(costs, CostTable):
            raise InvalidInput(f"costs is a CostTable, not {costs!r}")
        if not isinstance(drafter, str) and (
            isinstance(drafter, type) or not hasattr(drafter, "propose")
        ):
            raise InvalidInput(f"a drafter is a registered name or a Drafter, not {drafter!r}")
        named = drafter if isinstance(drafter, str) else drafter.name
        self.speculation = SpeculationConfig(
            drafter=named,
            k=k,
            nodes=nodes,
            tree_width=tree_width,
            verify=verify,
            allow_other_target=allow_other_target,
        )
        self.rule = get_rule(verify)
        if isinstance(drafter, str):
            parse_spec(drafter)  # a typo should not cost the loading of a model
        loaded = load_target(model, tokenizer, self.config, progress)
        self.model = loaded.target
        self.tokenizer = loaded.tokenizer
        if isinstance(drafter, str):
            context = DrafterContext(
                target=self.model,
                tokenizer=self.tokenizer,
                config=self.config,
                tree_width=tree_width,
                allow_other_target=allow_other_target,
            )
            drafter = make_drafter(drafter, context)
        self.drafter = drafter
        self._controller = self._make_controller(costs)
        self._next_uid = 0

    @overload  # a string is also a sequence of strings, so the two overlap; a string is one prompt
    def generate(  # type: ignore[overload-overlap]
        self, prompt: Prompt, params: SamplingParams | None = None, *, chat: bool = False
    ) -> Generation: ...

    @overload
    def generate(
        self,
        prompt: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat: bool = False,
    ) -> list[Generation]: ...

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat: bool = False,
    ) -> Generation | list[Generation]:
        """Decode one prompt, or a list of prompts as one batch.

        Args:
            prompt: a string, a list of messages or a list of token ids; or a list of those.
            params: how to sample; for a batch one for all or one each. With one seed for all,
                each prompt gets the tokens that it would get alone with that seed.
            chat: format plain strings as a user's message with the model's chat template.

        Returns:
            One :class:`Generation`, or one per prompt in the same order. In a batch, a request
            that fails by itself has ``finish_reason == "error"`` and its ``error``.

        Raises:
            InvalidInput: an empty or malformed prompt, or parameters that don't fit the model.
            PromptTooLong: a prompt that fills the context.
            NumericalError: broken logits (of a single prompt).
        """
        if not is_batch(prompt):
            one_params = cast("SamplingParams | None", params)
            stream = self.stream(cast(Prompt, prompt), one_params, chat=chat)
            for _ in stream:
                pass
            return stream.result
        each = _one_each(params, len(prompt))
        requests = [self._request(one, some, chat) for one, some in zip(prompt, each, strict=True)]
        for _ in self._run(requests):
            pass
        return [self._result(request) for request in requests]

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        chat: bool = False,
        trace: Trace | None = None,
    ) -> Stream:
        """Decode one prompt piece by piece; see :meth:`generate` for arguments and errors.

        Pieces hold text that is certain: none is ever taken back. Closing or dropping the stream
        frees the request. A :class:`~slipstream.engine.trace.Trace` records every cycle's tree.
        """
        request = self._request(prompt, SamplingParams() if params is None else params, chat)
        request.trace = trace
        return Stream(self._run([request]), lambda: self._result(request))

    def encode(self, prompt: Prompt, *, chat: bool = False) -> list[int]:
        """Token ids of a prompt as :meth:`generate` would feed them."""
        return encode_prompt(self.tokenizer, prompt, chat=chat)

    def _make_controller(self, costs: CostTable | None) -> Controller:
        k, nodes = self.speculation.k, self.speculation.nodes
        may_branch = self.rule.trees and self.model.capabilities.trees
        branches = may_branch and getattr(self.drafter, "trees", False)
        per_level = getattr(self.drafter, "nodes_per_level", 1.0) if branches else 1.0
        if k == "auto":
            return AdaptiveDepth(
                nodes_per_level=nodes / PINNED if branches and nodes else per_level,
                most_nodes=MAX_NODES if nodes is None else nodes,
                keeps_tokens=self.rule.name == "coupled",
                costs=costs,
            )
        if nodes is not None and nodes > k and not may_branch:
            what = "backend runs" if self.rule.trees else f"rule {self.rule.name!r} judges"
            raise InvalidInput(
                f"nodes={nodes} with k={k} asks for trees, but this {what} chains only: "
                f"valid are nodes up to {k}"
            )
        return FixedDepth(k, round(k * per_level) if nodes is None else nodes)

    def _request(self, prompt: Prompt, params: SamplingParams, chat: bool) -> Request:
        if not isinstance(params, SamplingParams):
            raise InvalidInput(f"one prompt takes one SamplingParams, not {params!r}")
        tokens = self.encode(prompt, chat=chat)
        limit, vocabulary = self.model.info.max_context, self.model.info.vocab_size
        if len(tokens) >= limit:
            raise PromptTooLong(
                f"the prompt has {len(tokens)} tokens; the model's context of {limit} "
                f"takes prompts of at most {limit - 1}"
            )
        for token in tokens:
            if not 0 <= token < vocabulary:
                raise InvalidInput(f"token {token} is outside the vocabulary [0, {vocabulary})")
        seed = params.seed if params.seed is not None else secrets.randbits(63)
        state = SequenceState(self._next_uid, tokens, len(tokens), params, seed)
        self._next_uid += 1
        own = frozenset() if params.ignore_eos else self.tokenizer.eos_token_ids
        ends = own | frozenset(params.stop_token_ids)
        return Request(state, self.tokenizer, ends, limit)

    def _run(self, requests: Sequence[Request]) -> Iterator[Piece]:
        """Decode requests to their ends; yields the pieces of all of them as they come."""
        scheduler = Scheduler(requests, max_batch=self.config.max_batch)

        def start(request: Request) -> None:
            decode.start(self.model, self.drafter, request)

        try:
            while not scheduler.idle:
                scheduler.admit(start)
                decode.cycle(
                    self.model, self.drafter, self.rule, self._controller, scheduler.running
                )
                for request in scheduler.running:
                    yield from request.take_pieces()
                for request in scheduler.retire():
                    decode.finish(self.model, self.drafter, request)
        finally:
            for request in scheduler.running:
                decode.finish(self.model, self.drafter, request)

    def _result(self, request: Request) -> Generation:
        return Generation.of(
            request,
            verify=self.rule.name,
            exact=self.rule.exact,
            drafter=self.drafter.name,
        )


def _one_each(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, Sequence):
        raise InvalidInput(f"{count} prompts need one SamplingParams or {count}, not {params!r}")
    if len(params) != count:
        raise InvalidInput(f"{count} prompts need one SamplingParams or {count}, not {len(params)}")
    return list(params)
