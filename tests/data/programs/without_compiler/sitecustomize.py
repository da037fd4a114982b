"""On CPUs, DeepSpeed compiles an operator for all-reduce through shared memory at its first start; this says it cannot.

Put on `PYTHONPATH` by the tests, whose programs shall start in seconds.
"""

import os

if "RANK" in os.environ:
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
