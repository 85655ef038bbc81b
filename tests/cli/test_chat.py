"""A chat in a terminal: what is typed, what is seen, and what goes to a stdout that is none."""

from __future__ import annotations

import json
import os
import pty
import re
import stat
import subprocess
import sys

import pytest
import tiny
from certain import write_certain_drafter, write_certain_target
from terminal import START, Terminal
from tiny_vocab import CHAT_TEMPLATE

WITHOUT = "sys.modules['prompt_toolkit'] = None"
"""As where the extra is not installed."""
KINDS = {"prompt_toolkit": "", "plain": WITHOUT}


@pytest.fixture
def words(tiny_target, tiny_drafter):
    sizes = ["-c", 1024, "-t", 1, "-n", 12, "--temp", 0, "--depth", "fixed"]
    return ["run", "-m", tiny_target, "-md", tiny_drafter, *sizes]


@pytest.fixture
def open_chat(words, tmp_path):
    def opened(*more, kind="prompt_toolkit", **variables):
        here = {"XDG_STATE_HOME": str(tmp_path / "state"), **variables}
        return Terminal(*words, *more, prelude=KINDS[kind], variables=here)

    return opened


def saying(text):
    """A grammar that allows nothing else."""
    return ["--grammar", f"root ::= {json.dumps(text)}", "-n", 100]


@pytest.mark.parametrize("kind", KINDS)
def test_two_turns_a_command_and_the_end(kind, open_chat, tmp_path):
    with open_chat("-v", "--system", "be brief", kind=kind) as chat:
        chat.until("/help lists")
        chat.until(">>>")
        chat.send("hello there\r")
        first = chat.until("seed")
        assert re.search(r"prompt \d+ tokens, ", first)  # nothing was kept of no turn before
        chat.until(">>>")
        chat.send("and more\r")
        second = chat.until("seed")
        kept = re.search(r"prompt (\d+) tokens \((\d+) more kept\)", second)
        assert kept is not None
        assert int(kept[2]) > int(kept[1])  # the first turn is not read again
        chat.until(">>>")
        chat.send("/stats\r")
        assert "conversation: 2 turns, " in chat.until("of 1024 tokens")
        chat.until(">>>")
        chat.send("/bye\r")
        code, _ = chat.end()
        assert code == 0
    history = tmp_path / "state/dflash-gguf/chat_history"
    assert history.exists() == (kind == "prompt_toolkit")
    if history.exists():
        assert "+hello there\n" in history.read_text()
        assert stat.S_IMODE(history.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_several_lines(kind, open_chat):
    """However it is typed, it is one message of as many tokens."""
    typed = ['"""one\rtwo"""\r', "one\\\rtwo\r", "one two and more\r"]
    if kind == "prompt_toolkit":
        typed += ["one\x1b\rtwo\r", "\x1b[200~one\ntwo\x1b[201~\r"]  # Alt-Enter; pasted
    with open_chat("-v", kind=kind) as chat:
        sizes = []
        for keys in typed:
            chat.until(">>>")
            chat.send(keys)
            found = re.search(r"prompt (\d+) tokens(?: \((\d+) more)?", chat.until("seed"))
            sizes.append(int(found[1]) + int(found[2] or 0))
            chat.until(">>>")
            chat.send("/clear\r")
            chat.until("a new conversation")
        chat.until(">>>")
        chat.send("/stats\r")
        chat.until("conversation: 0 turns, 0 of 1024 tokens")
        chat.until(">>>")
        chat.send("\x04")
        assert chat.end()[0] == 0
    several, other = {*sizes[:2], *sizes[3:]}, sizes[2]
    assert len(several) == 1
    assert other not in several


def test_an_interrupt_ends_the_answer_and_two_end_the_chat(tmp_path):
    target = tiny.write_target(tmp_path / "target.gguf", type="Q8_0", context=65536)
    words = ["run", "-m", target, "--no-draft", "-c", 60000, "-t", 1, "-v"]
    with Terminal(*words, variables={"XDG_STATE_HOME": str(tmp_path)}) as chat:
        chat.until(">>>")
        chat.send("hi\r")
        chat.until("hi")
        chat.until("\n")
        chat.until("a")  # 60,000 tokens would take minutes
        chat.send("\x03")
        assert "tokens/s; interrupted" in chat.until("\ninterrupted")
        chat.until(">>>")
        chat.send("half a line\x03")  # is dropped
        chat.send("/stats\r")
        assert "1 turn," in chat.until("of 60000 tokens")
        chat.until(">>>")
        chat.send("\x03")
        chat.until("Ctrl-C again")
        chat.until(">>>")
        chat.send("/clear\r")
        chat.until("a new conversation")
        chat.until(">>>")
        chat.send("\x03")
        chat.until("Ctrl-C again")
        chat.until(">>>")
        chat.send("\x03")
        code, rest = chat.end()
        assert code == 0
        assert "Traceback" not in chat.raw + rest


def test_a_termination_ends_the_chat_at_its_prompt(open_chat):
    with open_chat() as chat:
        chat.until(">>>")
        chat.process.terminate()
        code, rest = chat.end()
        assert code == 143
        assert "Traceback" not in rest


def test_settings(open_chat):
    with open_chat(kind="plain") as chat:

        def told(line, end):
            chat.until(">>> ")
            chat.send(f"{line}\r")
            return chat.until(end)

        told("/set temperature 0.5", "\ntemperature: 0.5")
        told("/set top_k 7", "\ntop_k: 7")
        told("/set seed 3", "\nseed: 3")
        told("/set n_predict 5", "\nn_predict: 5")
        told("/set system Be brief.", "\nsystem: Be brief.")
        told("/set show_thinking hide", "\nshow_thinking: hide")
        told("/set", "dry_penalty_last_n: 64")
        told("hello", "\n>>> ")
        chat.send("/stats\r")
        assert "generated 5 tokens" in chat.until("conversation")
        wrong = {
            "/set temperature hot": "`temperature`: got 'hot', expected a number",
            "/set temperature -1": "`temperature`: got -1.0",
            "/set n_predict -7": "`max_tokens` is out of range",
            "/set show_thinking loud": "expected dim or hide",
            "/set nothing 1": "there is no setting `nothing`",
            "/set messages 1": "not for the user to set",
            "/nothing": "there is no `/nothing`; /help lists",
            "/stats": "conversation: 1 turn,",
            "/help": "of several lines",
        }
        for line, said in wrong.items():
            told(line, said)
        chat.until(">>> ")
        chat.send("\x04")
        assert chat.end()[0] == 0


@pytest.fixture
def thinker(tmp_path):
    """A target whose template knows thinking."""
    keys = {"tokenizer.chat_template": "{# <think></think> #}" + CHAT_TEMPLATE}
    return tiny.write_target(tmp_path / "thinker.gguf", type="Q8_0", extra_keys=keys)


def test_thinking_is_dim_or_hidden(open_chat, thinker):
    with open_chat("-m", thinker, *saying("<think>\nhm</think>\n\nyes")) as chat:
        chat.until(">>>")
        chat.send("hello\r")
        shown = chat.until("yes")
        dim = chat.raw
        chat.until(">>>")
        chat.send("/set show_thinking hide\r")
        chat.until("show_thinking: hide")
        chat.until(">>>")
        chat.send("hello\r")
        hidden = chat.until("yes")
        chat.until(">>>")
        chat.send("/bye\r")
        chat.end()
    assert shown.endswith("\nhm\n\nyes")
    assert "\x1b[2mhm\x1b[22m" in dim.replace("\x1b[22m\x1b[2m", "")
    assert "<think>" not in shown
    assert "hm" not in hidden


def test_an_answer_that_is_only_thought_is_no_turn(open_chat, thinker):
    with open_chat("-m", thinker, "--grammar", 'root ::= "<think>hm"', "-n", 50) as chat:
        chat.until(">>>")
        chat.send("hello\r")
        chat.until("this turn is left out of the conversation")
        chat.until(">>>")
        chat.send("/stats\r")
        chat.until("conversation: 0 turns")
        chat.send("/bye\r")
        chat.end()


def test_accepted_drafts_are_tinted(tmp_path):
    """One token comes from the prompt's pass; then a round accepts seven and adds one of the target's own."""
    target, draft = write_certain_target(tmp_path / "t.gguf"), write_certain_drafter(tmp_path / "d.gguf")
    words = ["run", "-m", target, "-md", draft, "-c", 256, "-t", 1, "-n", 17, "--temp", 0, "--depth", "fixed"]
    with Terminal(*words, "-p", "hello", "--color-draft") as chat:
        code, _ = chat.end()
    assert code == 0
    assert chat.raw.startswith('"' + 2 * ("\x1b[32m" + 7 * '"' + '\x1b[39m"'))
    with Terminal(*words, "-p", "hello") as chat:
        chat.end()
    assert chat.raw.startswith(17 * '"' + "\r\n")


def test_no_codes_where_none_are_wanted(open_chat, thinker):
    answer = "<think>hm</think>yes"
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with open_chat("-m", thinker, *saying(answer), "--color-draft", kind="plain", **variables) as chat:
            chat.until(">>> ")
            chat.send("hello\r")
            chat.until("<think>hm</think>yes")
            chat.until(">>> ")
            chat.send("/bye\r")
            chat.end()
        assert "\x1b[2m" not in chat.raw
        assert "\x1b[32m" not in chat.raw


def test_a_full_context_is_a_sentence(tiny_target, tmp_path):
    words = ["run", "-m", tiny_target, "--no-draft", "-c", 64, "-t", 1, "--temp", 0, "-l", "1-inf", "-l", "2-inf"]
    with Terminal(*words, prelude=WITHOUT) as chat:
        chat.until(">>> ")
        chat.send("hello\r")
        chat.until("the context is full: `/clear` begins a new conversation")
        chat.until(">>> ")
        chat.send("again\r")
        chat.until("does not fit the context, expected at most 64 tokens")
        chat.until(">>> ")
        chat.send("/clear\r")
        chat.until("a new conversation")
        chat.until(">>> ")
        chat.send("hello\r")
        chat.until("the context is full")
        chat.until(">>> ")
        chat.send("\x04")
        assert chat.end()[0] == 0


def test_a_model_cannot_command_the_terminal(open_chat):
    with open_chat("--grammar", r'root ::= "a\x1b[31mb\x07"', "-n", 50) as chat:
        chat.until(">>>")
        chat.send("hello\r")
        chat.until("a\\x1b[31mb\\x07")
        chat.until(">>>")
        chat.send("/bye\r")
        chat.end()


def test_stdout_holds_the_text_and_nothing_else(words, tmp_path):
    """Typed in a terminal, answered into a pipe: prompts and notes go to stderr."""
    own, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", START.format(prelude=""), *map(str, words), *map(str, saying("yes")), "--color-draft"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TERM": "xterm", "XDG_STATE_HOME": str(tmp_path)},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(own, b"hello\nhello\n/stats\n/bye\n")
        out, errors = process.communicate(timeout=60)
    os.close(own)
    assert process.returncode == 0, errors
    assert out == "yes\nyes\n"
    assert ">>> " in errors
    assert "conversation: 2 turns" in errors


def test_without_a_prompt_json_and_raw_are_wrong_usage(open_chat):
    for word, said in (("--json", "a chat is no JSON object"), ("--raw", "a chat needs the chat template")):
        with open_chat(word) as chat:
            code, shown = chat.end()
            assert code == 2
            assert said in shown


def test_a_prompt_in_the_template(thinker, tmp_path):
    """Into a pipe goes the text as it is, thinking and all, or without."""
    template = "{{ effort | default('x') }}{% for m in messages %}{{ m.role }}{% endfor %}{{ enable_thinking }}<think>"
    other = tiny.write_target(tmp_path / "o.gguf", type="Q8_0", extra_keys={"tokenizer.chat_template": template})

    def run(*more, target=thinker):
        words = ["run", "-m", target, "--no-draft", "-c", 256, "-t", 1, "-p", "hi", *saying("<think>hm</think>\n\nyes")]
        command = [sys.executable, "-m", "dflash_gguf", *map(str, [*words, *more])]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert run("--color-draft").stdout == "<think>hm</think>\n\nyes\n"
    assert run("--hide-thinking", "--system", "brief").stdout == "yes\n"
    assert json.loads(run("--json", "--hide-thinking").stdout)["text"] == "<think>hm</think>\n\nyes"
    assert run("--reasoning-effort", "none", target=other).returncode == 0
    values = ["--chat-template-kwargs", '{"effort": "high", "enable_thinking": true}']
    longer = run("--json", *values, target=other)
    assert json.loads(longer.stdout)["stats"]["prompt_n"] > 0
    refusals = {
        ("--chat-template-kwargs", '{"effort": 1}'): "does not read `effort`",
        ("--reasoning-effort", "low"): "knows no reasoning effort `low`",
        ("--chat-template-kwargs", "[1]"): "is no JSON object",
        ("--chat-template-kwargs", "{"): "is no JSON",
        ("--raw", "--system", "x"): "leave out --raw",
    }
    for more, said in refusals.items():
        done = run(*more)
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
