"""Run by alembic, which ``argus_celery.store.setup`` hands an open connection."""

from __future__ import annotations

from alembic import context

VERSION_TABLE = "argus_version"

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
