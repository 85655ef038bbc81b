"""The OpenAPI document: made of the tables that requests are checked by, and of the shapes of answers.

Comes in: nothing. Goes out: a plain dictionary. What it says of a body is what `fields` checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import dflash_gguf
from dflash_gguf.serve import requests
from dflash_gguf.serve.errors import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dflash_gguf.serve.fields import Fields

Schema = dict[str, Any]

_NUMBER: Final[Schema] = {"type": "number"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXT: Final[Schema] = {"type": "string"}
_REASON: Final[Schema] = {"enum": ["stop", "length", "tool_calls"]}


def _object(properties: Mapping[str, Schema], *optional: str) -> Schema:
    needed = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": needed}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_DRAFTED: Final = {
    **_list({"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2}),
    "description": "Spans [start, end) of the text, in code points, that come from accepted drafts.",
}
_CALL: Final = _object(
    {"id": _TEXT, "type": {"const": "function"}, "function": _object({"name": _TEXT, "arguments": _TEXT})}
)
_MESSAGE: Final = _object(
    {
        "role": {"const": "assistant"},
        "content": _or_null(_TEXT),
        "reasoning_content": _TEXT,
        "tool_calls": _list(_CALL),
    },
    "reasoning_content",
    "tool_calls",
)


def _choice(name: str, schema: Schema) -> Schema:
    return _object(
        {
            "index": {"const": 0},
            name: schema,
            "logprobs": _or_null({"type": "object"}),
            "finish_reason": _REASON,
            "drafted": _DRAFTED,
        },
        "drafted",
    )


def _answer(kind: str, choice: Schema) -> Schema:
    return _object(
        {
            "id": _TEXT,
            "object": {"const": kind},
            "created": _COUNT,
            "model": _TEXT,
            "choices": {**_list(choice), "minItems": 1, "maxItems": 1},
            "usage": _ref("Usage"),
            "timings": _ref("Timings"),
            "meta_info": {"type": "object"},
            "warnings": _list(_TEXT),
        },
        "meta_info",
        "warnings",
    )


_SCHEMAS: Final[dict[str, Schema]] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "message": _TEXT,
                    "type": {"enum": sorted(set(KINDS.values()))},
                    "param": _or_null(_TEXT),
                    "code": _or_null(_TEXT),
                }
            )
        }
    ),
    "Usage": _object(
        {
            "prompt_tokens": _COUNT,
            "completion_tokens": _COUNT,
            "total_tokens": _COUNT,
            "prompt_tokens_details": _object({"cached_tokens": _COUNT}),
        }
    ),
    "Timings": {
        **_object(
            {
                "cache_n": _COUNT,
                "prompt_n": _COUNT,
                "prompt_ms": _NUMBER,
                "prompt_per_second": _NUMBER,
                "predicted_n": _COUNT,
                "predicted_ms": _NUMBER,
                "predicted_per_second": _NUMBER,
                "draft_n": _COUNT,
                "draft_n_accepted": _COUNT,
            }
        ),
        "description": "As llama-server's; times in milliseconds.",
    },
    "ChatCompletion": _answer("chat.completion", _choice("message", _MESSAGE)),
    "Completion": _answer("text_completion", _choice("text", _TEXT)),
    "Model": _object(
        {
            "id": _TEXT,
            "object": {"const": "model"},
            "created": _COUNT,
            "owned_by": _TEXT,
            "meta": _object({"n_vocab": _COUNT, "n_ctx": _COUNT, "drafter": _or_null(_TEXT)}),
        }
    ),
    "Models": _object({"object": {"const": "list"}, "data": _list(_ref("Model"))}),
    "Health": _object({"status": {"const": "ok"}}),
    "Tokens": _object(
        {
            "tokens": _list(
                {"anyOf": [_COUNT, _object({"id": _COUNT, "piece": {"anyOf": [_TEXT, _list(_COUNT)]}})]},
            )
        }
    ),
    "Content": _object({"content": _TEXT}),
}

_STATUSES: Final[dict[int, str]] = {
    400: "The body is no JSON, a field is wrong, or the prompt does not fit the context.",
    401: "The API key is missing or wrong.",
    403: "A web page of another origin asks, or the server is called by a name that is not its own.",
    404: "There is no such model.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    429: "The queue is full, or too many large bodies are being read; Retry-After says when to try again.",
    500: "The server failed.",
    503: "The server is shutting down.",
    504: "The answer took too long.",
}
_ALWAYS: Final = (403, 500)
_BODY: Final = (400, 401, 408, 413, 429)
_ANSWER: Final = (503, 504)
_STREAM: Final = "The answer; where `stream` is true server-sent events, each a chunk, and at the end [DONE]."


def document() -> Schema:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "dflash-gguf", "version": dflash_gguf.__version__, "license": {"name": "MIT"}},
        "paths": {
            "/health": {"get": _route("Whether answers are written.", "Health", (503,), open_=True)},
            "/metrics": {"get": _text_route("Counts for Prometheus.")},
            "/v1/models": {"get": _route("The one model.", "Models", (), open_=True)},
            "/v1/models/{model}": {"get": {**_route("The one model.", "Model", (401, 404)), "parameters": [_NAME]}},
            "/v1/chat/completions": {"post": _answers("The answer to a chat.", requests.CHAT, "ChatCompletion", _CHAT)},
            "/v1/completions": {"post": _answers("What follows a text.", requests.COMPLETION, "Completion", _PROMPT)},
            "/tokenize": {"post": _posted("Text to token ids.", requests.TOKENIZE, "Tokens", {"content": "Hello"})},
            "/detokenize": {"post": _posted("Token ids to text.", requests.DETOKENIZE, "Content", {"tokens": [9, 10]})},
        },
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


_CHAT: Final[Schema] = {"messages": [{"role": "user", "content": "Count from 1 to 10."}], "max_tokens": 32}
_PROMPT: Final[Schema] = {"prompt": "1, 2, 3, 4,", "max_tokens": 16}
_NAME: Final[Schema] = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _route(summary: str, answer: str, statuses: tuple[int, ...], *, open_: bool = False) -> Schema:
    refusals = {str(n): _refusal(n) for n in sorted({*statuses, *_ALWAYS})}
    responses = {"200": {"description": "Done.", "content": _json(_ref(answer))}, **refusals}
    return {"summary": summary, "responses": responses, **({"security": []} if open_ else {})}


def _text_route(summary: str) -> Schema:
    content = {"text/plain": {"schema": {"type": "string"}}}
    refusals = {str(n): _refusal(n) for n in (401, *_ALWAYS)}
    return {"summary": summary, "responses": {"200": {"description": "Done.", "content": content}, **refusals}}


def _posted(summary: str, fields: Fields, answer: str, example: Schema, more: tuple[int, ...] = ()) -> Schema:
    content = {"application/json": {"schema": fields.schema, "example": example}}
    body = {"required": True, "content": content}
    return {**_route(summary, answer, (*_BODY, *more)), "requestBody": body}


def _answers(summary: str, fields: Fields, answer: str, example: Schema) -> Schema:
    found = _posted(summary, fields, answer, example, _ANSWER)
    found["responses"]["200"]["content"] |= {"text/event-stream": {}}
    found["responses"]["200"]["description"] = _STREAM
    return found


def _refusal(status: int) -> Schema:
    found: Schema = {"description": _STATUSES[status], "content": _json(_ref("Error"))}
    if status in (429, 503):
        found["headers"] = {"Retry-After": {"schema": _COUNT}}
    return found
