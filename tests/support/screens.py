"""Terminals, from their other side."""

import os
from contextlib import suppress


class Screen:
    """What a terminal was sent so far."""

    def __init__(self, master: int) -> None:
        self._master = master
        os.set_blocking(master, False)
        self.text = ""

    def read(self) -> str:
        with suppress(OSError):  # nothing is there yet, or nobody is left
            self.text += os.read(self._master, 65536).decode(errors="replace")
        return self.text

    def drain(self) -> None:
        """Until the other side has closed."""
        os.set_blocking(self._master, True)
        try:
            while data := os.read(self._master, 65536):
                self.text += data.decode(errors="replace")
        except OSError:  # how a terminal says that nobody is left
            return
