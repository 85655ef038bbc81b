"""The page at ``/``: one file, and the headers that let it do what it does and no more.

Comes in: nothing. Goes out: a response. Knows nothing of models; the page asks the other routes itself.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final

from starlette.responses import Response

_FILE: Final = "page.html"
_POLICY: Final = (
    "default-src 'none'",
    "script-src {script}",
    "style-src {style}",
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
"""Nothing but this file's own script and style runs, both named by their hashes; no text can become markup."""


def page() -> Response:
    """The page, with its Content-Security-Policy."""
    text = (files("dflash_gguf.serve") / _FILE).read_text("utf-8")
    policy = "; ".join(_POLICY).format(script=_source(text, "script"), style=_source(text, "style"))
    headers = {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }
    return Response(text, media_type="text/html", headers=headers)


def _source(text: str, element: str) -> str:
    """The one ``element`` of the page, as a policy names it."""
    inside = text.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
    digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    return f"'sha256-{digest}'"
