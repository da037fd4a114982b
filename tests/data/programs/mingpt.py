"""As tutorials on multi-GPU training lay it out: a config, a `Trainer` with a DDP model, snapshots, a sampler."""

import argparse
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class TrainerConfig:
    max_epochs: int = 2
    batch_size: int = 16
    snapshot_path: str = "snapshot.pt"
    grad_norm_clip: float = 1.0


class AdditionDataset(Dataset):
    """Digits of a + b = c."""

    def __init__(self, count=256):
        generator = torch.Generator().manual_seed(0)
        self.pairs = torch.randint(0, 100, (count, 2), generator=generator)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        a, b = self.pairs[index].tolist()
        digits = torch.tensor([int(digit) for digit in f"{a:02d}{b:02d}{a + b:03d}"])
        return digits[:-1], digits[1:]


class Trainer:
    def __init__(self, config, model, dataset):
        self.config = config
        self.global_rank = int(os.environ["RANK"])
        self.epochs_run = 0
        self.loader = DataLoader(dataset, config.batch_size, sampler=DistributedSampler(dataset))
        if os.path.exists(config.snapshot_path):
            snapshot = torch.load(config.snapshot_path, weights_only=True)
            model.load_state_dict(snapshot["model_state"])
            self.epochs_run = snapshot["finished_epoch"] + 1
            print(f"Resuming training from snapshot at Epoch {self.epochs_run}")
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.model = DDP(model)

    def run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(self.loader):
            logits = self.model(x)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)
            self.optimizer.step()
            if step % 4 == 0:
                print(
                    f"[RANK{self.global_rank}] Epoch {epoch} | Iter {step} | Train Loss {loss.item():.5f}", flush=True
                )

    def train(self):
        for epoch in range(self.epochs_run, self.config.max_epochs):
            self.run_epoch(epoch)
            if self.global_rank == 0:
                state = {"model_state": self.model.module.state_dict(), "finished_epoch": epoch}
                torch.save(state, self.config.snapshot_path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--snapshot_path", default="snapshot.pt")
    parser.add_argument("--max_epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))
    Trainer(TrainerConfig(args.max_epochs, snapshot_path=args.snapshot_path), model, AdditionDataset()).train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
