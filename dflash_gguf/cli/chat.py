"""``dflash-gguf run`` without a prompt: a chat.

Comes in: a session, and what the user types. Goes out: answers on stdout, all else on stderr. Ctrl-C ends an answer;
twice at an empty prompt, the chat.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from dflash_gguf.cli.chat_input import QUOTES, message_of, open_reader
from dflash_gguf.cli.errors import INTERRUPTED, sentence
from dflash_gguf.cli.sampling_options import TABLE
from dflash_gguf.errors import DflashError, SessionError
from dflash_gguf.limits import checked

if TYPE_CHECKING:
    from collections.abc import Callable

    from dflash_gguf.cli.answer import Answer
    from dflash_gguf.cli.chat_options import ChatOptions
    from dflash_gguf.cli.output import Output
    from dflash_gguf.runner.conversation import Conversation
    from dflash_gguf.runner.sampling import SamplingOptions
    from dflash_gguf.runner.session import Session

NUMBERS: Final = {row.argument: type(row.default) for row in TABLE}
"""Settings of a choice that `/set` knows -> what they are."""
FULL: Final = "the context is full: `/clear` begins a new conversation, `-c` gives a larger one"


@dataclass(slots=True)
class Request:
    """What each answer is asked for with."""

    sampling: SamplingOptions
    n_predict: int
    stop: tuple[str, ...]

    def arguments(self) -> dict[str, Any]:
        """As `Conversation.ask` takes them."""
        return {"max_tokens": self.n_predict, "stop": self.stop, **self.sampling}


def chat(output: Output, session: Session, request: Request, options: ChatOptions, *, verbose: bool) -> int:
    """Talks until the user is done; returns an exit code. ``verbose``: with statistics after each answer."""
    from dflash_gguf.runner.conversation import Conversation

    talk = _Talk(output, session, Conversation(session, options.system, options.values), request, options, verbose)
    reader = open_reader()
    output.note("/help lists what you can type; /bye or Ctrl-D ends, Ctrl-C stops an answer")
    warned = False
    while talk.code is None:
        try:
            typed = reader.read()
            warned = False
            talk.take(typed)
        except EOFError:
            output.note("")
            return 0
        except KeyboardInterrupt:
            if warned:
                return 0
            warned = True
            output.note("\nCtrl-C again, Ctrl-D or /bye ends the chat")
        except (DflashError, UnicodeError) as error:
            output.note(f"error: {sentence(error)}")
    return talk.code


@dataclass(slots=True)
class _Talk:
    """State: the conversation, what answers are asked for with, and how they are shown. ``code``: it is over."""

    output: Output
    session: Session
    conversation: Conversation
    request: Request
    options: ChatOptions
    verbose: bool
    code: int | None = None
    last: Answer | None = None

    def take(self, typed: str) -> None:
        """A command, or a message to answer."""
        if typed.startswith("/"):
            name, _, rest = typed[1:].strip().partition(" ")
            if name not in COMMANDS:
                raise SessionError(
                    f"there is no `/{name}`",
                    remedy=f"/help lists what there is; {QUOTES} begins a message with a slash",
                )
            COMMANDS[name].run(self, rest.strip())
        elif message := message_of(typed).strip():
            self._answer(message)

    def _answer(self, message: str) -> None:
        from dflash_gguf.cli.answer import AnswerWriter, describe, show

        writer = AnswerWriter(self.output, self.options)
        turns = len(self.conversation.messages)
        self.last = answer = show(writer, self.conversation.ask(message, **self.request.arguments()))
        writer.end()
        if answer.code and answer.code != INTERRUPTED:
            self.code = answer.code
            return
        stats = self.session.stats
        if self.verbose and stats is not None:
            self.output.note(describe(stats, answer.reason))
        if answer.reason == "length" and self._is_full(answer):
            self.output.note(FULL)
        elif answer.code:
            self.output.note("interrupted")
        if len(self.conversation.messages) == turns:
            self.output.note("it said nothing yet: this turn is left out of the conversation")

    def _is_full(self, answer: Answer) -> bool:
        return self.request.n_predict < 0 or len(answer.ids) < self.request.n_predict

    def bye(self, _rest: str) -> None:
        """Ends the chat."""
        self.code = 0

    def clear(self, _rest: str) -> None:
        """Begins a new conversation."""
        self.conversation.clear()
        self.output.note("a new conversation")

    def stats(self, _rest: str) -> None:
        """Shows what the last answer cost."""
        from dflash_gguf.cli.answer import describe

        stats = self.session.stats
        if stats is None or self.last is None:
            self.output.note("there was no answer yet")
            return
        self.output.note(describe(stats, self.last.reason))
        turns = sum(message["role"] == "user" for message in self.conversation.messages)
        used = stats.cache_n + stats.prompt_n + stats.predicted_n if turns else 0
        count = f"{turns} turn{'' if turns == 1 else 's'}"
        self.output.note(f"conversation: {count}, {used} of {self.session.n_ctx} tokens")
        if self.session.depths is not None:
            self.output.note(str(self.session.depths))

    def help(self, _rest: str) -> None:
        """Lists the commands."""
        for name, command in COMMANDS.items():
            self.output.note(f"/{name} {command.usage}".ljust(20) + command.help)
        self.output.note(f"{QUOTES} begins and ends a message of several lines; so does a backslash at a line's end")

    def set(self, rest: str) -> None:
        """Changes a setting, or shows all."""
        name, _, text = rest.partition(" ")
        if not name:
            for each, value in self._settings().items():
                self._show(each, value)
            return
        if name == "system":
            self.conversation.system = text.strip() or None
        elif name == "show_thinking":
            if text not in ("dim", "hide"):
                raise SessionError("`show_thinking`", value=text, expected="dim or hide")
            self.options = replace(self.options, hide_thinking=text == "hide")
        elif name == "n_predict":
            self.request.n_predict = checked("max_tokens", _number(name, text, int))
        elif name == "seed" or name in NUMBERS:
            self._set_sampling(name, text)
        else:
            self._set_value(name, text)
        self._show(name, self._settings()[name])

    def _set_sampling(self, name: str, text: str) -> None:
        from dflash_gguf.runner.sampling import Sampling

        number = _number(name, text, NUMBERS.get(name, int))
        value = None if name == "seed" and number < 0 else number
        changed = cast("SamplingOptions", {**self.request.sampling, name: value})
        Sampling(**changed)
        self.request.sampling = changed

    def _set_value(self, name: str, text: str) -> None:
        """One of the chat template's own variables."""
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if not self.session.template.reads(name):
            known = ", ".join(["system", "show_thinking", "n_predict", "seed", *NUMBERS])
            raise SessionError(f"there is no setting `{name}`", expected=f"{known}, or what the chat template reads")
        self.session.template.check({name: value})
        self.conversation.values[name] = value

    def _settings(self) -> dict[str, Any]:
        return {
            "system": self.conversation.system,
            "show_thinking": "hide" if self.options.hide_thinking else "dim",
            "n_predict": self.request.n_predict,
            "seed": self.request.sampling.get("seed"),
            **{name: self.request.sampling.get(name) for name in NUMBERS},
            **self.conversation.values,
        }

    def _show(self, name: str, value: Any) -> None:
        self.output.note(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")


def _number(name: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise SessionError(f"`{name}`", value=text, expected="a number") from None


@dataclass(frozen=True, slots=True)
class _Command:
    usage: str
    run: Callable[[_Talk, str], None]
    help: str


COMMANDS: Final[dict[str, _Command]] = {
    "bye": _Command("", _Talk.bye, "ends the chat"),
    "clear": _Command("", _Talk.clear, "begins a new conversation; the system's message stays"),
    "set": _Command("NAME VALUE", _Talk.set, "changes a setting, such as temperature, seed, system; /set shows all"),
    "stats": _Command("", _Talk.stats, "shows what the last answer cost, and how full the context is"),
    "help": _Command("", _Talk.help, "shows this"),
}
"""What begins with a slash -> what it does."""
