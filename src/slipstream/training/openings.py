"""Beginnings of user turns: what a model is made to ask itself, so that all tasks occur.

Left alone, an instruct model asks the same few kinds of question. Half of the turns are left alone;
the others begin with a few words of a task, and the model goes on.
"""

from __future__ import annotations

from typing import Final

_TASKS: Final = (
    "Translate the following German text to English:",
    "Translate into English:",
    "Summarize the following article:",
    "Summarize:",
    "Give a short summary of this text:",
    "Answer the question based on the passage below.\n\nPassage:",
    "Use the documents to answer the question.\n\nDocument 1:",
    "Solve this problem step by step:",
    "How many",
    "If a",
    "What is the",
    "Who was",
    "When did",
    "Why do",
    "Explain",
    "Describe",
    "Write a Python function that",
    "Write an email",
    "Write a short story about",
    "Rewrite the following",
    "Compose",
    "List",
    "Compare",
    "Extract",
    "Imagine you are",
    "Can you",
    "Give me",
    "Fix the mistakes in this text:",
)

OPENINGS: Final[tuple[str, ...]] = ("",) * len(_TASKS) + _TASKS
