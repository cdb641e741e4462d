"""Prompts to measure with: six tasks of our own, or a file of questions.

A question file has one JSON object a line with ``turns`` (a list of user messages, of which the
first is asked) and ``category``, the format of Spec-Bench (Xia et al. 2401.07851).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

CONVERSATION = (
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
)


@dataclass(frozen=True)
class Question:
    """One user message and the task it belongs to."""

    task: str
    text: str

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.text}]


_REPORT = (
    "The Harbour Street bridge was closed on Monday after an inspection found cracks in two of "
    "its eleven supports. The city's engineer, Maria Oduya, said that they date from 1934 and "
    "were last repaired in 1988. Buses are diverted over Mill Lane, which adds twelve minutes "
    "to the journey. The council expects the repair to take nine weeks and to cost 1.4 million. "
    "Shop owners in Harbour Street fear for their Christmas trade and ask for a footbridge."
)
_MINUTES = (
    "Present: Lee, Amara, Jonas. The release was moved from the 4th to the 11th because the import "
    "of old accounts loses the time zone. Amara has a fix and needs two days for tests. Jonas will "
    "write to the three customers who asked for the date. Lee pointed out that the price page "
    "still shows last year's figures. Next meeting on Thursday at ten."
)
_CODE = (
    "def totals(rows):\n    out = {}\n    for r in rows:\n        if r['kind'] in out:\n"
    "            out[r['kind']] = out[r['kind']] + r['amount']\n        else:\n"
    "            out[r['kind']] = r['amount']\n    return out\n"
)
_PASSAGES = (
    "Passage 1: The Atacama lies between the Andes and the Pacific. Some of its weather stations "
    "have never recorded rain. Passage 2: Fog from the ocean, called camanchaca, is caught in nets "
    "by villages, which gain several litres of water a day from each square metre."
)

QUESTIONS = tuple(
    Question(task, text)
    for task, texts in {
        "conversation": (
            "Explain how photosynthesis works.",
            "Write a short story about a lighthouse keeper who finds a message in a bottle.",
            "What are the main differences between cats and dogs as pets?",
            "Give me a plan for learning to cook in four weeks.",
        ),
        "code": (
            f"Rewrite this function so that it uses collections.defaultdict:\n\n{_CODE}",
            f"Add type hints and a docstring to this function:\n\n{_CODE}",
            "Write a Python class for a stack with push, pop, peek and a length.",
        ),
        "translation": (
            "Translate into French: The train leaves at seven, and we have not packed yet.",
            "Translate into Spanish: My sister bought three red apples at the market.",
            "Translate into German: The book on the table belongs to my teacher.",
        ),
        "summarization": (
            f"Summarize the following text in two sentences: {_REPORT}",
            f"Turn these minutes into a list of who does what: {_MINUTES}",
            f"Write a headline and a one-paragraph summary: {_REPORT} {_MINUTES}",
        ),
        "math": (
            "A baker sells 14 loaves at 3 euros and 9 cakes at 12 euros. What does she take in?",
            "If a train goes 180 km in 2.5 hours, how far does it go in 4 hours? Show each step.",
            "List the first twelve square numbers and the difference between neighbours.",
        ),
        "retrieval": (
            f"{_PASSAGES} Using the passages, answer: how do villages in the Atacama get water?",
            f"{_REPORT} According to the text, how long will the repair take, and at what cost?",
            f"{_MINUTES} Who will write to the customers, and why?",
        ),
    }.items()
    for text in texts
)


def load(path: Path | None, limit: int | None = None) -> list[Question]:
    """Questions of a file, or ours; ``limit`` takes as many, spread evenly over the file."""
    if path is None:
        questions = list(QUESTIONS)
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        entries = [json.loads(line) for line in lines if line.strip()]
        questions = [Question(_task(entry["category"]), entry["turns"][0]) for entry in entries]
    if limit is not None and limit < len(questions):
        questions = [questions[i * len(questions) // limit] for i in range(limit)]
    return questions


def _task(category: str) -> str:
    return "conversation" if category in CONVERSATION else category
