"""One training run from the options of ``slipstream train``: everything is opened, checked, begun.

Imports torch, and so is imported when a run begins. Knows no option's default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slipstream.cli.train_bar import RunBar, say
from slipstream.config import EngineConfig
from slipstream.errors import MissingExtra

if TYPE_CHECKING:
    from slipstream.drafters.checkpoint_config import Architecture
    from slipstream.training.trainer import Report


def run(
    architecture: Architecture, own: dict[str, Any], options: dict[str, Any], **shape: Any
) -> None:
    try:
        import accelerate  # noqa: F401
        import torch
    except ModuleNotFoundError:
        raise MissingExtra("training needs torch: pip install 'slipstream[train]'") from None
    from slipstream.models.loader import open_checkpoint
    from slipstream.training.corpus import Corpus
    from slipstream.training.drafter_vocabulary import choose, count_tokens, coverage
    from slipstream.training.manifest import open_data
    from slipstream.training.recipes import default_objective, describe, make_network, start_from
    from slipstream.training.target import FrozenTarget
    from slipstream.training.trainer import Trainer, TrainerSettings

    if options["threads"]:
        torch.set_num_threads(options["threads"])
    checkpoint = open_checkpoint(options["model"])
    target = FrozenTarget.from_checkpoint(checkpoint)
    found = [open_data(path, target.identity) for path in options["data"]]
    corpus = Corpus(
        *found,
        length=options["length"],
        rows=options["rows"],
        seed=options["seed"],
        recompute=(
            None if all(f.settings.features for f in found) else _features(options["model"])
        ),
    )
    size = target.identity.vocab_size
    counts = count_tokens(corpus.shards, size, held_out=False)
    ends = sorted(checkpoint.tokenizer.eos_token_ids)
    vocabulary = choose(counts, min(options["vocabulary"], size), ends)
    unseen = count_tokens(corpus.shards, size, held_out=True)
    say(
        f"{corpus.tokens:,} tokens of text to train on; the drafter's vocabulary covers "
        f"{coverage(unseen, vocabulary):.1%} of held-out text"
    )
    names = ("loss", "greedy_share", "depth_decay", "positions", "others")
    given = {**own, **{name: options[name] for name in names}}
    objective = dataclasses.replace(
        default_objective(architecture), **{k: v for k, v in given.items() if v is not None}
    )
    fields = {field.name for field in dataclasses.fields(TrainerSettings)}
    settings = TrainerSettings(**{name: options[name] for name in fields & set(options)})
    network = make_network(architecture, target, corpus, seed=options["seed"], **shape)
    if options["start"]:
        start_from(network, options["start"], target)
    with RunBar(f"train {architecture}", settings.tokens) as bar:
        done = Trainer(
            network=network,
            target=target,
            corpus=corpus,
            objective=objective,
            settings=settings,
            output=options["output"],
            config=describe(network, target, options["license"]),
            vocabulary=vocabulary,
            arguments={"architecture": architecture, **options, **own, **shape},
            report=lambda report: bar.show(report.progress.tokens, _describe(report)),
        ).run()
    say(f"{done.tokens:,} tokens in {done.step:,} steps; {options['output']}")


def _describe(report: Report) -> str:
    text = f"loss {report.loss:.3f}, {report.tokens_per_second:.0f} tok/s"
    if report.held_out is not None:
        greedy = ", ".join(f"{share:.3f}" for share in report.held_out.greedy)
        text += f"; held-out best-token acceptance {greedy}"
        text += f", alpha {report.held_out.alpha[0]:.3f}"
        if report.held_out.acceptance_length is not None:
            text += f", acceptance length {report.held_out.acceptance_length:.2f}"
    return text


def _features(model: str) -> Callable[[Any], Any]:
    """The target's own features of a text, by running it."""
    import numpy as np

    from slipstream.models.base import FeatureRequest
    from slipstream.models.loader import load_model

    target = load_model(model, EngineConfig()).target

    def recompute(tokens: Any) -> Any:
        handle = target.open()
        try:
            return np.asarray(
                target.prefill(handle, tokens, FeatureRequest(last=True)).features, np.float32
            )
        finally:
            target.close(handle)

    return recompute
