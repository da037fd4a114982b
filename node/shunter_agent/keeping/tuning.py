"""The agent's time constants; an operator may change each by an environment variable `SHUNTER_AGENT_<NAME>`."""

from __future__ import annotations

from typing import Mapping, NamedTuple


class Tuning(NamedTuple):
    """Waits, limits and intervals. Only the start environment of the agent changes them."""

    sync_timeout_s: float = 10.0
    listen_s: float = 45.0
    """So long the service may hold an answer back until there is something to hear; proxies often cut what is silent
    for a minute. 0: the agent does not listen."""
    retry_first_s: float = 0.5
    retry_most_s: float = 15.0
    look_s: float = 0.25
    """How often the files of running ranks are looked at."""
    eager_s: float = 60.0
    """Until the first metrics, but no longer than this, they are looked at every `eager_look_s`."""
    eager_look_s: float = 0.05
    up_after_s: float = 0.5
    """A script's rank counts as up when it has lived this long."""
    fail_grace_s: float = 5.0
    """From SIGTERM to SIGKILL when a rank has failed or the generation is over."""
    blame_s: float = 1.0
    """How long a failure that only names a lost peer waits for the peer's own cause."""
    metrics_s: float = 1.0
    settle_s: float = 30.0
    """A script's checkpoint counts as whole when it did not change for this long."""
    uploads: int = 4
    """So many files of checkpoints and outputs go up at a time."""
    log_chunk_bytes: int = 1 << 20
    log_s: float = 60.0
    journal_bytes: int = 16 << 20
    """Acknowledged records are cut off when they take more than this."""
    power_off: str = "systemctl poweroff || poweroff || shutdown -h now || sudo -n poweroff"
    """Shell command that ends the machine when its lease is over (only where the launch file says so)."""
    call_timeout_s: float = 3.0
    """How long another node of the gang may take to answer on one port."""
    muster_s: float = 10.0
    """For how long a node that does not answer is called again and again."""
    stuck_s: float = 5.0
    """A node that cannot write down what happens says so after this, while ranks run: it may be a matter of moments."""
    farewell_s: float = 60.0
    """How long last uploads may take before the machine is powered off."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Tuning:
        """Defaults, changed by what the environment sets; a value that is no number is an error."""
        defaults = cls()
        given = {
            name: type(getattr(defaults, name))(environment[f"SHUNTER_AGENT_{name.upper()}"])
            for name in cls._fields
            if f"SHUNTER_AGENT_{name.upper()}" in environment
        }
        return defaults._replace(**given)
