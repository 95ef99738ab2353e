"""Bars and signs as elements of an SVG: what they look like tells how an attempt ended, without the colour."""

from __future__ import annotations

from argus_celery.cli.timeline.looks import LOOKS


def shape(kind: str, start: float, known: float, end: float, y: float, thick: float) -> str:
    """The bar of an attempt; a lost one was known to run until ``known``."""
    form = LOOKS[kind].shape
    if form == "broken":
        return _rect("silent", known, y, max(end - known, 0), thick) + _rect(kind, start, y, known - start, thick)
    width = max(end - start - 0.6, 1.2)
    if form == "full":
        return _rect(kind, start, y, width, thick)
    if form == "half":
        return _rect(kind, start, y + thick / 2, width, thick / 2)
    line = f'<path class="{kind}" d="M{start:.1f} {y + thick / 2:g}h{width:.1f}"/>' if form == "struck" else ""
    return _rect(f"{kind} hollow", start, y + 0.6, width, thick - 1.2) + line


def _rect(style: str, x: float, y: float, width: float, height: float) -> str:
    wide = max(width, 1.2) if style != "silent" else width
    return f'<rect class="{style}" x="{x:.1f}" y="{y:g}" width="{wide:.1f}" height="{height:g}"/>'


def sign(kind: str, x: float, y: float, size: float = 0.9) -> str:
    path = LOOKS[kind].mark
    return (
        f'<g transform="translate({x:.1f} {y:g}) scale({size})">'
        f'<path class="halo" d="{path}"/><path class="sign {kind}-sign" d="{path}"/></g>'
    )


def swatch(kind: str) -> str:
    """A small bar of this kind, for a legend in a page; its colours are the page's."""
    form, tone = LOOKS[kind].shape, f"var(--{kind})"
    bar = f'<rect x="2" y="2.5" width="28" height="11" fill="{tone}"/>'
    if form == "half":
        bar = f'<rect x="2" y="8" width="28" height="5.5" fill="{tone}"/>'
    elif form in ("hollow", "struck"):
        line = f'<path d="M2 8H30" stroke="{tone}"/>' if form == "struck" else ""
        bar = f'<rect x="2.6" y="3.1" width="26.8" height="9.8" fill="none" stroke="{tone}" stroke-width="1.2"/>{line}'
    elif form == "broken":
        lines = "".join(f"M{x} 13.5l5 -11" for x in (19, 23, 27))
        bar = f'<rect x="2" y="2.5" width="15" height="11" fill="{tone}"/><path d="{lines}" stroke="{tone}"/>'
    path, at = LOOKS[kind].mark, 17 if form == "broken" else 30
    mark = (
        f'<g transform="translate({at} 8)" fill="none" stroke-linecap="round"><path d="{path}" stroke="var(--paper)"'
        f' stroke-width="5"/><path d="{path}" stroke="{tone}" stroke-width="1.8"/></g>'
    )
    return f'<svg viewBox="0 0 38 16" aria-hidden="true">{bar}{mark if path else ""}</svg>'
