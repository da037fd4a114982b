"""As DeepSpeed's first example goes: a convolutional net, `--deepspeed --deepspeed_config FILE`, random images."""

import argparse

import deepspeed
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.pool, self.conv2 = nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2 = nn.Linear(16 * 5 * 5, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def add_argument():
    parser = argparse.ArgumentParser(description="CIFAR")
    parser.add_argument("--epochs", default=1, type=int)
    parser.add_argument("--local_rank", type=int, default=-1)
    return deepspeed.add_config_arguments(parser).parse_args()


args = add_argument()
deepspeed.init_distributed()
torch.manual_seed(0)
trainset = TensorDataset(torch.rand(64, 3, 32, 32), torch.randint(0, 10, (64,)))
net = Net()
parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
model_engine, optimizer, trainloader, _ = deepspeed.initialize(
    args=args, model=net, model_parameters=parameters, training_data=trainset
)
for epoch in range(args.epochs):
    for i, (inputs, labels) in enumerate(trainloader):
        inputs, labels = inputs.to(model_engine.device), labels.to(model_engine.device)
        loss = F.cross_entropy(model_engine(inputs), labels)
        model_engine.backward(loss)
        model_engine.step()
        if model_engine.global_rank == 0:
            print(f"[{epoch + 1}, {i + 1:5d}] loss: {loss.item():.3f} stage {model_engine.zero_optimization_stage()}")
print("Finished Training", flush=True)
