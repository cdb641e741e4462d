"""Tests of the compiled core; an installation without it has nothing to test here."""

from __future__ import annotations

from slipstream import kernels

collect_ignore_glob = [] if kernels.available() else ["test_*.py"]
