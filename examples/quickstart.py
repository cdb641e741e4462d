"""The Python API in one page: generate, stream, compare with plain decoding, decode a batch.

python examples/quickstart.py [MODEL]
"""

import sys

from slipstream import Engine, SamplingParams

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
engine = Engine(model, drafter="prompt-lookup", k=5)

# A chat; the engine formats it with the model's own template.
chat = [{"role": "user", "content": "Repeat this list three times: red, green, blue."}]
params = SamplingParams(temperature=0.8, seed=7, max_tokens=60)

# Text as it is written. A piece never takes back what an earlier one showed.
stream = engine.stream(chat, params)
for piece in stream:
    print(piece.text, end="", flush=True)
stats = stream.result.stats
print(f"\n\n{stats.acceptance_length:.2f} tokens per target pass over {stats.cycles} passes")

# The same seed gives the same tokens without speculation, at any temperature.
plain = Engine(engine.model, tokenizer=engine.tokenizer, drafter="none")
assert plain.generate(chat, params).token_ids == stream.result.token_ids
print("plain decoding gives the same tokens")

# Several prompts share every pass, and each gets what it would get alone.
batch = engine.generate(["One, two, three,", "Monday, Tuesday,"], SamplingParams(max_tokens=12))
for result in batch:
    print(repr(result.text), result.finish_reason)
