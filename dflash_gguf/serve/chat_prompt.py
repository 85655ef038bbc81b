"""A chat's request, understood: its prompt, what its answer must be, and who reads the answer.

Comes in: checked fields, and a session. Goes out: token ids, keywords for `Session.generate`, and a parser. Raises
ApiError for what a request's own fields get wrong, and other errors of ours for what the session says of its messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.errors import SessionError, TemplateError
from dflash_gguf.runner import thinking
from dflash_gguf.runner.chat import tokenize_prompt
from dflash_gguf.runner.conversation import mark_ids
from dflash_gguf.serve import messages, tool_calls
from dflash_gguf.serve.answer import AnswerParser
from dflash_gguf.serve.errors import ApiError, of_request
from dflash_gguf.serve.grammars import HARMONY, after_thinking, literal, rules_of
from dflash_gguf.serve.response_format import FIELD, schema_of
from dflash_gguf.serve.tool_calls.forced import PLANS
from dflash_gguf.serve.tools import Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dflash_gguf.runner.chat import ChatTemplate
    from dflash_gguf.runner.session import Session
    from dflash_gguf.serve.tool_calls.forced import Plan
    from dflash_gguf.serve.tool_calls.form import Form

PASSED: Final = "calls of functions are left in the text: how the target's chat template writes them is not read here"
_FINAL: Final = "<|channel|>final<|message|>"


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """``options``: keywords of `Session.generate`; ``notes``: what the client is told beside the answer."""

    ids: list[int]
    options: Mapping[str, Any]
    parser: AnswerParser
    notes: tuple[str, ...] = ()


def chat_prompt(session: Session, values: Mapping[str, Any], check: Callable[[list[int]], None]) -> ChatPrompt:
    """Of a chat's checked fields. ``check`` refuses prompts, before a grammar is made of functions that one holds."""
    offer, template = Offer.of(values), session.template
    if offer.forced and (other := next((name for name in ("grammar", "json_schema") if name in values), None)):
        raise ApiError(f"`tool_choice` and `{other}`", param="tool_choice", expected="one of the two")
    if offer.listed and not template.reads("tools"):
        remedy = 'leave them out, or make `tool_choice` "none"'
        raise ApiError("the target's chat template knows no tools", param="tools", remedy=remedy)
    schema = schema_of(values)
    variables = _variables(template, values)
    tools = messages.described(offer.listed, template)
    prompt = messages.rendered(
        values["messages"],
        template,
        lambda found: session.render(found, chat_template_kwargs=variables, tools=tools),
    )
    ids = tokenize_prompt(session.vocabulary, prompt)
    check(ids)
    calls, thoughts = tool_calls.form_of(template.source), thinking.form_of(template.source)
    marks = (*(thoughts.marks if thoughts else ()), *(calls.spelt if calls and offer.listed else ()))
    options: dict[str, Any] = {"spelt_token_ids": mark_ids(session, marks)}
    grammar = _grammar(offer, schema, calls, thoughts, prompt)
    if grammar is not None:
        options |= {"grammar": grammar, "json_schema": None}
    return ChatPrompt(
        ids,
        options,
        AnswerParser(template.source, prompt, offer.schemas),
        (PASSED,) if offer.listed and calls is None else (),
    )


def _variables(template: ChatTemplate, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the template's own variables; ``chat_template_kwargs`` win over ``reasoning_effort``.

    Of ``chat_template_kwargs`` those count that the template reads: clients send all that any template knows.
    """
    try:
        effort = template.effort(values["reasoning_effort"]) if "reasoning_effort" in values else {}
    except TemplateError as error:
        raise of_request(error, "reasoning_effort") from error
    given = {name: value for name, value in values.get("chat_template_kwargs", {}).items() if template.reads(name)}
    try:
        template.check(given)
    except TemplateError as error:
        raise of_request(error, "chat_template_kwargs") from error
    return {**effort, **given}


def _grammar(
    offer: Offer, schema: Mapping[str, Any] | None, calls: Form | None, thoughts: thinking.Form | None, prompt: str
) -> str | None:
    """What the answer must be: a call, JSON, or either."""
    if schema is None and not offer.forced:
        return None
    plan = _plan(offer, calls)
    wanted = [*(plan.schemas if plan else ()), *((schema,) if schema is not None and not offer.forced else ())]
    try:
        names, rules = rules_of(wanted)
    except SessionError as error:
        raise of_request(error, FIELD if schema is not None else "tools") from error
    bodies = []
    if plan is not None:
        body = plan.body(names[: len(plan.schemas)])
        rules += [*plan.rules, f"dflash-call ::= {body}"]
        several = offer.many and calls is not None and calls.marks
        bodies.append('dflash-call ( "\\n"? dflash-call )*' if several else "dflash-call")
    if schema is not None and not offer.forced:
        opening = f"{literal(_FINAL)} " if thoughts and thoughts.sign == HARMONY else ""
        bodies.append(opening + names[-1])
    return after_thinking(f"( {' | '.join(bodies)} )", rules, thoughts, prompt)


def _plan(offer: Offer, calls: Form | None) -> Plan | None:
    """The part of the grammar that calls are written by; None where there are none to write."""
    if not offer.listed or (calls is None and not offer.forced):
        return None
    if calls is None:
        raise ApiError(
            "`tool_choice`",
            param="tool_choice",
            value="a function that must be called",
            expected="a chat template whose calls are read here",
            remedy='make it "auto"',
        )
    return PLANS[calls.name]({name: offer.schemas[name] for name in offer.forced or offer.schemas})
