"""The public surface: exactly these names, all of them loadable, all of them documented."""

from __future__ import annotations

import inspect

import pytest

import slipstream

PUBLIC = [
    "Engine",
    "EngineConfig",
    "Generation",
    "Piece",
    "RequestStats",
    "SamplingParams",
    "SlipstreamError",
    "SpeculationConfig",
    "Stream",
    "__version__",
]
"""Adding or removing a name here is an API change, and belongs into the CHANGELOG."""


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(slipstream.__all__) == sorted(PUBLIC)
    assert sorted(dir(slipstream)) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(slipstream, name) is getattr(slipstream, name)


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.startswith("_")])
def test_every_public_class_and_its_public_methods_are_documented(name: str) -> None:
    thing = getattr(slipstream, name)
    assert inspect.isclass(thing)
    assert thing.__doc__ and not thing.__doc__.startswith(f"{name}("), f"{name} says nothing"
    for attribute, member in vars(thing).items():
        if attribute.startswith("_") or not (
            inspect.isfunction(member) or isinstance(member, (property, classmethod))
        ):
            continue
        assert inspect.getdoc(member), f"{name}.{attribute} says nothing"


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'engines'"):
        slipstream.engines  # noqa: B018


def test_the_version_is_the_projects() -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("slipstream")
    except PackageNotFoundError:
        installed = slipstream.__version__  # run from a source tree
    assert slipstream.__version__ == installed
