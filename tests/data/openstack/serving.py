"""How the services here are served: on loopback, a thread for each call, until nobody wants them any longer."""

import json
import os
import socketserver
import sys
import threading
from wsgiref import simple_server


def serve(app, facts):
    """Print the facts and the URL as a line of JSON, serve until standard input ends, and end at once: databases lie in
    the folder of `TMPDIR`, which is the starter's."""
    server = simple_server.make_server("127.0.0.1", 0, app, Server, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}", **facts}), flush=True)
    sys.stdin.read()
    os._exit(0)


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """A thread for each call."""

    daemon_threads = True
    request_queue_size = 64


class Handler(simple_server.WSGIRequestHandler):
    """One that is silent: the services have logs of their own."""

    def log_message(self, *args):
        """Nothing."""
