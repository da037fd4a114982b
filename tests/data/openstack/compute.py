"""A real nova on loopback: the API, conductor, scheduler and compute service of nova's own functional tests, with its
fake hypervisor, a real placement, and SQLite in the folder of `TMPDIR`.

What stands beside nova in a cloud is nova's own stand-in: images, networks, volumes. Tokens are Keystone's
(`identity.py`), which is asked about each.

    ENVIRONMENT/bin/python compute.py KEYSTONE_URL ADMIN_PASSWORD

It prints a line of JSON when it listens, and ends with its standard input. `PUT /control` of `{"hold_builds": N}` lets
the next N servers wait for a scheduler that does not come, `{"slow_ends_s": [S, ...]}` lets the next ends take so long,
and `{"release": true}` lets everything go on.
"""

import json
import logging
import os
import sys
import threading
import unittest

# Before anything of nova: it chooses its kind of threads, and what becomes of output, when it is imported.
os.environ.update(
    OS_NOVA_DISABLE_EVENTLET_PATCHING="1",
    OS_STDOUT_CAPTURE="0",
    OS_STDERR_CAPTURE="0",
    OS_TEST_TIMEOUT="0",
)

# ruff: noqa: E402
from nova import monkey_patch

monkey_patch.patch()

from keystoneauth1 import loading
from nova.conductor import manager as conductor_manager
from nova.conf import CONF
from nova.tests.fixtures import GlanceFixture, NeutronFixture
from nova.tests.functional import integrated_helpers
from nova.virt import fake
from serving import serve

PASTE = os.path.join(sys.prefix, "etc", "nova", "api-paste.ini")


class Control:
    """What is to take longer than it would."""

    def __init__(self):
        self._lock = threading.Lock()
        self._hold_builds = 0
        self._slow_ends_s = []
        self._released = threading.Event()

    def change(self, wanted):
        """Take over what a caller wants."""
        with self._lock:
            self._hold_builds += wanted.get("hold_builds", 0)
            self._slow_ends_s += wanted.get("slow_ends_s", [])
            if wanted.get("release"):
                self._hold_builds, self._slow_ends_s = 0, []
                self._released.set()
                self._released = threading.Event()

    def before_build(self):
        """Wait, where the next build is to wait."""
        with self._lock:
            released, held = self._released, self._hold_builds > 0
            self._hold_builds -= held
        if held:
            released.wait()

    def before_end(self):
        """Wait for as long as the next end is to take."""
        with self._lock:
            released, wait_s = self._released, self._slow_ends_s.pop(0) if self._slow_ends_s else 0.0
        released.wait(wait_s)


CONTROL = Control()


class PatientDriver(fake.FakeDriver):
    """The fake hypervisor: one host with room for some servers with GPUs, whose ends may take a while."""

    vcpus = 1000
    memory_mb = 1_000_000
    local_gb = 100_000

    def destroy(self, *args, **more):
        """As slowly as it was told to."""
        CONTROL.before_end()
        super().destroy(*args, **more)


class Nova(integrated_helpers._IntegratedTestBase):
    """All of nova's services, and a server before its API."""

    CAST_AS_CALL = False
    STUB_KEYSTONE = False

    def _setup_services(self):
        keystone, password = sys.argv[1:]
        CONF.register_opts(loading.get_auth_plugin_conf_options("password"), group="keystone_authtoken")
        self.flags(
            auth_type="password",
            auth_url=keystone,
            www_authenticate_uri=keystone,
            username="admin",
            password=password,
            project_name="admin",
            user_domain_id="default",
            project_domain_id="default",
            interface="public",
            group="keystone_authtoken",
        )
        self.flags(api_paste_config=PASTE, group="wsgi")
        self.flags(compute_driver="fake.PatientDriver")
        self.flags(max_limit=2, group="api")  # things on a page
        super()._setup_services()

    def runTest(self):
        """Serve, until nobody wants it any longer; what nova warns of goes to standard error."""
        heard = logging.StreamHandler()
        heard.setLevel(logging.WARNING)
        logging.getLogger().addHandler(heard)
        facts = {
            "project": NeutronFixture.tenant_id,
            "image": GlanceFixture.image1["id"],
            "network": NeutronFixture.network_1["id"],
        }
        serve(in_front_of(self.api_fixture.app()), facts)


def in_front_of(nova):
    """nova's API, and the way to `CONTROL`."""

    def app(environ, start_response):
        if environ["PATH_INFO"] != "/control":
            return nova(environ, start_response)
        CONTROL.change(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
        start_response("204 No Content", [])
        return []

    return app


def build_when_told(manager, *args, **more):
    """Nova's own way to build servers, when it may."""
    CONTROL.before_build()
    return BUILD(manager, *args, **more)


BUILD = conductor_manager.ComputeTaskManager.schedule_and_build_instances


def main():
    """Run nova as its tests do, and show what went wrong where it did not come up."""
    conductor_manager.ComputeTaskManager.schedule_and_build_instances = build_when_told
    fake.PatientDriver = PatientDriver
    NeutronFixture.network_1["name"] = "Ext-Net"
    result = unittest.TestResult()
    Nova("runTest").run(result)
    sys.exit("\n".join(["nova did not come up", *(trace for _, trace in [*result.errors, *result.failures])]))


if __name__ == "__main__":
    main()
