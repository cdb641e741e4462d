"""The sandbox in which chat templates run: transformers' rules for white space, filters and tags.

jinja2's immutable sandbox with ``trim_blocks`` and ``lstrip_blocks``, loop controls, a ``tojson``
that escapes no HTML, ``raise_exception``, ``strftime_now`` and the ``generation`` tag.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from slipstream.errors import InvalidInput


def compile_template(source: str) -> jinja2.Template:
    """Compile a chat template.

    Raises:
        InvalidInput: its syntax is broken.
    """
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise InvalidInput(f"the model's chat template is broken: {error}") from error


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}`` … ``{% endgeneration %}`` marks what to train on; here only a frame."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's interface)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # jinja2's own filter escapes HTML characters, which models were never trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
