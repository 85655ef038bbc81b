"""A converted drafter and its model card, put into a repository of the hub.

Comes in: what was converted, the result, a shelf of the hub. Goes out: one commit. Asks no questions: who calls has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import dflash_gguf
from dflash_gguf.convert.card import CARD, card_values
from dflash_gguf.convert.model_card import CardFacts, CardFile, Repo, model_card, renewed
from dflash_gguf.errors import BenchError, HubError
from dflash_gguf.facts import anchor_first, drafter_kind, spec_type
from dflash_gguf.files import regular_size
from dflash_gguf.gguf_header import read_header
from dflash_gguf.hub.gguf_choice import SUFFIX, gguf_name
from dflash_gguf.hub.spec import HubSpec, parse_spec
from dflash_gguf.hub.upload import Shelf, put
from dflash_gguf.recipes.models import CHECKPOINT, Place, drafter_of
from dflash_gguf.schema import Keys

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dflash_gguf.convert.api import Result
    from dflash_gguf.convert.inputs import Inputs, Named
    from dflash_gguf.gguf_header import GGUFHeader

LICENCE: Final = ("license", "license_name", "license_link")
BENCH_LIMIT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Published:
    """The commit's address, and what the user should know of the card."""

    url: str
    notes: tuple[str, ...]


def shelf_name(text: str) -> str:
    """The repository that ``text`` names; raises `HubError` on anything more."""
    spec = parse_spec(text)
    if spec.revision is not None or spec.tag is not None:
        raise HubError("the repository to put files into", value=text, expected="ORG/REPO")
    return spec.repo


def read_bench(path: Path) -> Mapping[str, Any]:
    """What ``dflash-gguf bench --json`` printed into a file; raises `BenchError` when it is not that."""
    try:
        if regular_size(path) > BENCH_LIMIT:
            raise BenchError(f"`{path}`", expected=f"at most {BENCH_LIMIT} bytes")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise BenchError(f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("settings"), list):
        raise BenchError(f"`{path}` holds no measurement", expected="what `dflash-gguf bench --json` prints")
    return value


def publish(shelf: Shelf, inputs: Inputs, result: Result, bench: Mapping[str, Any] | None = None) -> Published:
    """Put the file and its card there, in one commit; raises `HubError` or `BenchError`."""
    facts = card_facts(shelf, inputs, result)
    files = _files(shelf, result)
    old = shelf.text(CARD)
    card = model_card(facts, files, bench) if old is None else renewed(old, files, bench)
    sources: dict[str, Path | bytes] = {result.path.name: result.path}
    if card is not None:
        sources[CARD] = card.encode()
    note = f"the {CARD} of `{shelf.repo}` is not of dflash-gguf's making, and was left as it is"
    url = put(shelf, sources, f"Add {result.path.name}")
    return Published(url, () if card is not None else (note,))


def card_facts(shelf: Shelf, inputs: Inputs, result: Result) -> CardFacts:
    """What the card says of the file that was written."""
    header = read_header(result.path)
    kind, first = drafter_kind(header.tensors), anchor_first(header)
    source, target = _repo(shelf, inputs.drafter), _target(shelf, inputs, header)
    place = Place(CHECKPOINT, hub=None if source is None else HubSpec(source.name))
    drafter = drafter_of(header, place)
    card = card_values(inputs.folder)
    return CardFacts(
        repo=shelf.repo,
        title=header.string(Keys.NAME),
        drafter=drafter,
        spec_type=spec_type(kind, anchor_first=first),
        type=result.quant,
        versions=_versions(),
        target_title=inputs.target.title,
        source=source,
        target=target,
        ggufs=inputs.named.place if inputs.named.file else None,
        licence={key: card[key] for key in LICENCE if isinstance(card.get(key), str)},
    )


def _repo(shelf: Shelf, named: Named) -> Repo | None:
    if named.commit is None:
        return None
    return Repo(named.place, f"{shelf.hub.endpoint}/{named.place}", named.commit)


def _target(shelf: Shelf, inputs: Inputs, header: GGUFHeader) -> Repo | None:
    """The target as its authors publish it: a repository of GGUFs is not that, but the drafter may have named it."""
    if inputs.named.commit is not None and inputs.named.file is None:
        return _repo(shelf, inputs.named)
    url = header.string("general.base_model.0.repo_url", "")
    return Repo("/".join(url.split("/")[-2:]), url) if url.startswith("https://") else None


def _files(shelf: Shelf, result: Result) -> list[CardFile]:
    """The drafters of the repository, this one among them, by name."""
    held = shelf.listing.files.values() if shelf.listing is not None else ()
    files = {file.path: CardFile(file.path, gguf_name(file.path).tag, file.size) for file in held}
    files[result.path.name] = CardFile(result.path.name, result.quant, result.n_bytes)
    return [file for name, file in sorted(files.items()) if name.endswith(SUFFIX)]


def _versions() -> str:
    from llama_cpp import llama_version

    return f"{dflash_gguf.__version__} with llama.cpp {llama_version().decode()}"
