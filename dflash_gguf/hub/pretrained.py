"""The two files of ``Llama.from_pretrained``.

Comes in: names of repositories and files, as llama_cpp takes them. Goes out: paths, downloaded. Knows nothing of what
they are loaded into.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_gguf.hub.client import hub as the_hub
from dflash_gguf.hub.conversions import Conversion
from dflash_gguf.hub.pairs import OnHub, find_drafter, find_target, several
from dflash_gguf.hub.spec import parse_spec

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from dflash_gguf.hub.client import Hub, Listing


def target_and_draft(
    target: tuple[str, str | None],
    draft: tuple[str | None, str | None],
    *,
    more: Sequence[str] = (),
    cache: str | os.PathLike[str] | None = None,
) -> tuple[Path, Path | None]:
    """The paths of both; each is named by a repository, and a file in it or a pattern that fits just one.

    ``more`` are patterns of further files of the target's repository. Raises `HubError`.
    """
    hub = the_hub()
    if cache is not None:
        hub = replace(hub, cache=Path(cache))
    model = find_target(hub, _asked(hub, *target))
    for pattern in more:
        hub.download(model.listing, _only(model.listing, pattern))
    if draft[0] is None:
        return model.fetch(), None
    drafter = find_drafter(hub, _asked(hub, draft[0], draft[1]), model)
    path = drafter.make()[0] if isinstance(drafter, Conversion) else drafter.fetch()
    return model.fetch(), path


def _asked(hub: Hub, repo: str, pattern: str | None) -> OnHub:
    spec = parse_spec(repo)
    if pattern is None:
        return OnHub(spec)
    return OnHub(spec, _only(hub.listing(spec.repo, spec.revision), pattern))


def _only(listing: Listing, pattern: str) -> str:
    found = [path for path in listing.files if fnmatchcase(path, pattern)]
    if len(found) > 1:
        several(f"`{listing.repo}` has several files that fit `{pattern}`", found, "write more of the name")
    if not found:
        several(f"`{listing.repo}` has no file that fits `{pattern}`, but these", list(listing.files), "name one")
    return found[0]
