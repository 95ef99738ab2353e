"""Every module of this Python's standard library is parsed by Celery workers, one of which is killed half-way.

``python -m examples.stdlib`` (or ``./dev demo``) does it twice, with plain Celery and with argus, and compares.
"""
