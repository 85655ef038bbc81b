"""The front matter of a model card: the keys between its first two lines of dashes, read with care.

Comes in: the path of a README. Goes out: a dict. Knows nothing of what the keys mean.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dflash_gguf.files import regular_size

if TYPE_CHECKING:
    from pathlib import Path

CARD: Final = "README.md"
CARD_LIMIT: Final = 1 << 20
FRONT_MATTER: Final = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)


def check_card(card: Path) -> None:
    """Raises ValueError on a card that would unfold to more than it holds, OSError on one that cannot be read.

    Readers of YAML follow aliases wherever they lead.
    """
    _matter(card)


def card_values(folder: Path) -> dict[str, Any]:
    """The keys of the folder's card; none when there is no card, or none that can be read."""
    yaml = import_module("yaml")
    try:
        matter = _matter(folder / CARD)
        values = yaml.safe_load(matter) if matter else {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return values if isinstance(values, dict) else {}


def _matter(card: Path) -> str:
    """The front matter's text, empty where there is none."""
    if not card.exists():
        return ""
    if regular_size(card) > CARD_LIMIT:
        raise ValueError(f"it is larger than {CARD_LIMIT} bytes")
    match = FRONT_MATTER.match(card.read_text(encoding="utf-8"))
    yaml = import_module("yaml")
    for event in yaml.parse(match[1], Loader=yaml.SafeLoader) if match else ():
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("its front matter has aliases")  # noqa: TRY004  not a type of a Python value
    return match[1] if match else ""
