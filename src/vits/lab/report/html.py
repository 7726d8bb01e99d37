"""Parts of an HTML page: escaped text, tables that scroll, and pictures embedded in the page."""

import base64
import html
import itertools
import math
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

MINUS, TIMES, NOTHING = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Cells = Sequence[str]


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def escape(text: str) -> str:
    """Text as HTML; `Markup` is returned unchanged."""
    return text if isinstance(text, Markup) else html.escape(text)


def element(tag: str, *content: str, **attributes: str) -> Markup:
    """An HTML element. In names of attributes a trailing underscore is dropped, and others become hyphens."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for name, value in attributes.items()
    )
    return Markup(f"<{tag}{named}>{''.join(map(escape, content))}</{tag}>")


def number(value: float | int) -> str:
    """A number with about three digits: 12,345, 12.3, 0.0123, and powers of ten below 0.001."""
    size = abs(value)
    if value == 0.0 or size >= 1e-3:
        return decimal(value, 0 if value == int(value) else max(0, 2 - math.floor(math.log10(size))))
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} {TIMES} 10{str(int(power)).translate(SUPERSCRIPTS)}".replace("-", MINUS)


def decimal(value: float | int, places: int, sign: str = "-") -> str:
    """A number with this many places, commas between thousands and a true minus; sign "+" adds a plus."""
    return f"{value:{sign},.{places}f}".replace("-", MINUS)


def table(caption: str, columns: Cells, rows: Iterable[Cells], *, texts: int = 1) -> Markup:
    """A table. The first `texts` columns are words; rows with the same first cell share one heading."""
    head = element("tr", *(element("th", name, scope="col", class_=_kind(i, texts)) for i, name in enumerate(columns)))
    groups = [list(group) for _, group in itertools.groupby(rows, key=lambda row: row[0])]
    bodies = [element("tbody", *(_row(group, i, texts) for i in range(len(group)))) for group in groups]
    content = element("table", element("caption", element("span", caption)), element("thead", head), *bodies)
    return element("div", content, class_="scroll", role="region", tabindex="0", aria_label=caption)


def _row(group: list[Cells], i: int, texts: int) -> Markup:
    first, *others = group[i]
    span = {"rowspan": str(len(group))} if len(group) > 1 else {}
    heading = [element("th", first, scope="rowgroup" if span else "row", class_="first", **span)] if i == 0 else []
    return element(
        "tr", *heading, *(element("td", cell, class_=_kind(j, texts)) for j, cell in enumerate(others, start=1))
    )


def _kind(column: int, texts: int) -> str:
    return "first" if column == 0 else "words" if column < texts else "number"


def picture(path: Path, description: str, caption: str) -> Markup:
    """A PNG file embedded in the page, at 1.6 image pixels per page pixel, so that it is sharp in print.

    `--readable` is the width below which its text would be too small: narrower screens scroll instead.
    """
    content = path.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    data = base64.b64encode(content).decode()
    image = (
        f'<img src="data:image/png;base64,{data}" alt="{html.escape(description)}"'
        f' width="{width * 5 // 8}" height="{height * 5 // 8}" style="--readable: {width * 2 // 5}px">'
    )
    frame = element("div", Markup(image), class_="scroll", role="region", tabindex="0", aria_label=caption)
    return element("figure", frame, element("figcaption", caption))


def interval(low: float, mean: float, high: float, limit: float) -> Markup:
    """A drawing of a mean and its interval on a scale from -limit to limit, with arrows where it ends outside.

    It is hidden from screen readers, because the table has the numbers.
    """
    half, middle, edge = 84.0, 9.0, 4.0

    def place(value: float) -> float:
        return half + (half - edge) * min(max(value / limit, -1.0), 1.0)

    left, right = place(low), place(high)
    parts = [f'<line class="zero" x1="{half}" x2="{half}" y1="0" y2="{2 * middle}"/>']
    parts.append(f'<line class="bar" x1="{left:.1f}" x2="{right:.1f}" y1="{middle}" y2="{middle}"/>')
    if abs(mean) <= limit:
        parts.append(f'<circle cx="{place(mean):.1f}" cy="{middle}" r="3.2"/>')
    for beyond, tip, back in ((low < -limit, 0.0, edge + 2.0), (high > limit, 2 * half, 2 * half - edge - 2.0)):
        if beyond:
            parts.append(f'<path d="M{tip} {middle}L{back} {middle - 4}V{middle + 4}Z"/>')
    size = f'width="{2 * half:.0f}" height="{2 * middle:.0f}" viewBox="0 0 {2 * half:.0f} {2 * middle:.0f}"'
    return Markup(f'<svg class="interval" aria-hidden="true" {size}>{"".join(parts)}</svg>')
