"""`python -m shunter_trainer`: one rank."""

import gc
import os
import sys

# The collector finds nothing in a third of a second of imports; it is turned on again before the first step.
gc.disable()

# `-m` puts the source folder first, where a file of the user's called `queue.py` would break torch. It comes back when
# the user's own modules are wanted.
if sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from shunter_trainer.run import main  # noqa: E402

if __name__ == "__main__":
    main()
