"""From a conversation to text, and where in it the assistant speaks.

Templates with `{% generation %}` say it themselves. For others a message is found as what it adds: the text of the
messages before it, with the prompt for an answer, must begin the text of the messages up to it, and that must begin the
whole. Where a template writes a message otherwise when more follows (it drops reasoning, say), the message is found by
a mark in place of its content, all else being the same. What cannot be found for certain is refused.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from shunter_trainer.data.conversations import ASSISTANT, Conversation
from shunter_trainer.data.packages import package
from shunter_trainer.data.tokenizers import Span, Tokenizer
from shunter_trainer.failures import UserFault

_MARKERS = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_MARK = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}shunter-7f3a91\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}"


class ChatTemplate:
    """One template, with the special tokens that it may name."""

    def __init__(self, tokenizer: Tokenizer, template: str, pointer: str) -> None:
        """`template`: `tokenizer` for its own, else Jinja text."""
        self._tokenizer = tokenizer
        self._given = None if template == "tokenizer" else template
        self._pointer = pointer
        utils = package("transformers.utils.chat_template_utils", "transformers", f"{pointer}/kind")
        self._library = utils.render_jinja_template
        self._special_tokens = tokenizer.special_tokens

    def whole(self, talk: Conversation) -> str:
        """All messages as text."""
        return self._text(talk, talk.messages)

    def marked(self, talk: Conversation) -> tuple[str, list[Span]]:
        """All messages as text, and the assistant's words in it: what it says, and what ends its turn.

        Raises: UserFault when they cannot be told for certain.
        """
        if _MARKERS.search(self._template(talk)):
            text, spans = self._rendered(talk, talk.messages, return_assistant_tokens_mask=True)
            return text, [(start, stop) for start, stop in spans if stop > start]
        text = self._text(talk, talk.messages)
        speakers = [at for at, message in enumerate(talk.messages) if message["role"] == ASSISTANT]
        spans = [self._span(talk, at, text) for at in speakers]
        if any(before[1] > after[0] for before, after in pairwise(spans)):
            raise self._unclear(talk)
        return text, spans

    def _span(self, talk: Conversation, at: int, text: str) -> Span:
        begun = self._begun(talk, at)
        is_last = at + 1 == len(talk.messages)
        upto = text if is_last else self._text(talk, talk.messages[: at + 1])
        if begun is not None and upto.startswith(begun) and text.startswith(upto):
            return len(begun), _trimmed(text, len(begun), len(upto))
        return self._by_mark(talk, at, text, upto)

    def _begun(self, talk: Conversation, at: int) -> str | None:
        """What stands before a message: those before it, and the prompt for an answer."""
        try:
            return self._text(talk, talk.messages[:at], add_generation_prompt=True)
        except UserFault:
            if at:
                raise
            return None  # many templates need a first message

    def _by_mark(self, talk: Conversation, at: int, text: str, upto: str) -> Span:
        content = talk.messages[at].get("content")
        if not isinstance(content, str):
            raise self._unclear(talk)
        around = self._text(talk, _with_mark(talk.messages, at))
        ends = self._text(talk, _with_mark(talk.messages[: at + 1], at)).partition(_MARK)[2]
        before, _, after = around.partition(_MARK)
        start, stop = len(before), len(text) - len(after)
        said = text[start:stop]
        found = _MARK in around and text.startswith(before) and text.endswith(after) and start < stop
        if not found or said.strip() not in content or not after.startswith(ends):
            raise self._unclear(talk)
        return start, _trimmed(text, start, stop + len(ends))

    def _template(self, talk: Conversation) -> str:
        return self._given or self._tokenizer.template(with_tools=talk.tools is not None)

    def _text(self, talk: Conversation, messages: list[dict[str, Any]], **options: Any) -> str:
        return self._rendered(talk, messages, **options)[0]

    def _rendered(self, talk: Conversation, messages: list[dict[str, Any]], **options: Any) -> tuple[str, list[Span]]:
        template = self._template(talk)
        try:
            texts, spans = self._library(
                [messages], tools=talk.tools, chat_template=template, **{**self._special_tokens, **options}
            )
        except Exception as error:  # a template may raise anything, of its own accord too
            raise UserFault(
                f"{self._pointer}/template", f"{talk.where} does not fit the chat template: {error}"
            ) from error
        return texts[0], spans[0] if spans else []

    def _unclear(self, talk: Conversation) -> UserFault:
        return UserFault(
            f"{self._pointer}/train_on",
            f"{talk.where}: this chat template does not show where the assistant's words begin and end; give "
            "`template` with {% generation %} … {% endgeneration %} around them, or train_on `all`",
        )


def _trimmed(text: str, start: int, stop: int) -> int:
    """The end of a turn without the white space behind what ends it; all of it when there is nothing else."""
    said = text[start:stop].rstrip()
    return start + len(said) if said else stop


def _with_mark(messages: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    return [{**message, "content": _MARK} if at == place else message for place, message in enumerate(messages)]
