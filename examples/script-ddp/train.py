"""A DDP training as people write them: plain torch, nothing of Shunter in it. It runs the same under torchrun:

torchrun --nproc-per-node 2 train.py --steps 200
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    options = parse_options()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")

    torch.manual_seed(17)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    first_step = load(options.resume, model, optimizer) if options.resume else 0
    ddp = DistributedDataParallel(model, device_ids=[device.index] if device.index is not None else None)
    batches = endless(two_spirals(4096), first_step)

    for step in range(first_step + 1, options.steps + 1):
        inputs, targets = (part.to(device) for part in next(batches))
        loss = nn.functional.cross_entropy(ddp(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}/{options.steps}: loss {loss.item():.4f}", flush=True)
        if rank == 0 and options.checkpoints and step % options.save_every == 0:
            save(options.checkpoints / f"checkpoint-{step:06}", model, optimizer, step)

    if rank == 0 and options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), options.output / "model.pt")
    dist.barrier()
    dist.destroy_process_group()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Tell two spirals apart with a small network.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--checkpoints", type=Path, help="folder for checkpoints; none are written without it")
    parser.add_argument("--resume", type=Path, help="checkpoint to go on from")
    parser.add_argument("--output", type=Path, help="folder for the trained model")
    return parser.parse_args()


def two_spirals(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % 2
    turn = torch.rand(count, generator=generator) * 6 + 0.5
    angle = turn + labels * torch.pi
    points = torch.stack((turn * angle.cos(), turn * angle.sin()), dim=1) / 6
    return TensorDataset(points + 0.01 * torch.randn(count, 2, generator=generator), labels)


def endless(dataset: TensorDataset, skipped: int):
    sampler = DistributedSampler(dataset, seed=17)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    epoch, skipped = divmod(skipped, len(loader))
    while True:
        sampler.set_epoch(epoch)
        for place, batch in enumerate(loader):
            if place >= skipped:
                yield batch
        epoch, skipped = epoch + 1, 0


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "state.pt")
    (folder / "complete").touch()  # written last: a folder without it is not a whole checkpoint


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    state = torch.load(folder / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


if __name__ == "__main__":
    main()
