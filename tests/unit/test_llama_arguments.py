"""The signatures are llama_cpp's, and what cannot be honoured is refused by name. No model is loaded."""

from __future__ import annotations

import inspect
from pathlib import Path

import llama_cpp
import pytest
from llama_cpp.llama import LogitsProcessorList, StoppingCriteriaList

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

COMPLETION = {"prompt": "x", "temperature": 0}
CHAT = {"messages": [], "temperature": 0}
UNOPENED = Llama.__new__(Llama)
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
    added = {"draft_model_path", "spec_draft_n_max"}
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
    "last_n_tokens_size": (0, "got 0, expected 64; there are no penalties"),
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
    ("frequency_penalty", 0.1, "got 0.1, expected 0.0; penalties are not built yet"),
    ("presence_penalty", 0.1, "got 0.1, expected 0.0; penalties are not built yet"),
    ("repeat_penalty", 1.1, "got 1.1, expected 1.0; penalties are not built yet"),
    ("logits_processor", ANY, "got 'LogitsProcessorList', expected None; logits stay in the native core"),
    ("grammar", object(), "got 'object', expected None; constraints on the text are not built yet"),
    ("logit_bias", {3: 1.0}, "got 'dict', expected None; constraints on the text are not built yet"),
]
OF_COMPLETION = [
    ("suffix", "", "got '', expected None; there is no infill"),
    ("logprobs", 0, "got 0, expected None; logprobs are not given out yet"),
    ("stopping_criteria", StoppingCriteriaList([print]), "out of reach of Python: use `stop`"),
]
OF_CHAT = [
    ("functions", [{"name": "f"}], "got 'list', expected None; calls of functions are not built yet"),
    ("function_call", {"name": "f"}, "got 'dict', expected None; calls of functions are not built yet"),
    ("tools", [], "got 'list', expected None; calls of functions are not built yet"),
    ("tool_choice", "required", "got 'required', expected None; calls of functions are not built yet"),
    ("response_format", {"type": "json_object"}, "got 'dict', expected None; constraints on the text"),
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


SAMPLING = [
    ({}, "got 0.8"),
    ({"temperature": 1.0, "top_k": 2}, "got 1.0"),
    ({"temperature": -1.0, "top_k": 1}, "got -1.0"),
    ({"temperature": None}, "got None"),
    ({"top_k": 1, "mirostat_mode": 2}, "got 0.8"),
    ({"temperature": float("nan")}, "got nan"),
]


@pytest.mark.parametrize(("given", "message"), SAMPLING)
def test_sampling_is_refused_and_never_made_greedy(given, message):
    with pytest.raises(RequestError) as caught:
        Llama.create_completion(UNOPENED, "x", **given)
    sentence = "expected 0; sampling comes with the release that has it: pass temperature=0"
    assert str(caught.value) == f"`temperature` asks for sampling: {message}, {sentence}"


def test_the_default_of_a_chat_is_sampling_too():
    with pytest.raises(RequestError, match=r"`temperature` asks for sampling: got 0\.2"):
        Llama.create_chat_completion(UNOPENED, [])


HARMLESS = {
    "temperature": 0.0,
    "top_p": 0.1,
    "min_p": 0.9,
    "typical_p": 0.2,
    "top_k": 3,
    "seed": 5,
    "tfs_z": 0.5,
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
        (Llama.create_completion, {"prompt": b"", "temperature": 0.7, "top_k": 1, "mirostat_mode": 0}),
        (
            Llama.create_chat_completion,
            {
                "messages": "",
                "tool_choice": "none",
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
