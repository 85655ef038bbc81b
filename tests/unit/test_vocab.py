"""A folder's tokenizer as keys: tokens and types, padding, roles, templates, and what is refused."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import tiny_folder
from tiny_vocab import CHAT_TEMPLATE, tokenizer_keys
from tokenizers import Tokenizer
from vocab_folder import PRE_TOKENIZERS as PRE_STEPS

from dflash_gguf.convert.encode import array, scalar
from dflash_gguf.convert.vocab import pre
from dflash_gguf.convert.vocab.files import TokenizerFiles, read_files
from dflash_gguf.convert.vocab.keys import tokenizer_table
from dflash_gguf.convert.vocab.merges import merge_lines
from dflash_gguf.convert.vocab.roles import read_roles
from dflash_gguf.convert.vocab.templates import template_keys
from dflash_gguf.convert.vocab.tokens import looks_special
from dflash_gguf.errors import CheckpointError
from dflash_gguf.padding import padding

if TYPE_CHECKING:
    from pathlib import Path

VOCAB = tiny_folder.VOCAB
NAME = "tokenizer.ggml."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny tokenizer whose digest is known."""
    made = tiny_folder.write_target_folder(tmp_path / "target")
    ids = Tokenizer.from_file(str(made / "tokenizer.json")).encode(pre.CHECK_TEXT).ids
    monkeypatch.setitem(pre.PRE_TOKENIZERS, hashlib.sha256(str(ids).encode()).hexdigest(), "gpt-2")
    return made


def table(folder: Path, rule: str = "bpe", size: int | None = VOCAB) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text())
    return {pair.key: pair for pair in tokenizer_table(read_files(folder, config), rule, size)}


def files(tokenizer: dict[str, Any], settings: dict[str, Any] | None = None, config: dict[str, Any] | None = None):
    return SimpleNamespace(tokenizer=tokenizer, settings=settings or {}, config=config or {})


def added(*texts: str) -> list[dict[str, Any]]:
    return [{"id": 10 + i, "content": text} for i, text in enumerate(texts)]


# ---------------------------------------------------------------- the whole table


def test_a_folder_gives_the_keys_of_the_gguf_that_it_was_made_from(folder: Path) -> None:
    keys = tokenizer_keys(VOCAB)
    expected = [
        scalar(NAME + "model", "string", "gpt2"),
        scalar(NAME + "pre", "string", "gpt-2"),
        array(NAME + "tokens", "string", keys[NAME + "tokens"]),
        array(NAME + "token_type", "int32", keys[NAME + "token_type"]),
        array(NAME + "merges", "string", keys[NAME + "merges"]),
        scalar(NAME + "bos_token_id", "uint32", keys[NAME + "bos_token_id"]),
        scalar(NAME + "eos_token_id", "uint32", keys[NAME + "eos_token_id"]),
        scalar(NAME + "padding_token_id", "uint32", keys[NAME + "padding_token_id"]),
        scalar(NAME + "add_bos_token", "bool", keys[NAME + "add_bos_token"]),
        scalar("tokenizer.chat_template", "string", CHAT_TEMPLATE),
    ]
    assert list(table(folder).values()) == expected


def test_the_list_is_padded_to_the_models_rows(folder: Path) -> None:
    found = table(folder, size=VOCAB + 3)
    assert found[NAME + "tokens"].value[VOCAB:] == ("[PAD300]", "[PAD301]", "[PAD302]")
    assert found[NAME + "token_type"].value[VOCAB:] == (5, 5, 5)
    assert padding(found[NAME + "tokens"].value) == 3
    assert table(folder, "nemotron_h", VOCAB + 3)[NAME + "tokens"].count == 304
    assert table(folder, size=None)[NAME + "tokens"].count == VOCAB


def test_a_hole_is_padded_too(folder: Path) -> None:
    held = json.loads((folder / "tokenizer.json").read_text())
    held["model"]["vocab"] = {text: i for text, i in held["model"]["vocab"].items() if i != 262}
    held["model"]["merges"] = held["model"]["merges"][1:]
    tiny_folder.change(folder, "tokenizer.json", **held)
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(pre.CHECK_TEXT).ids
    pre.PRE_TOKENIZERS[pre.digest(ids)] = "gpt-2"
    found = table(folder)
    del pre.PRE_TOKENIZERS[pre.digest(ids)]
    assert (found[NAME + "tokens"].value[262], found[NAME + "token_type"].value[262]) == ("[PAD262]", 5)
    assert padding(found[NAME + "tokens"].value) == 0


def test_a_vocabulary_larger_than_its_model_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="vocab_size: got 299, expected from 300"):
        table(folder, size=VOCAB - 1)
    with pytest.raises(CheckpointError, match="vocab_size"):
        table(folder, size=1 << 31)


def test_types_of_added_tokens(folder: Path) -> None:
    held = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    more = [("plain", False), ("<|looks special|>", False), ("\u2581blank", False), ("special", True)]
    held += [flags | {"id": VOCAB + i, "content": text, "special": special} for i, (text, special) in enumerate(more)]
    tiny_folder.change(folder, "tokenizer.json", added_tokens=held)
    found = table(folder, size=None)
    assert found[NAME + "tokens"].value[VOCAB:] == ("plain", "<|looks special|>", " blank", "special")
    assert found[NAME + "token_type"].value[VOCAB:] == (4, 3, 4, 3)


def test_tokens_that_only_the_settings_name(folder: Path) -> None:
    rows = {"301": {"content": "<two>", "special": False}, "300": {"content": "<one>", "special": True}}
    tiny_folder.change(folder, "tokenizer_config.json", added_tokens_decoder=rows, unk_token="<unk>")  # noqa: S106
    found = table(folder, size=None)
    assert found[NAME + "tokens"].value[VOCAB:] == ("<one>", "<two>", "<unk>")
    assert found[NAME + "token_type"].value[VOCAB:] == (3, 4, 3)


def test_truncation_and_padding_of_the_file_do_not_count(folder: Path) -> None:
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    tiny_folder.change(folder, "tokenizer.json", truncation=cut)
    assert table(folder)[NAME + "pre"].value == "gpt-2"


# ---------------------------------------------------------------- rules of architectures


def test_llama_says_whether_a_blank_goes_first(folder: Path) -> None:
    tiny_folder.change(folder, "tokenizer_config.json", add_prefix_space=False)
    found = table(folder, "llama")
    assert next(iter(found)) == NAME + "add_space_prefix"
    assert found[NAME + "add_space_prefix"].value is False
    small = table(folder, "llama", 49152)
    assert small[NAME + "add_bos_token"].value is False


def test_muse_has_an_end_of_turn(folder: Path) -> None:
    assert NAME + "eot_token_id" not in table(folder, "muse_glimmer")
    held = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    held[4]["content"] = "<|eot|>"
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]
    vocab["vocab"] = {"<|eot|>" if i == 4 else text: i for text, i in vocab["vocab"].items()}
    tiny_folder.change(folder, "tokenizer.json", added_tokens=held, model=vocab)
    assert table(folder, "muse_glimmer")[NAME + "eot_token_id"].value == 4


def test_minimax_prefers_the_template_file(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("from the file")
    assert table(folder)["tokenizer.chat_template"].value == CHAT_TEMPLATE
    assert table(folder, "minimax_01")["tokenizer.chat_template"].value == "from the file"


def test_glm_names_its_tokens(folder: Path) -> None:
    extra = ["[gMASK]", "<|user|>", "<|endoftext|>", "<|observation|>"]
    tiny_folder.change(folder, "tokenizer_config.json", additional_special_tokens=extra, bos_token=None)
    found = table(folder, "glm", None)
    roles = [f"{NAME}{role}_token_id" for role in ("eos", "padding", "bos", "eot", "unknown", "eom")]
    assert [key for key in found if key.endswith("_token_id")] == roles
    assert [found[key].value for key in roles] == [1, 5, 300, 301, 302, 303]


@pytest.mark.parametrize("rule", ["qwen", "llama"])
def test_a_sentencepiece_model_is_refused_by_name(rule: str, folder: Path) -> None:
    (folder / "tokenizer.model").write_bytes(b"spm")
    with pytest.raises(CheckpointError, match=r"tokenizer\.model.*pass the target's GGUF"):
        table(folder, rule)
    assert table(folder, "bpe")


def test_gemma4_needs_its_kind_of_tokenizer(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="not a Gemma 4 tokenizer"):
        table(folder, "gemma4")


# ---------------------------------------------------------------- pre-tokenizers


def test_an_unknown_pre_tokenizer_is_refused_with_its_digest(tmp_path: Path) -> None:
    made = tiny_folder.write_target_folder(tmp_path / "target")
    ids = Tokenizer.from_file(str(made / "tokenizer.json")).encode(pre.CHECK_TEXT).ids
    expected = hashlib.sha256(str(ids).encode()).hexdigest()
    with pytest.raises(CheckpointError, match=rf"pre-tokenizer: got '{expected}'.*pass the target's GGUF"):
        table(made)


def test_the_check_text_and_the_table_are_llama_cpps() -> None:
    assert hashlib.sha256(pre.CHECK_TEXT.encode()).hexdigest()[:16] == "a36179c1e2b1cfcf"
    assert len(pre.PRE_TOKENIZERS) == 95
    assert all(len(digest) == 64 for digest in pre.PRE_TOKENIZERS)
    assert set(PRE_STEPS) - {"mpt"} <= set(pre.PRE_TOKENIZERS.values())


def test_the_files_own_ends_go_before_guessed_ones() -> None:
    known = {pre.digest([1, 2]): "bare", pre.digest([0, 1, 2]): "with its first token"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pre, "PRE_TOKENIZERS", known)
        assert pre.recognise([[0, 1, 2], [1, 2]]) == "with its first token"
        assert pre.recognise([[9], [1, 2], [0, 1, 2]]) == "bare"


# ---------------------------------------------------------------- parts


def test_merges_of_both_forms() -> None:
    assert merge_lines({"merges": ["a b", "c d"]}) == ("a b", "c d")
    assert merge_lines({"merges": [["a", "b"], ["c d", " "]]}) == ("a b", "c\u0120d \u0120")
    assert merge_lines({}) == ()
    for wrong in ([1], [["a"]], [["a", "b", "c"]], ["a b", ["c", "d"]], "a b", {"a": 1}):
        with pytest.raises(CheckpointError, match="merges"):
            merge_lines({"merges": wrong})


@pytest.mark.parametrize(
    ("text", "special"),
    [
        ("<pad>", True),
        ("[@BOS@]", True),
        ("<|x|>", True),
        ("<\uff5cx\uff5c>", True),
        ("<unused12>", True),
        ("<x>", False),
        ("<|x>", False),
        ("", False),
    ],
)
def test_tokens_that_look_special(text: str, special: bool) -> None:
    assert looks_special(text) is special


def piece(kind: str, name: str) -> dict[str, Any]:
    return {kind: {"id": name, "type_id": 0}}


def template(single: list[str], pair: list[str]) -> dict[str, Any]:
    rows = [[piece("Sequence" if name in "AB" else "SpecialToken", name) for name in row] for row in (single, pair)]
    return {"type": "TemplateProcessing", "single": rows[0], "pair": rows[1]}


ROLES: list[tuple[str, Any, dict[str, Any], dict[str, int], dict[str, bool]]] = [
    ("bytes", {"type": "ByteLevel"}, {}, {}, {"bos": False, "eos": False}),
    (
        "settings win over nothing",
        None,
        {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True},
        {"bos": 10, "eos": 11},
        {"bos": True},
    ),
    (
        "a template that begins with the first token",
        template(["<s>", "A"], ["<s>", "A", "B"]),
        {"bos_token": "<s>", "add_bos_token": False},
        {"bos": 10},
        {"bos": True},
    ),
    (
        "a template that ends otherwise moves the end",
        template(["A", "<x>"], []),
        {"eos_token": "</s>"},
        {"eos": 12, "eot": 11},
        {"eos": True},
    ),
    (
        "a separator",
        template(["<s>", "A"], ["<s>", "A", "</s>", "B"]),
        {"bos_token": "<s>", "eos_token": "</s>"},
        {"bos": 10, "eos": 11, "sep": 11},
        {"bos": True, "sep": True},
    ),
    (
        "roberta",
        {"type": "RobertaProcessing", "sep": ["</s>", 11], "cls": ["<s>", 10]},
        {"bos_token": "<s>", "eos_token": "</s>"},
        {"bos": 10, "eos": 11, "sep": 11, "cls": 10},
        {"bos": True, "eos": True, "sep": True},
    ),
    (
        "a sequence of steps",
        {"type": "Sequence", "processors": [{"type": "ByteLevel"}, template(["<s>", "A"], [])]},
        {"bos_token": "<s>"},
        {"bos": 10},
        {"bos": True, "eos": False},
    ),
    ("class and separator stand in", None, {"cls_token": "<s>", "sep_token": "</s>"}, {}, {}),
    ("a token that is not there", None, {"bos_token": "<nowhere>"}, {}, {}),
]


@pytest.mark.parametrize(
    ("processor", "settings", "ids", "flags"), [row[1:] for row in ROLES], ids=[r[0] for r in ROLES]
)
def test_roles(processor: Any, settings: dict[str, Any], ids: dict[str, int], flags: dict[str, bool]) -> None:
    if "cls_token" in settings:
        ids = {"bos": 10, "eos": 11, "sep": 11, "cls": 10}
    tokenizer = {"post_processor": processor, "added_tokens": added("<s>", "</s>", "<x>")}
    roles = read_roles(files(tokenizer, settings))
    assert (roles.ids, roles.added) == (ids, flags)
    assert list(roles.ids) == list(ids)


def test_roles_of_the_config_come_last() -> None:
    config = {"bos_token_id": 3, "pad_token_id": -1, "eos_token_id": [1, 2], "text_config": {"unk_token_id": 4}}
    tokenizer = {"added_tokens": added("<s>")}
    assert read_roles(files(tokenizer, {"pad_token": "<s>"}, config)).ids == {"pad": 10, "bos": 3, "unk": 4}
    assert read_roles(files(tokenizer, {"pad_token": "<s>"}, config), n_vocab=4).ids == {"bos": 3}


def test_chat_templates(folder: Path) -> None:
    def keys(**settings: Any) -> list[tuple[str, Any]]:
        held = TokenizerFiles(folder, {}, {"x": 1} | settings, {})
        return [(pair.key, pair.value) for pair in template_keys(held)]

    assert keys(chat_template="one") == [("tokenizer.chat_template", "one")]
    several = [{"name": "default", "template": "d"}, {"name": "tool use", "template": "t"}, {"name": "empty"}]
    assert keys(chat_template=several) == [
        ("tokenizer.chat_template.tool_use", "t"),
        ("tokenizer.chat_templates", ("tool_use",)),
        ("tokenizer.chat_template", "d"),
    ]
    assert keys() == []
    (folder / "chat_template.json").write_text('{"chat_template": "in json"}')
    assert keys() == [("tokenizer.chat_template", "in json")]
    (folder / "chat_template.jinja").write_text("beside")
    assert keys() == [("tokenizer.chat_template", "beside")]
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("r")
    assert next(key for key, _ in keys()) == "tokenizer.chat_template.rag"
    assert keys(chat_template=None) == []
    with pytest.raises(CheckpointError, match="chat_template"):
        keys(chat_template=["text"])


# ---------------------------------------------------------------- broken files


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"type": "Unigram", "vocab": []}, "got 'Unigram', expected BPE"),
        ({"type": "BPE", "vocab": {"a": -1}, "merges": []}, "`model.vocab`"),
        ({"type": "BPE", "vocab": {"a": 1 << 40}, "merges": []}, "`model.vocab`"),
        ({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}, "one id to two tokens"),
        ({"type": "BPE", "vocab": {"a": True}, "merges": []}, "`model.vocab`"),
        ({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}, "describes no tokenizer"),
        ({"type": "BPE", "vocab": {"a": 0}, "merges": 7}, "describes no tokenizer"),
        ([], "`model`"),
        (None, "`model`"),
    ],
)
def test_broken_models(model: Any, message: str, folder: Path) -> None:
    tiny_folder.change(folder, "tokenizer.json", model=model)
    with pytest.raises(CheckpointError, match=message):
        table(folder)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("tokenizer.json", {"added_tokens": [{"id": "1", "content": "x"}]}, "`added_tokens`"),
        ("tokenizer.json", {"added_tokens": {"x": 1}}, "`added_tokens`"),
        ("tokenizer.json", {"pre_tokenizer": {"type": "None of ours"}}, "describes no tokenizer"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}, "`added_tokens_decoder`"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"7": {"content": 1}}}, "`added_tokens_decoder.7`"),
        ("tokenizer_config.json", {"added_tokens_decoder": []}, None),
    ],
)
def test_broken_parts(name: str, values: dict[str, Any], message: str | None, folder: Path) -> None:
    tiny_folder.change(folder, name, **values)
    if message is None:
        assert table(folder)
        return
    with pytest.raises(CheckpointError, match=message):
        table(folder)


def test_files_that_are_no_json(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        held = (folder / name).read_bytes()
        for text in (b"\xff\xfe", b"[]", b"{", b'{"a": 1, "a": 2}'):
            (folder / name).write_bytes(text)
            with pytest.raises(CheckpointError, match=name):
                table(folder)
        (folder / name).write_bytes(held)
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    tiny_folder.change(folder, "tokenizer_config.json", chat_template=None)
    with pytest.raises(CheckpointError, match="not UTF-8"):
        table(folder)
