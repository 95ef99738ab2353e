"""The worker's app: pytest-celery writes the imports, the name and the configuration into this text."""

from __future__ import annotations

import os

from celery import Celery

from argus_celery import Argus

imports = None

app = Celery("celery_test_app")
config = None

if config:
    app.config_from_object(config)

app.conf.result_backend = "argus://"
argus = Argus(
    app,
    store=os.environ.get("SMOKE_STORE_URL"),  # the test imports this module too, to read its text
    lease_ttl=6,
    sweep_interval=3,
    dispatch_ttl=3,
    dispatch_ttl_max=30,
)
