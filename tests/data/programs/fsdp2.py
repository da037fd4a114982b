"""As examples of FSDP2 go: a mesh over all ranks, `fully_shard` on every layer and the whole, a sharded checkpoint."""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint-dir", default="checkpoints")
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_args()

device_type = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
torch.manual_seed(0)
layers = [nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(3)]
model = nn.Sequential(nn.Linear(8, 32), *layers, nn.Linear(32, 1))
mesh = init_device_mesh(device_type, (dist.get_world_size(),))
for layer in layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
assert all(isinstance(parameter, DTensor) for parameter in model.parameters())

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch.manual_seed(dist.get_rank())
for step in range(args.steps):
    x = torch.randn(16, 8)
    loss = (model(x) - x.sum(dim=-1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=f"{args.checkpoint_dir}/step-{args.steps}")
dist.barrier()
dist.destroy_process_group()
