"""`shunter up`: one supervisor for the API, the worker and the embedded Redis on one machine.

It imports the standard library only, so that it stays small: whatever needs the store, Litestar or Celery runs in a
child. Children die with it (`PR_SET_PDEATHSIG`); the agents of local nodes do not, by design.
"""
