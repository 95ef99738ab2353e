"""How each end of an attempt is shown: by sign and shape first, and by colour too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    sign: str
    ascii: str
    style: str
    """Of the terminal."""
    shape: str
    """Of the bar: ``full``, ``half``, ``hollow``, ``struck`` or ``broken`` (silence follows)."""
    light: str
    dark: str
    mark: str
    """The sign as a path of an SVG, ten wide and high around the middle."""
    means: str
    rank: int
    """Where several share one place, the highest is seen."""


LOOKS = {
    "succeeded": Look("", "", "blue", "full", "#5b8db8", "#5f9bcf", "", "ended well", 0),
    "running": Look("▸", ">", "bright_cyan", "full", "#128a7d", "#3cc4b2", "M-2-4L3 0L-2 4", "has not ended", 1),
    "suspended": Look("‖", "=", "white", "half", "#7a7f87", "#a2a9b3", "M-2-4V4M2-4V4", "waits, or was replaced", 2),
    "retried": Look(
        "↻",
        "r",
        "yellow",
        "half",
        "#b97f00",
        "#e8b339",
        "M3.6-1.8A4 4 0 1 0 4 1M4.2-4.6V-1.4H1",
        "asked to run again",
        3,
    ),
    "released": Look(
        "»",
        "+",
        "magenta",
        "hollow",
        "#7460b8",
        "#ac9cea",
        "M-4-4L0 0L-4 4M0-4L4 0L0 4",
        "given back by a worker that stopped",
        4,
    ),
    "refused": Look(
        "∅", "0", "white", "struck", "#7a7f87", "#a2a9b3", "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0M-2 0H2", "not run", 5
    ),
    "cancelled": Look(
        "⊘",
        "/",
        "white",
        "struck",
        "#565b63",
        "#c3c8cf",
        "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0M-2.8 2.8L2.8-2.8",
        "revoked or cancelled",
        6,
    ),
    "failed": Look(
        "!", "!", "bold bright_red", "full", "#cf5313", "#f58548", "M0-5V1.2M0 3.4V4.8", "ended with an error", 7
    ),
    "lost": Look(
        "?",
        "?",
        "bold magenta",
        "broken",
        "#8e2a8a",
        "#e08be0",
        "M-2.6-2.6A2.7 2.7 0 1 1 0 .4V1.4M0 4V4.4",
        "its worker fell silent",
        8,
    ),
    "killed": Look("✗", "x", "bold red", "broken", "#b0123b", "#ff6685", "M-4-4L4 4M4-4L-4 4", "its process died", 9),
}

_PAPER = {
    "paper": ("#ffffff", "#14171c"),
    "floor": ("#f2f4f7", "#1d2229"),
    "ink": ("#1c2128", "#e6e9ee"),
    "dim": ("#59616c", "#9aa4b1"),
    "grid": ("#dfe3e8", "#2b323b"),
    "rule": ("#b9c0c9", "#48515d"),
}


def styles() -> str:
    """The colours of a drawing, for light and for dark, without variables: few viewers of SVG know those."""
    light, dark = ("".join(_rules(at)) for at in (0, 1))
    return f"\n{light}@media (prefers-color-scheme:dark){{\n{dark}}}"


def variables() -> str:
    """The same for a page."""
    both = {**_PAPER, **{kind: (look.light, look.dark) for kind, look in LOOKS.items()}}
    light, dark = ("".join(f"--{name}:{colours[at]};" for name, colours in both.items()) for at in (0, 1))
    return f":root{{color-scheme:light dark;{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _rules(at: int) -> list[str]:
    colour = {name: colours[at] for name, colours in _PAPER.items()}
    rules = [f".{name}{{fill:{colour[name]}}}\n" for name in ("paper", "floor", "ink", "dim")]
    rules += [f".{name}{{fill:none;stroke:{colour[name]}}}\n" for name in ("grid", "rule")]
    rules += [f".halo{{stroke:{colour['paper']}}}\n", f".cut{{fill:{colour['grid']};fill-opacity:.6}}\n"]
    for kind, look in LOOKS.items():
        tone = (look.light, look.dark)[at]
        rules.append(f".{kind}{{fill:{tone}}}.{kind}.hollow,path.{kind}{{stroke:{tone}}}\n")
        rules.append(f".{kind}-sign,.{kind}-link{{stroke:{tone}}}\n")
    return [*rules, ".silent{fill:url(#argus-silent)}\n"]
