"""Measures acceptance and cost on a user's own prompts, predicts, and checks its prediction."""
