"""A site of a thousand pages is crawled by one task, whose worker is killed again and again.

``python -m examples.crawl`` needs nothing but this repository: the site is a server on loopback.
"""
