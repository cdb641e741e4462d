"""Rules that judge drafts: distributions and random numbers in, accepted path and a token out."""
