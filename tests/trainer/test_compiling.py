"""Compilation: the same training in less time, under every strategy."""

from pathlib import Path
from typing import Any

import pytest
from shunter_trainer.failures import UserFault
from shunter_trainer.models.compiling import compile_blocks
from support.ranks import Ranks
from support.strategies import ALL, strategy
from support.trainings import document
from torch import nn


@pytest.mark.parametrize("compiler", [None, "a-compiler-of-mine"])
def test_a_node_without_a_compiler_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str | None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if compiler:
        monkeypatch.setenv("CXX", compiler)
    else:
        monkeypatch.delenv("CXX", raising=False)

    with pytest.raises(UserFault) as refused:
        compile_blocks(nn.Linear(2, 2))

    assert refused.value.pointer == "/workload/compile"
    assert (compiler or "environment.setup") in str(refused.value)


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where all keep what they compiled."""
    folder = tmp_path_factory.mktemp("compiled")
    return {name: str(folder / name.lower()) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.trainer
@pytest.mark.timeout(300)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ALL)
def test_a_compiled_training_has_the_losses_of_an_ordinary_one(
    start_ranks: Any, caches: dict[str, str], name: str, precision: str
) -> None:
    ordinary = {**document(precision=precision), "strategy": strategy(name, 2)}
    compiled = {**ordinary, "workload": {**ordinary["workload"], "compile": True}}

    plain: Ranks = start_ranks(ordinary, 2, name="ordinary")
    assert plain.end() == [0, 0], plain.stderr()
    faster: Ranks = start_ranks(compiled, 2, name="compiled", **caches)
    assert faster.end() == [0, 0], faster.stderr()

    assert faster.values("loss") == pytest.approx(plain.values("loss"), abs={"fp32": 5e-6, "bf16": 5e-3}[precision])
    assert len(faster.values("loss")) == 8
    assert any(Path(caches["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.so"))
