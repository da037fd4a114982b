"""For every test: no other package may load itself into the test process."""

from __future__ import annotations

import pytest_randomly

# DeepSpeed registers a seeder with pytest-randomly, which would import torch (200 MB, 2 s) before the first test and
# hide what our own modules import. Tests that need seeded torch seed it themselves.
pytest_randomly.entrypoint_reseeds = []
