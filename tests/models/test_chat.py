"""Chat templates: what transformers renders, and clear refusals."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from slipstream.errors import InvalidInput
from slipstream.models.chat import ChatTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CHAT = [
    {"role": "system", "content": 'Be <brief> & "clear".'},
    {"role": "user", "content": "Grüße, 漢字\n"},
    {"role": "assistant", "content": "ok", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"a": ["<", 1.5, None]}}}]

TEMPLATES = {
    "white space": "{% for m in messages %}\n  {% if loop.first %}\n{{ bos_token }}\n"
    "  {% endif %}\n{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}\n",
    "tojson": "{{ messages | tojson }} {{ tools | tojson(indent=2) }} {{ messages[1] | tojson }}",
    "loop controls": "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}"
    "{{ m.role }}{% break %}{% endfor %}",
    "generation tag": "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{{ ns.n }}{% if add_generation_prompt %}!{% endif %}",
    "undefined": "{% if custom is defined %}{{ custom }}{% endif %}{{ nothing }}{{ eos_token }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("variables", [{}, {"custom": "given", "add_generation_prompt": False}])
def test_rendered_text_is_that_of_transformers(name: str, variables: dict[str, Any]) -> None:
    options = {"add_generation_prompt": True, **variables}
    ours = ChatTemplate(TEMPLATES[name], SPECIAL).render(CHAT, tools=TOOLS, **options)
    rendered, _ = render_jinja_template(
        conversations=[CHAT], tools=TOOLS, chat_template=TEMPLATES[name], **SPECIAL, **options
    )
    assert ours == rendered[0]


def test_the_date_is_today() -> None:
    text = ChatTemplate("{{ strftime_now('%Y') }}", {}).render(CHAT)
    assert abs(int(text) - datetime.now().year) <= 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "broken"),
        ("{{ messages[0].content + 1 }}", "doesn't take"),
        ("{{ nothing.more }}", "doesn't take"),
        ("{{ ''.__class__.__mro__ }}", "doesn't take"),
        ("{{ messages.append(1) }}", "doesn't take"),
        ("{% for i in range(10000000) %}{% endfor %}", "doesn't take"),
    ],
)
def test_templates_that_fail_say_why(source: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        ChatTemplate(source, {}).render(CHAT)


@pytest.mark.parametrize(
    "messages",
    [[], "hello", {"role": "user"}, ["hello"], [{"content": "x"}], [{"role": 3, "content": "x"}]],
)
def test_malformed_conversations_are_refused(messages: Any) -> None:
    with pytest.raises(InvalidInput, match="message"):
        ChatTemplate("x", {}).render(messages)


def test_objects_are_kept_out_of_the_sandbox() -> None:
    with pytest.raises(InvalidInput, match="may hold text"):
        ChatTemplate("x", {}).render([{"role": "user", "content": object()}])
