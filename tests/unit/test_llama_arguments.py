"""The signatures are llama_cpp's, and what cannot be honoured is refused by name. No model is loaded."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import llama_cpp
import pytest
from llama_cpp.llama import LogitsProcessorList, StoppingCriteriaList
from llama_cpp.llama_grammar import JSON_GBNF, LlamaGrammar

from dflash_gguf import DflashError, Llama
from dflash_gguf import llama_arguments as arguments
from dflash_gguf.llama_arguments import (
    CONSTRUCTOR,
    RequestError,
    cache_type,
    check_threads,
    flash_attention,
    split_mode,
    token_limit,
)
from dflash_gguf.llama_sampling import Seeds, sampling_of

COMPLETION = {"prompt": "x"}
CHAT = {"messages": []}
UNOPENED = Llama.__new__(Llama)
UNOPENED.last_n_tokens_size, UNOPENED._seeds = 64, Seeds(-1)
"""Arguments are looked at before anything else is."""


def parameters(method):
    return [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize("name", ["__call__", "create_completion", "create_chat_completion"])
def test_names_order_and_defaults_are_llama_cpps(name):
    assert parameters(getattr(Llama, name)) == parameters(getattr(llama_cpp.Llama, name))


@pytest.mark.parametrize("name", ["tokenize", "detokenize", "n_ctx", "n_vocab", "token_eos", "token_bos", "close"])
def test_the_smaller_methods_too(name):
    assert parameters(getattr(Llama, name)) == parameters(getattr(llama_cpp.Llama, name))


def test_every_argument_of_the_constructor_is_taken_with_its_default_or_refused():
    theirs = inspect.signature(llama_cpp.Llama.__init__).parameters
    ours = inspect.signature(Llama.__init__).parameters
    added = {"draft_model_path", "spec_draft_n_max", "depth", "exact"}
    assert theirs.keys() - {"kwargs"} == (ours.keys() - {"others"} - added) | CONSTRUCTOR.keys()
    assert not ours.keys() & CONSTRUCTOR.keys()
    assert {n: p.default for n, p in theirs.items() if n in ours} == {
        n: p.default for n, p in ours.items() if n in theirs
    }


REFUSED = {
    "vocab_only": (True, "got True, expected False; a session needs the weights"),
    "use_mlock": (True, "got True, expected False; weights are mapped or read, and not locked in memory"),
    "kv_overrides": ({"a": 1}, "got 'dict', expected None; what a file says is checked"),
    "rope_scaling_type": (2, "got 2, expected -1; the rotation is the one that the file states"),
    "pooling_type": (1, "got 1, expected -1; a session generates text"),
    "attention_type": (1, "got 1, expected -1; a session generates text"),
    "rope_freq_base": (1e6, "got 1000000.0, expected 0.0; the rotation"),
    "rope_freq_scale": (0.5, "got 0.5, expected 0.0; the rotation"),
    "yarn_ext_factor": (1.0, "got 1.0, expected -1.0; the rotation"),
    "yarn_attn_factor": (2.0, "got 2.0, expected 1.0; the rotation"),
    "yarn_beta_fast": (1.0, "got 1.0, expected 32.0; the rotation"),
    "yarn_beta_slow": (2.0, "got 2.0, expected 1.0; the rotation"),
    "yarn_orig_ctx": (4096, "got 4096, expected 0; the rotation"),
    "logits_all": (True, "got True, expected False; logits are read where a token is chosen"),
    "embedding": (True, "got True, expected False; a session generates text"),
    "offload_kqv": (False, "got False, expected True; the caches lie where their layers do"),
    "op_offload": (True, "got True, expected None; libllama decides"),
    "swa_full": (True, "got True, expected None; caches of sliding layers keep their window"),
    "no_perf": (True, "got True, expected False; `timings` are part of every response"),
    "lora_base": ("base.gguf", "got 'base.gguf', expected None; adapters are not loaded"),
    "lora_scale": (0.5, "got 0.5, expected 1.0; adapters are not loaded"),
    "lora_path": ("lora.gguf", "got 'lora.gguf', expected None; adapters are not loaded"),
    "numa": (1, "got 1, expected False; it is a setting of the whole process"),
    "chat_format": ("llama-2", "got 'llama-2', expected None; messages go through the chat template of the file"),
    "chat_handler": (print, "got 'builtin_function_or_method', expected None; messages go through the chat template"),
    "draft_model": (print, "expected None; a drafter needs more than the ids that its protocol passes"),
    "tokenizer": (print, "expected None; drafter and target share the tokenizer of the file"),
    "spm_infill": (True, "got True, expected False; there is no infill"),
}


def test_no_refusal_is_left_out_below():
    assert REFUSED.keys() == CONSTRUCTOR.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_constructor_refuses(name):
    value, message = REFUSED[name]
    with pytest.raises(RequestError) as caught:
        Llama("no such file", **{name: value})
    assert str(caught.value).startswith(f"`{name}` cannot be honoured: got ")
    assert message in str(caught.value)


def test_defaults_of_llama_cpp_are_no_refusal():
    theirs = inspect.signature(llama_cpp.Llama.__init__).parameters
    defaults = {n: p.default for n, p in theirs.items() if n not in {"self", "model_path", "kwargs"}}
    too = {"swa_full": False, "chat_format": "chat_template.default", "numa": 0}
    for given in (defaults, defaults | too):
        with pytest.raises((DflashError, OSError), match="no such file"):
            Llama("no such file", **given)


def test_a_name_that_llama_cpp_lacks_too():
    with pytest.raises(TypeError, match=r"Llama\(\) got an unexpected keyword argument 'n_predict'"):
        Llama("no such file", n_predict=3)


ANY = LogitsProcessorList([print])
OF_BOTH = [
    ("logits_processor", ANY, "got 'LogitsProcessorList', expected None; logits stay in the native core"),
    ("tfs_z", 0.5, "got 0.5, expected 1.0; libllama has no tail-free sampling any more"),
    ("mirostat_mode", 2, "got 2, expected 0; its choices depend on a running estimate"),
]
OF_COMPLETION = [
    ("suffix", "", "got '', expected None; there is no infill"),
    ("logprobs", 0, "got 0, expected None; logprobs are not given out yet"),
    ("stopping_criteria", StoppingCriteriaList([print]), "out of reach of Python: use `stop`"),
]
OF_CHAT = [
    ("functions", [{"name": "f"}], "got 'list', expected None; calls of functions are not built yet"),
    ("function_call", {"name": "f"}, "got 'dict', expected None; calls of functions are not built yet"),
    ("tools", [{"type": "function"}], "got 'list', expected None; calls of functions are not built yet"),
    ("tool_choice", "required", "got 'required', expected None; calls of functions are not built yet"),
    ("logprobs", True, "got True, expected None; logprobs are not given out yet"),
]


@pytest.mark.parametrize(("name", "value", "message"), OF_BOTH + OF_COMPLETION)
@pytest.mark.parametrize("method", [Llama.create_completion, Llama.__call__])
def test_what_a_completion_refuses(method, name, value, message):
    with pytest.raises(RequestError) as caught:
        method(UNOPENED, **COMPLETION | {name: value})
    assert str(caught.value).startswith(f"`{name}` cannot be honoured: got ")
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "value", "message"), OF_BOTH + OF_CHAT)
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_chat_completion_refuses(name, value, message, stream):
    with pytest.raises(RequestError) as caught:
        Llama.create_chat_completion(UNOPENED, **CHAT | {name: value, "stream": stream})
    assert message in str(caught.value)


WRONG = [
    ({"temperature": None}, "`temperature`: got None, expected a number"),
    ({"temperature": "hot"}, "`temperature`: got 'hot', expected a number"),
    ({"temperature": True}, "`temperature`: got True, expected a number"),
    ({"logit_bias": {"a": 1.0}}, "`logit_bias`: got"),
    ({"logit_bias": [3]}, "expected a mapping from token ids to numbers"),
    ({"grammar": 7}, "`grammar`: got 7, expected a llama_cpp.LlamaGrammar, or GBNF"),
]
WRONG_FORMATS = [
    ({"response_format": {"type": "xml"}}, "'xml'}\", expected the type text, json_object, or json_schema with its"),
    ({"response_format": "json"}, "`response_format`: got 'json', expected the type text"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": None}}}, "json_schema with its `schema`"),
    ({"response_format": {"type": "json_schema"}}, "expected the type text, json_object, or json_schema with its"),
    ({"response_format": {"type": "json_object"}, "grammar": "root ::= []"}, "expected one of the two; leave one out"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_is_no_setting_of_sampling(given, message):
    with pytest.raises(RequestError, match=re.escape(message)):
        Llama.create_completion(UNOPENED, **COMPLETION | given)


@pytest.mark.parametrize(("given", "message"), WRONG + WRONG_FORMATS)
def test_what_is_no_setting_of_a_chats_sampling(given, message):
    with pytest.raises(RequestError, match=re.escape(message)):
        Llama.create_chat_completion(UNOPENED, **CHAT | given)


DEFAULTS = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "typical_p": 1.0,
    "mirostat_mode": 0,
    "repeat_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "logit_bias": None,
    "grammar": None,
}
SCHEMA = {"type": "integer"}


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({}, {}),
        ({"temperature": 0, "mirostat_mode": 2}, {"temperature": 0}),
        ({"temperature": -1}, {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}),
        ({"logit_bias": {"3": "-5", 4: -math.inf}}, {"logit_bias": {3: -5.0, 4: -math.inf}}),
        ({"grammar": "root ::= [a]"}, {"grammar": "root ::= [a]"}),
        ({"grammar": LlamaGrammar.from_string("root ::= [b]")}, {"grammar": "root ::= [b]"}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"grammar": JSON_GBNF}),
        ({"response_format": {"type": "json_object", "schema": None}}, {"grammar": JSON_GBNF}),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"json_schema": SCHEMA}),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, {"json_schema": SCHEMA}),
    ],
)
def test_what_a_session_is_told_of_sampling(given, changed):
    named = {name: value for name, value in DEFAULTS.items() if name not in {"mirostat_mode", "grammar"}}
    assert sampling_of(DEFAULTS | given) == named | {"logit_bias": {}} | changed


def test_seeds_of_requests_follow_the_first_one():
    first, again, other = Seeds(7), Seeds(7), Seeds(8)
    drawn = [first.of_request(None) for _ in range(4)]
    assert len(set(drawn)) == 4
    assert [again.of_request(None) for _ in range(4)] == drawn
    assert [other.of_request(None) for _ in range(4)] != drawn
    assert first.of_request(5) == 5
    for each_time in (-1, 0xFFFFFFFF):
        assert Seeds(each_time).of_request(None) is None
        assert first.of_request(each_time) is None


@pytest.mark.parametrize("seed", [None, True, 1.5, "3"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(RequestError, match="`seed`"):
        Llama("no such file", seed=seed)


HARMLESS = {
    "temperature": 0.0,
    "top_p": 0.1,
    "min_p": 0.9,
    "typical_p": 0.2,
    "top_k": 3,
    "seed": 5,
    "mirostat_mode": 2,
    "mirostat_tau": 1.0,
    "mirostat_eta": 1.0,
    "logit_bias": {},
    "logits_processor": LogitsProcessorList(),
}


@pytest.mark.parametrize(
    ("method", "given"),
    [
        (Llama.create_completion, {"prompt": b"", "stopping_criteria": StoppingCriteriaList()}),
        (Llama.create_completion, {"prompt": b"", "temperature": 0.7, "mirostat_mode": 0}),
        (
            Llama.create_chat_completion,
            {
                "messages": "",
                "tool_choice": "none",
                "tools": [],
                "function_call": "auto",
                "response_format": {"type": "text"},
                "logprobs": False,
                "top_logprobs": 3,
            },
        ),
    ],
)
def test_what_changes_nothing_is_taken(method, given):
    """The next thing that is wrong is the prompt."""
    with pytest.raises(RequestError, match=r"the prompt|`messages`"):
        method(UNOPENED, **HARMLESS | given)


@pytest.mark.parametrize(
    ("max_tokens", "room", "limit"),
    [(None, 9, 9), (-1, 9, 9), (-7, 9, 9), (0, 9, 9), (1, 9, 1), (8, 9, 8), (9, 9, 9), (10, 9, 9)],
)
def test_limits_as_llama_cpp_counts_them(max_tokens, room, limit):
    assert token_limit(max_tokens, room) == limit


@pytest.mark.parametrize("max_tokens", [1.5, True, "3"])
def test_a_limit_is_a_whole_number(max_tokens):
    with pytest.raises(DflashError, match="`max_tokens`"):
        token_limit(max_tokens, 9)


def test_threads_of_the_prompt_are_those_of_the_answer():
    for same in ((None, None), (4, None), (4, 0), (4, 4)):
        check_threads(*same)
    with pytest.raises(RequestError, match="`n_threads_batch` cannot be honoured: got 8, expected 4; prompt and"):
        check_threads(4, 8)


def test_numbers_of_llama_cpp_by_name():
    modes = ("NONE", "LAYER", "ROW", "TENSOR")
    assert [split_mode(getattr(llama_cpp, f"LLAMA_SPLIT_MODE_{name}")) for name in modes] == [
        name.lower() for name in modes
    ]
    with pytest.raises(RequestError, match="`split_mode`: got 4"):
        split_mode(4)
    assert [cache_type("type_k", n) for n in (None, llama_cpp.GGML_TYPE_F16, llama_cpp.GGML_TYPE_IQ4_NL)] == [
        "f16",
        "f16",
        "iq4_nl",
    ]
    with pytest.raises(RequestError, match="`type_v`: got 999"):
        cache_type("type_v", 999)
    assert [flash_attention(given) for given in (None, False, True)] == ["auto", "off", "on"]


def test_the_page_names_every_refusal():
    page = (Path(__file__).parents[2] / "docs" / "llama-cpp-python.md").read_text(encoding="utf-8")
    for name in arguments.CONSTRUCTOR | arguments.COMPLETION | arguments.CHAT:
        assert f"`{name}`" in page or f"`{name.split('_')[0]}_*`" in page


def test_refusals_are_of_both_families():
    assert issubclass(RequestError, DflashError)
    assert issubclass(RequestError, ValueError)


def test_exactness_needs_flash_attention_which_is_off_by_default(tiny_target):
    with pytest.raises(RequestError, match="`exact` needs flash attention"):
        Llama(tiny_target, exact=True)
