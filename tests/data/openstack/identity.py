"""A real Keystone on loopback, with SQLite in the folder of `TMPDIR`: one region, a user `admin`, and one project, of
which he is the administrator too.

    ENVIRONMENT/bin/python identity.py PROJECT_ID REGION ADMIN_PASSWORD

It prints a line of JSON when it listens, and ends with its standard input.
"""

import os
import sys
import tempfile
from pathlib import Path

from serving import serve

FOLDER = Path(tempfile.gettempdir())
CONFIG = f"""
[DEFAULT]
log_file = {FOLDER}/keystone.log
[database]
connection = sqlite:///{FOLDER}/keystone.sqlite
[cache]
enabled = false
[identity]
password_hash_rounds = 4
[fernet_tokens]
key_repository = {FOLDER}/fernet
[fernet_receipts]
key_repository = {FOLDER}/fernet
"""


def main(project, region, password):
    """Furnish it as `keystone-manage` does, and serve."""
    (FOLDER / "keystone.conf").write_text(CONFIG, encoding="utf-8")
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = str(FOLDER / "keystone.conf")
    from keystone.cmd import bootstrap, idutils
    from keystone.common import fernet_utils, provider_api
    from keystone.common.sql import upgrades
    from keystone.server import backends
    from keystone.server.wsgi import initialize_public_application

    keys = fernet_utils.FernetUtils(str(FOLDER / "fernet"), 3, "fernet_tokens")
    keys.create_key_directory()
    keys.initialize_key_repository()
    app = initialize_public_application()
    upgrades.offline_sync_database_to_version()
    backends.load_backends = dict  # the application has them, and they want to be loaded once
    first = bootstrap.Bootstrapper()
    first.admin_username, first.admin_password, first.admin_role_name = "admin", password, "admin"
    first.project_name, first.region_id = "admin", region
    first.bootstrap()
    ours = idutils.Identity()
    ours.project_id, ours.project_name = project, "ours"
    ours.project_setup()
    provider_api.ProviderAPIs.assignment_api.create_grant(
        first.admin_role_id, user_id=first.admin_user_id, project_id=project
    )
    serve(app, {"project": project})


if __name__ == "__main__":
    arguments, sys.argv[1:] = sys.argv[1:], []  # Keystone reads them too
    main(*arguments)
