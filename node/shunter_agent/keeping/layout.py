"""Where everything lies in the agent's folder."""

from __future__ import annotations

import os


class Layout:
    """Paths below the agent's folder; nothing is created here."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.launch = os.path.join(root, "launch.json")
        self.trainer = os.path.join(root, "trainer.zip")
        self.program = os.path.join(root, "agent.pyz")
        self.lock = os.path.join(root, "agent.lock")
        self.agent_lock = os.path.join(root, "inner.lock")
        self.identity = os.path.join(root, "agent.json")
        self.log = os.path.join(root, "agent.log")
        self.journal = os.path.join(root, "journal")
        self.state = os.path.join(root, "state.json")
        self.lease = os.path.join(root, "lease.json")
        self.source = os.path.join(root, "source")
        self.work = os.path.join(root, "work")
        self.inputs = os.path.join(root, "inputs")
        self.env = os.path.join(root, "env")
        self.marks = os.path.join(root, "prepared")
        self.checkpoints = os.path.join(root, "checkpoints")
        self.resume = os.path.join(root, "resume")
        self.holding = os.path.join(root, "holding")
        self.image = os.path.join(root, "image.json")
        self.image_log = os.path.join(root, "image.log")
        self.container_environment = os.path.join(root, "container.env")

    def generation(self, generation: int) -> str:
        """Small files that belong to one generation: its assignment, document, error files."""
        return os.path.join(self.root, "generations", str(generation))

    def mark(self, name: str) -> str:
        """Says what a part of the set-up was made from."""
        return os.path.join(self.marks, f"{name}.json")

    def assignment(self, generation: int) -> str:
        return os.path.join(self.generation(generation), "assignment.json")

    def document(self, generation: int) -> str:
        return os.path.join(self.generation(generation), "document.json")

    def error_file(self, generation: int, rank: int) -> str:
        return os.path.join(self.generation(generation), f"error-rank-{rank}.json")

    def logs(self, generation: int) -> str:
        return os.path.join(self.root, "logs", str(generation))

    def rank_log(self, generation: int, rank: int, stream: str) -> str:
        return os.path.join(self.logs(generation), f"rank-{rank}.{stream}")

    def setup_log(self, generation: int) -> str:
        return os.path.join(self.logs(generation), "setup")

    def outputs(self, generation: int) -> str:
        return os.path.join(self.root, "outputs", str(generation))

    def metrics(self, generation: int, rank: int) -> str:
        return os.path.join(self.root, "metrics", str(generation), f"rank-{rank}.jsonl")
