from tests.exactness.enumeration import enumerable  # noqa: F401
