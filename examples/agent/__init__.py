"""An agent that answers customers' letters with tools, on workers that are killed again and again while it does.

``python -m examples.agent`` needs nothing but this repository: model, payments and mail are a server on loopback.
"""
