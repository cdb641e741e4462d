"""How many threads the compiled core starts by default: one per physical core it may use.

Two hyperthreads of a core share its vector units and its caches, so the second one adds heat, not
speed. Knows Linux's topology files and macOS's sysctl; elsewhere it counts what the system counts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def physical_cores(topology: Path = _TOPOLOGY) -> int:
    """Physical cores that this process may run on, at least one."""
    if hasattr(os, "sched_getaffinity"):
        usable = os.sched_getaffinity(0)
        siblings = set()
        for cpu in usable:
            try:
                path = topology / f"cpu{cpu}" / "topology" / "thread_siblings_list"
                siblings.add(path.read_text(encoding="ascii").strip())
            except OSError:
                return len(usable)
        return len(siblings)
    if sys.platform == "darwin":
        import subprocess

        query = ["sysctl", "-n", "hw.physicalcpu"]
        answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
        if answer.isdigit():
            return max(1, int(answer))
    return os.cpu_count() or 1
