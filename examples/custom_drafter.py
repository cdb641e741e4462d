"""A drafter of your own: one small class, and whatever it guesses, the text stays exact.

This one believes that text repeats with the period of its last repeated token. Bad guesses cost
time, never quality: the rule accepts only what keeps the model's own distribution.

    python examples/custom_drafter.py [MODEL]
"""

import sys

from slipstream import Engine, SamplingParams
from slipstream.drafters.base import Stateless
from slipstream.types import Draft, PointMass


class Periodic(Stateless):
    """Copies from where the newest token stood the last time."""

    name = "periodic"

    def propose(self, sequences, budgets, draw):
        return [self._draft(s.tokens, b.depth) for s, b in zip(sequences, budgets, strict=True)]

    def _draft(self, tokens, depth):
        earlier = [i for i, token in enumerate(tokens[:-1]) if token == tokens[-1]]
        if not earlier or depth == 0:
            return Draft()  # an empty draft is always allowed: a plain step
        period = len(tokens) - 1 - earlier[-1]
        guesses = [tokens[len(tokens) - period + i % period] for i in range(depth)]
        # The receipt says how the tokens were chosen: here without randomness.
        return Draft.chain(guesses, [PointMass()] * depth)


model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
engine = Engine(model, drafter=Periodic(), k=4)
prompt = [{"role": "user", "content": "Count from 1 to 20 in words, one per line."}]
result = engine.generate(prompt, SamplingParams(max_tokens=80))
plain = Engine(engine.model, tokenizer=engine.tokenizer, drafter="none")

print(result.text)
print(f"accepted {result.stats.accepted} of {result.stats.drafted} guesses")
assert plain.generate(prompt, SamplingParams(max_tokens=80)).token_ids == result.token_ids
print("and the text is the one that the model writes alone")
