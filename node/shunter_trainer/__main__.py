"""`python -m shunter_trainer`: one rank."""

import gc

# The collector finds nothing in a third of a second of imports; the loop turns it on again.
gc.disable()

from shunter_trainer.run import main  # noqa: E402

if __name__ == "__main__":
    main()
