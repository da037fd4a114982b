"""`shunter rehearse`: the same document on two processes of this machine, with the model cut to two layers.

Train, evaluate, save, be killed, resume, export: what can go wrong for the document goes wrong here, before anything is
rented. `cutting` says what is made smaller, `acts` what is played, `gang` starts ranks as an agent would.
"""
