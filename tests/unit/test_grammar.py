"""Grammars: draws under them, and grammars and schemas that are none."""

import json
import math
import re

import numpy as np
import pytest
from choices import OFF, filters_of, p_value, softmax
from tiny_vocab import EOS_ID, EOT_ID

from dflash_gguf import DflashError, _core
from dflash_gguf.errors import SessionError
from dflash_gguf.runner.bounds import LONGEST_GRAMMAR, LONGEST_SCHEMA
from dflash_gguf.runner.json_schema import MOST_REPEATED, gbnf_of, unenforced
from dflash_gguf.runner.models import Model
from dflash_gguf.runner.sampling import Sampling
from dflash_gguf.runner.vocabulary import Vocabulary

N_VOCAB = 512
N_DRAWS = 6000


@pytest.fixture(scope="module")
def vocabulary(tiny_target):
    model = Model(tiny_target)
    yield Vocabulary(model)
    model.close()


@pytest.fixture
def open_(vocabulary):
    """A sampler with a grammar, by native settings."""

    def make(grammar, seed=1, **values):
        return _core.Sampler(N_VOCAB, filters_of(**values), seed, grammar=grammar, vocab=vocabulary.address)

    return make


def row_of(seed, scale=2.0):
    return (np.random.default_rng(seed).standard_normal(N_VOCAB) * scale).astype(np.float32)


def ids_of(vocabulary, text):
    return vocabulary.tokenize(text, add_special=False, parse_special=False)


def spelled(vocabulary, ids):
    return b"".join(vocabulary.piece(i) for i in ids).decode()


def allowed_by(vocabulary, pattern):
    """Ids whose whole text is a beginning of what ``pattern`` matches."""
    texts = {i: vocabulary.piece(i) for i in range(6, N_VOCAB)}
    return [i for i, text in texts.items() if re.fullmatch(pattern, text)]


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 200},
        {"temperature": 1.0, "top_p": 0.9},
        {"temperature": 1.3, "min_p": 0.01},
    ],
    ids=str,
)
def test_under_a_grammar_choices_are_draws_from_what_it_allows_of_the_filtered_softmax(values, vocabulary, open_):
    settings, row = OFF | values, row_of(2)
    kept, temperature = _core.Filters(filters_of(**settings)).apply(row)
    allowed = [i for i in kept if i in set(allowed_by(vocabulary, rb"[a-m]{1,2}"))]
    assert 3 <= len(allowed) < len(kept)
    expected = np.zeros(N_VOCAB)
    expected[allowed] = softmax(row[allowed].astype(np.float64), temperature)
    chooser = open_("root ::= [a-m]{2}", **settings)
    counts = np.bincount([chooser.choose(row, pos) for pos in range(N_DRAWS)], minlength=N_VOCAB)
    assert p_value(counts, N_DRAWS * expected) > 1e-4
    expected[allowed] = softmax(row[allowed].astype(np.float64), temperature * 1.15)
    assert p_value(counts, N_DRAWS * expected) < 1e-4


def test_where_no_survivor_is_allowed_the_filters_see_what_is(vocabulary, open_):
    settings, row = OFF | {"top_k": 5, "temperature": 0.8}, row_of(3)
    allowed = allowed_by(vocabulary, rb"[0-9]")
    row[allowed] -= 20
    masked = np.full(N_VOCAB, -np.inf, np.float32)
    masked[allowed] = row[allowed]
    kept, temperature = _core.Filters(filters_of(**settings)).apply(masked)
    assert len(kept) == 5
    expected = np.zeros(N_VOCAB)
    expected[kept] = softmax(row[kept].astype(np.float64), temperature)
    chooser = open_("root ::= [0-9] [0-9]", **settings)
    counts = np.bincount([chooser.choose(row, pos) for pos in range(N_DRAWS)], minlength=N_VOCAB)
    assert p_value(counts, N_DRAWS * expected) > 1e-4


def test_without_temperature_the_best_that_is_allowed_is_taken(vocabulary, open_):
    allowed = allowed_by(vocabulary, rb"[xyz]")
    for seed in range(10):
        row = row_of(seed)
        assert open_("root ::= [xyz]{1}").choose(row, 0) == max(allowed, key=lambda i: row[i])


GRAMMARS = {
    r'root ::= ("yes" | "no") "."': r"(yes|no)\.",
    r"root ::= [0-9]{1,4} ([a-f] | [g-k])*": r"[0-9]{1,4}[a-k]*",
    'root ::= item+\nitem ::= "- " [a-z]+ "\\n"': r"(- [a-z]+\n)+",
    "root ::= [!-@]{3}": r"[!-@]{3}",
}


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("values", [{}, {"temperature": 1.0}, {"temperature": 1.5, "top_k": 4, "top_p": 0.5}], ids=str)
def test_texts_follow_their_grammar_to_its_end(grammar, values, vocabulary, open_):
    for seed in range(4):
        chooser, ids = open_(grammar, seed, **OFF | {"temperature": 0.0} | values), []
        for pos in range(40):
            row = row_of(1000 * seed + pos)
            row[[EOS_ID, EOT_ID]] += 4
            chosen = chooser.choose(row, pos)
            chooser.accept(chosen)
            if chosen in (EOS_ID, EOT_ID):
                assert re.fullmatch(GRAMMARS[grammar], spelled(vocabulary, ids))
                break
            ids.append(chosen)


def test_tokens_are_taken_back(vocabulary, open_):
    chooser = open_('root ::= "ab" [0-9]', temperature=1.0)
    a, b = ids_of(vocabulary, "a") + ids_of(vocabulary, "b")
    for n in (0, 1, 2):
        for token in (a, b, ids_of(vocabulary, "7")[0])[:n]:
            chooser.accept(token)
        chooser.truncate(0)
        with pytest.raises(DflashError, match=f"the grammar does not allow token {b} here"):
            chooser.accept(b)
    chooser.accept(a)
    chooser.accept(b)
    chooser.truncate(1)
    chooser.accept(b)
    assert spelled(vocabulary, [chooser.choose(row_of(1), 3)]).isdigit()


def test_an_empty_root_allows_the_end_alone(open_):
    for values in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3}):
        chooser = open_('root ::= ""', **values)
        end = chooser.choose(row_of(1), 0)
        assert end in (EOS_ID, EOT_ID)
        chooser.accept(end)
        with pytest.raises(DflashError, match="the grammar"):
            chooser.choose(row_of(1), 1)
        with pytest.raises(DflashError, match="does not allow"):
            chooser.accept(end)


def test_what_the_row_makes_impossible_is_told(vocabulary, open_):
    row = row_of(1)
    row[[*ids_of(vocabulary, "q"), *ids_of(vocabulary, "z")]] = -np.inf
    with pytest.raises(DflashError, match="the grammar allows no token"):
        open_("root ::= [qz]").choose(row, 0)
    with pytest.raises(DflashError, match="the grammar allows no token"):
        open_("root ::= <[99999999]>", temperature=1.0).choose(row, 0)


def made(vocabulary, **values):
    return Sampling(seed=1, **values).sampler(vocabulary, N_VOCAB, 256, [1])


BROKEN = {
    "no rule": "nonsense",
    "a comment": "# nothing",
    "no root": 'start ::= "a"',
    "another root": 'my-root ::= "a"',
    "an unknown rule": "root ::= other",
    "an open text": 'root ::= "abc',
    "an open group": 'root ::= ("a"',
    "left recursion": 'root ::= root "a" | "b"',
    "hidden left recursion": 'root ::= a "x"\na ::= b\nb ::= a | "y"',
    "empty without end": 'root ::= ("")*',
    "many repetitions": 'root ::= "a"{1000000000}',
    "a number without end": 'root ::= "a"{999999999999999999999999}',
    "an unknown escape": 'root ::= "\\x',
    "no such token": "root ::= <nosuch>",
    "behind the rules": 'root ::= "a"\nroot ::= "b" )\n',
    "deep, and open": "root ::= " + "(" * 60_000,
    "not ASCII at the cut": "root ::= " + "\u00e4\u20ac" * 40,
}


@pytest.mark.parametrize("grammar", BROKEN.values(), ids=BROKEN)
def test_grammars_that_libllama_does_not_take(grammar, vocabulary, capfd):
    with pytest.raises(SessionError) as raised:
        made(vocabulary, grammar=grammar)
    assert str(raised.value).startswith(f"libllama refuses the `grammar`: got '{grammar[:8]}")
    assert "no rule that begins with itself or repeats what may be empty" in str(raised.value)
    capfd.readouterr()


@pytest.mark.parametrize("grammar", ["", " \n", 'root ::= "a\0"', 'root ::= "\ud800"', 5, b"root", ["root"]], ids=ascii)
def test_what_is_no_grammar_at_all(grammar, vocabulary):
    with pytest.raises(SessionError, match=r"`grammar`: got .*expected a grammar in GBNF"):
        made(vocabulary, grammar=grammar)


def test_a_grammar_has_a_largest_size(vocabulary):
    with pytest.raises(SessionError, match=f"the `grammar`: got .*expected at most {LONGEST_GRAMMAR}"):
        made(vocabulary, grammar='root ::= "' + "a" * LONGEST_GRAMMAR + '"')


def test_a_schema_has_a_largest_size(vocabulary):
    schema = {"type": "null", "description": ""}
    room = LONGEST_SCHEMA - len(json.dumps(schema))
    assert made(vocabulary, json_schema={**schema, "description": "a" * room})
    with pytest.raises(
        SessionError, match=f"`json_schema`: got .*{LONGEST_SCHEMA + 1} characters.*at most {LONGEST_SCHEMA}"
    ):
        made(vocabulary, json_schema={**schema, "description": "a" * (room + 1)})


WIDE = {
    "deep": "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000,
    "a long chain": "root ::= a0\n" + "".join(f"a{i} ::= a{i + 1}\n" for i in range(9000)) + 'a9000 ::= "a"',
    "huge repetition": 'root ::= "a"{1,100000000}',
    "repeated repetition": 'root ::= ("a"{2000}){2000}',
    "stars of stars": 'root ::= ((("a"*)*)*)*',
    "many alternatives": "root ::= " + " | ".join(['"a"'] * 3000),
}


@pytest.mark.parametrize("grammar", WIDE.values(), ids=WIDE)
def test_grammars_that_are_large_but_sound(grammar, vocabulary, capfd):
    chooser = made(vocabulary, grammar=grammar)
    (a,) = ids_of(vocabulary, "a")
    row = row_of(1)
    row[a] = 50
    assert chooser.choose(row, 0) == a
    chooser.accept(a)
    assert chooser.choose(row, 1) in (a, EOS_ID, EOT_ID)
    chooser.truncate(0)
    assert chooser.choose(row, 0) == a, "taken back without parsing the text again, on whatever stack this is"
    capfd.readouterr()


def test_both_a_grammar_and_a_schema():
    with pytest.raises(SessionError, match="`grammar` and `json_schema`, expected one of the two"):
        Sampling(grammar='root ::= "a"', json_schema="{}")


NO_SCHEMAS = {
    "{": "is no JSON.*got '{', expected a JSON schema",
    "": "is no JSON",
    "[" * 100_000: "nests too deeply",
    "[]": r"got '\[\]', expected a JSON object",
    "true": "got 'true', expected a JSON object",
    '{"type": "nosuch"}': "Unrecognized schema",
    '{"$ref": "#/a"}': "Error resolving ref",
    '{"$ref": "https://127.0.0.1:9/x"}': "remote schemas is not allowed",
    '{"type": "string", "pattern": "("}': "Pattern must start",
    '{"type": "string", "maxLength": 1000000000}': f"`maxLength`.*got 1000000000, expected 0 to {MOST_REPEATED}",
    '{"type": "string", "minLength": -1}': "`minLength`.*got -1",
    '{"type": "string", "pattern": "^a{1,99999999999999999999}$"}': "`pattern`.*got 99999999999999999999",
    '{"type": "array", "items": {}, "maxItems": "x"}': "`maxItems`.*got 'x'",
    '{"type": "array", "items": {}, "minItems": 5, "maxItems": 2}': "`minItems`.*got 5, expected at most 2",
    '{"properties": {"x": {"type": "array", "items": {}, "maxItems": 1e3}}}': r"`maxItems`.*got 1000\.0",
    '{"const": "a\\nb"}': r"a constant or a name in `json_schema`: got 'a\\nb', expected no quotes",
    '{"properties": {"x": {"enum": [1, "a\\"b"]}}}': "a constant or a name in `json_schema`",
    '{"properties": {"a\\\\b": {}}}': "a constant or a name in `json_schema`",
    '{"const": NaN}': "a number in `json_schema`: got 'NaN', expected one that JSON has",
    '{"enum": "abc"}': "`enum` in `json_schema`: got 'abc', expected a list that holds some",
    '{"enum": []}': "`enum` in `json_schema`",
    '{"anyOf": []}': "`anyOf` in `json_schema`",
    '{"properties": 5}': "a part of it is not what a schema holds there",
    '{"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}]}}, "$ref": "#/$defs/n"}': "libllama refuses the grammar that",
    '{"type": "string", "pattern": "^\\\\d{3}$"}': r"libllama refuses the grammar.*write \[0-9\] for",
}


@pytest.mark.parametrize("schema", NO_SCHEMAS, ids=lambda text: text[:40])
def test_what_is_no_schema(schema, vocabulary):
    with pytest.raises(SessionError, match=NO_SCHEMAS[schema]) as raised:
        made(vocabulary, json_schema=schema)
    assert "`json_schema`" in str(raised.value)


@pytest.mark.parametrize("schema", [5, [], b"{}", {"a": max}, {"x": math.nan}, {(1, 2): 3}, "\ud800"], ids=ascii)
def test_values_that_are_no_schema(schema, vocabulary):
    with pytest.raises(SessionError, match="`json_schema`"):
        made(vocabulary, json_schema=schema)


def test_schemas_that_refer_to_themselves():
    loop: dict = {"type": "object"}
    loop["properties"] = {"a": loop}
    with pytest.raises(SessionError, match=r"`json_schema`.*Circular reference"):
        gbnf_of(loop)
    deep: dict = {}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SessionError, match="`json_schema` nests too deeply"):
        gbnf_of(deep)


def test_more_properties_than_the_converter_takes():
    properties = {f"p{i}": {"type": "null"} for i in range(2000)}
    with pytest.raises(SessionError, match=r"`json_schema`.*2000 properties that may be left out.*name them in `requ"):
        gbnf_of({"type": "object", "properties": properties})
    assert gbnf_of({"properties": properties, "required": [*properties], "additionalProperties": False})


def test_a_schema_that_is_a_reference_to_one_that_holds_itself(vocabulary):
    """As pydantic writes a type of this kind."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "additionalProperties": False}
    schema = {"$defs": {"Node": node}, "$ref": "#/$defs/Node"}
    rules = gbnf_of(schema)
    assert re.search(r"(?m)^Node ::= ", rules)
    assert re.search(r"(?m)^Node-next ::= Node$", rules)
    assert made(vocabulary, json_schema=schema)
    assert schema["$ref"] == "#/$defs/Node"


def test_properties_may_have_the_names_of_keywords(vocabulary):
    named = {"type": "object", "properties": {"maxLength": {"type": "string", "maxLength": 2}}}
    assert made(vocabulary, json_schema=named)
    assert made(vocabulary, json_schema={"type": "string", "maxLength": 300})


@pytest.mark.parametrize(
    ("schema", "keywords"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 3}, ("minimum", "maximum")),
        ('{"properties": {"x": {"items": {"anyOf": [{"not": {}}]}}}}', ("not",)),
        ({"$defs": {"a": {"type": "string", "format": "email"}}}, ("format",)),
        ({"type": "string", "format": "date"}, ()),
        ({"properties": {"minimum": {"type": "integer"}}, "required": ["minimum"]}, ()),
        ({"allOf": [{"properties": {"a": {}}}]}, ()),
        ({"type": "integer", "allOf": [{}]}, ("allOf",)),
        ("no schema", ()),
    ],
)
def test_keywords_that_a_grammar_does_not_hold_a_text_to(schema, keywords):
    assert unenforced(schema) == keywords


def test_constants_may_hold_what_a_grammar_spells(vocabulary):
    for value in ("plain", "caf\u00e9", [1, {"a": None}], -1.5):
        assert made(vocabulary, json_schema={"const": value})
