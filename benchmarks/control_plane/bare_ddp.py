"""By hand: a small transformer language model under DDP; one step, then the time into a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

VOCAB, HIDDEN, LAYERS, HEADS, CONTEXT = 256, 128, 4, 4, 128


class Model(nn.Module):
    """Embedding, causal transformer blocks, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        block = nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(HIDDEN, VOCAB)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens_BT.shape[1])
        return self.head(self.blocks(self.embed(tokens_BT), mask=mask, is_causal=True))  # type: ignore[no-any-return]


def main() -> None:
    """One step of training on random bytes."""
    dist.init_process_group("gloo")
    torch.manual_seed(17)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCAB, (8, CONTEXT + 1))
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    optimizer.step()
    if dist.get_rank() == 0:
        Path(os.environ["FIRST_STEP_FILE"]).write_text(str(time.time()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
