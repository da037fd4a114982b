"""Small tokenizers of the Hugging Face kind, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHATML = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_MARKED = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "the quick brown fox jumps over the lazy dog, and the dog sleeps on",
    "a tokenizer that is made for tests knows a few words of English, and letters",
    "system user assistant hello how are you today I am fine thank you",
]


def write_tokenizer(folder: Path, vocab: int = 400, template: str | None = CHATML, **settings: Any) -> Path:
    """A byte-level BPE tokenizer with the usual special tokens of chat models; settings go to its configuration."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    make: Any = PreTrainedTokenizerFast
    fast = make(tokenizer_object=tokenizer, **{"bos_token": "<s>", "eos_token": "</s>", **settings})
    fast.chat_template = template
    fast.save_pretrained(folder)
    return folder
