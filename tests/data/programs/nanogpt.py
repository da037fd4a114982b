"""As small repositories train a character-level GPT: settings at the top, `--name=value` on the command line, DDP."""

import os
import sys
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir = "out"
backend = "nccl"
device = "cuda"
dtype = "bfloat16"
compile = True
batch_size = 8
block_size = 32
n_embd = 32
gradient_accumulation_steps = 2
max_iters = 20
learning_rate = 1e-2

for argument in sys.argv[1:]:
    key, value = argument.removeprefix("--").split("=")
    globals()[key] = type(globals()[key])(value) if not isinstance(globals()[key], bool) else value == "True"

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    device = f"cuda:{local_rank}" if device == "cuda" else device
    assert gradient_accumulation_steps % world_size == 0
    gradient_accumulation_steps //= world_size
else:
    rank, world_size = 0, 1
master = rank == 0
if master:
    os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337 + rank)

with open(__file__) as file:
    text = file.read() * 4
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text])


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(len(letters), n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.block = nn.TransformerEncoderLayer(n_embd, 4, 4 * n_embd, 0.0, batch_first=True, norm_first=True)
        self.lm_head = nn.Linear(n_embd, len(letters), bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(idx.shape[1])
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        logits = self.lm_head(self.block(x, src_mask=mask, is_causal=True))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x.to(device), y.to(device)


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
ctx = nullcontext() if dtype == "float32" else torch.autocast(device.split(":")[0], getattr(torch, dtype))
if compile:
    model = torch.compile(model)
if ddp:
    model = DDP(model, device_ids=[local_rank] if "cuda" in device else None)
t0 = time.time()
for iter_num in range(max_iters):
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        x, y = get_batch()
        with ctx:
            logits, loss = model(x, y)
            loss = loss / gradient_accumulation_steps
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    dt, t0 = time.time() - t0, time.time()
    if master:
        print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}, time {dt * 1000:.2f}ms")
if master:
    raw = model.module if ddp else model
    torch.save({"model": raw.state_dict(), "iter_num": max_iters}, os.path.join(out_dir, "ckpt.pt"))
if ddp:
    torch.distributed.barrier()
    destroy_process_group()
