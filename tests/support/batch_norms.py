"""A classifier whose evaluation depends on running means."""

from __future__ import annotations

from torch import Tensor, nn


class Normed(nn.Module):
    """Four classes of vectors of eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        # Without a bias: the norm takes it out again, so that its gradient would be noise.
        self.first = nn.Linear(8, 16, bias=False)
        self.norm = nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.last(self.norm(self.first(x)).relu())
        return logits
