"""Celery's own integration suite with every task durable: ``./dev compat``. None of its code is in this repository."""
