"""Machinery of the exactness tests: enumeration of shipped code, and goodness of fit.

Tests of other packages may use it as well: ``from tests.exactness.chi_square import fit``.
"""
