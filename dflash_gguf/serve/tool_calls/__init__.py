"""Calls of functions in an answer's text: which way of writing them a chat template has, and their readers."""

from __future__ import annotations

from typing import Final

from dflash_gguf.serve.tool_calls import gemma_calls, harmony, json_calls, xml_calls
from dflash_gguf.serve.tool_calls.form import Form

FORMS: Final = (
    harmony.FORM,
    Form(
        "gemma4",
        ("<|tool_call>call:",),
        gemma_calls.read,
        {gemma_calls.OPENING: gemma_calls.CLOSING},
        quotes=(gemma_calls.QUOTE,),
        in_thoughts=True,
    ),
    Form(
        "xml",
        ("<tool_call>", "<function=", "<parameter="),
        xml_calls.read,
        {xml_calls.OPENING: xml_calls.CLOSING, xml_calls.FUNCTION: xml_calls.FUNCTION_END},
        in_thoughts=True,
    ),
    Form(
        "json",
        ("<tool_call>", "name", "arguments"),
        json_calls.read,
        {json_calls.OPENING: json_calls.CLOSING},
        unlike=("<arg_key>", "<function=", "<invoke", "<tool_calls>"),
    ),
)
"""Tried in this order. A template that fits none leaves calls in the text."""


def form_of(template: str) -> Form | None:
    """How the model of ``template`` writes calls; None: not in a way that is read here."""
    return next((form for form in FORMS if form.fits(template)), None)
