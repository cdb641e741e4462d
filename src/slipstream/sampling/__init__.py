"""From logits to tokens: processors, processed distributions, and noise with addresses."""
