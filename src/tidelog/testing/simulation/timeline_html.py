"""The timeline of a seed as one HTML page that needs nothing else.

A lane for each node, the faults, the work of the clients, and below the lines of the trace.

Light or dark as the reader's system has it. A click on the picture goes to the lines of that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tidelog.testing.simulation.result import Result
from tidelog.testing.simulation.timeline import Kind, Lane, Moment, lanes, moments

_WIDTH, _LEFT, _RIGHT = 1160, 96, 12
_LANE_HEIGHT, _BAR_HEIGHT, _TOP = 34, 14, 28
_MARKS_PER_LANE_MAX = 4000
_BUCKETS = 232

_STYLE = """
:root { color-scheme: light dark; --page: #fbfbfa; --ink: #1d1f21; --soft: #6b7076;
  --rule: #e2e3e0; --up: #b9c7d6; --led: #2f6db3; --paused: #d9a441; --fault: #c2571a;
  --problem: #c01c28; --quorum: #2f6db3; --replication: #3b7d4f; --life: #555b61;
  --operator: #7a4fa3; --scenario: #1d1f21; --client: #8a9096; --other: #a5aab0; --row: #f2f2ef; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --ink: #e4e6e8; --soft: #9aa0a6;
  --rule: #2c3035; --up: #3a4a5c; --led: #6ba4e8; --paused: #d9a441; --fault: #ef8d4c;
  --problem: #ff6b6b; --quorum: #6ba4e8; --replication: #74bd8b; --life: #a8aeb4;
  --operator: #b891e0; --scenario: #e4e6e8; --client: #7c8288; --other: #5f656b; --row: #1d2024; } }
body { margin: 0 auto; max-width: 1200px; padding: 24px 16px 60px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 8px; }
.soft { color: var(--soft); } .problem { color: var(--problem); }
code, pre, table { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, monospace; }
pre.problem { white-space: pre-wrap; border-left: 3px solid var(--problem); padding: 4px 12px; }
svg { width: 100%; height: auto; display: block; cursor: crosshair; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
td { padding: 1px 8px; vertical-align: top; overflow-wrap: anywhere; }
td:nth-child(1) { width: 76px; text-align: right; color: var(--soft); }
td:nth-child(2) { width: 108px; }
tr:target, tr.here { background: var(--row); outline: 1px solid var(--led); }
.controls { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 8px 0; }
.controls input[type=search] { flex: 1 1 220px; font: inherit; padding: 3px 8px; }
"""

_SCRIPT = """
const rows = [...document.querySelectorAll('tbody tr')];
const boxes = [...document.querySelectorAll('.controls input[type=checkbox]')];
const search = document.querySelector('.controls input[type=search]');
function filter() {
  const kinds = new Set(boxes.filter(b => b.checked).map(b => b.value));
  const text = search.value.toLowerCase();
  for (const row of rows) row.hidden = !kinds.has(row.dataset.kind)
    || (text && !row.textContent.toLowerCase().includes(text));
}
boxes.forEach(b => b.addEventListener('change', filter));
search.addEventListener('input', filter);
const svg = document.querySelector('svg');
svg.addEventListener('click', event => {
  const at = (event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth * WIDTH;
  const time = (at - LEFT) / (WIDTH - LEFT - RIGHT) * END;
  const row = rows.find(r => !r.hidden && +r.dataset.time >= time);
  if (!row) return;
  document.querySelectorAll('.here').forEach(r => r.classList.remove('here'));
  row.classList.add('here');
  row.scrollIntoView({block: 'center'});
});
filter();
"""


def page(result: Result, *, title: str, command: str) -> str:
    """The whole page; `result` has kept its trace."""
    found = moments(result.trace, result.failures)
    end_s = max((moment.time_s for moment in found), default=0.0) or 1.0
    return "".join(_page(result, found, end_s, title, command))


def _page(
    result: Result, found: Sequence[Moment], end_s: float, title: str, command: str
) -> Iterator[str]:
    yield f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
    yield "<meta name=viewport content='width=device-width'>"
    yield f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>"
    yield f"<p class=soft>{escape(result.options)}<br><code>{escape(command)}</code></p>"
    if result.failures:
        yield f"<pre class=problem>{escape(chr(10).join(result.failures))}</pre>"
    else:
        yield "<p>Nothing was found wrong.</p>"
    yield _picture(found, lanes(found), end_s)
    yield (
        "<p class=soft>A node's bar is blue while it leads the quorum, yellow while it stands "
        "still, missing while it is down. Marks are lines of the trace; a click goes to them.</p>"
    )
    if result.faults:
        yield "<h2>Faults</h2><pre>"
        yield escape("\n".join(map(str, result.faults)))
        yield "</pre><p class=soft>Leave some out with <code>--without 3,7</code>.</p>"
    yield "<h2>What happened</h2><div class=controls>"
    for kind in Kind:
        checked = "" if kind in (Kind.CLIENT, Kind.OTHER) else " checked"
        yield f"<label><input type=checkbox value={kind}{checked}> {kind}</label>"
    yield "<input type=search placeholder='only lines with ...' aria-label='only lines with'></div>"
    yield "<table><tbody>"
    for moment in found:
        yield (
            f"<tr data-kind={moment.kind} data-time={moment.time_s}><td>{moment.time_s:.6f}"
            f"<td style='color:var(--{moment.kind})'>{escape(moment.who)}"
            f"<td>{escape(moment.what)}\n"
        )
    yield "</tbody></table>"
    script = _SCRIPT.replace("WIDTH", str(_WIDTH)).replace("LEFT", str(_LEFT))
    script = script.replace("RIGHT", str(_RIGHT)).replace("END", repr(end_s))
    yield f"<script>{script}</script></html>\n"


def _picture(found: Sequence[Moment], columns: Sequence[Lane], end_s: float) -> str:
    height = _TOP + _LANE_HEIGHT * (len(columns) + 2)
    parts = [f"<svg viewBox='0 0 {_WIDTH} {height}' role=img aria-label='timeline of all nodes'>"]
    parts += _axis(end_s, height)
    for row, lane in enumerate(columns):
        parts += _lane(lane, [m for m in found if m.who == lane.name], row, end_s)
    others = [
        m
        for m in found
        if m.kind in (Kind.FAULT, Kind.OPERATOR, Kind.SCENARIO, Kind.PROBLEM)
        and not m.who.startswith("node-")
    ]
    row = len(columns)
    parts.append(_label("around", row))
    parts += [_dot(moment, row, end_s) for moment in others]
    parts.append(_label("clients", row + 1))
    parts += _activity([m for m in found if m.kind is Kind.CLIENT], row + 1, end_s)
    return "".join([*parts, "</svg>"])


def _x(time_s: float, end_s: float) -> float:
    return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * time_s / end_s, 2)


def _y(row: int) -> int:
    return _TOP + row * _LANE_HEIGHT


def _axis(end_s: float, height: int) -> Iterator[str]:
    step_s = next((s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if end_s / s <= 14), 100)
    count = int(end_s / step_s)
    for number in range(count + 1):
        x = _x(number * step_s, end_s)
        yield f"<line x1={x} x2={x} y1=20 y2={height} stroke='var(--rule)'/>"
        yield f"<text x={x} y=14 text-anchor=middle>{number * step_s:g} s</text>"


def _label(name: str, row: int) -> str:
    return f"<text x=0 y={_y(row) + 18}>{escape(name)}</text>"


def _lane(lane: Lane, found: Sequence[Moment], row: int, end_s: float) -> Iterator[str]:
    yield _label(lane.name, row)
    for spans, color, inset in (
        (lane.up, "up", 0),
        (lane.led, "led", 3),
        (lane.paused, "paused", 0),
    ):
        for begin, end in spans:
            x = _x(begin, end_s)
            width = max(_x(end, end_s) - x, 1)
            yield (
                f"<rect x={x} y={_y(row) + 7 + inset} width={width:.2f} "
                f"height={_BAR_HEIGHT - 2 * inset} rx=2 fill='var(--{color})'/>"
            )
    shown = [m for m in found if m.kind not in (Kind.OTHER, Kind.CLIENT)]
    for moment in shown[:_MARKS_PER_LANE_MAX]:
        yield _dot(moment, row, end_s)


def _dot(moment: Moment, row: int, end_s: float) -> str:
    radius = 5 if moment.kind is Kind.PROBLEM else 3
    return (
        f"<circle cx={_x(moment.time_s, end_s)} cy={_y(row) + 14} r={radius} "
        f"fill='var(--{moment.kind})'><title>{moment.time_s:.3f} s {escape(moment.who)}: "
        f"{escape(moment.what)}</title></circle>"
    )


def _activity(found: Sequence[Moment], row: int, end_s: float) -> Iterator[str]:
    """How much the clients were told, as bars."""
    counts = [0] * (_BUCKETS + 1)
    for moment in found:
        counts[int(moment.time_s / end_s * _BUCKETS)] += 1
    most = max(counts) or 1
    width = (_WIDTH - _LEFT - _RIGHT) / _BUCKETS
    for number, count in enumerate(counts):
        if count:
            height = max(24 * count / most, 1)
            yield (
                f"<rect x={_LEFT + number * width:.2f} y={_y(row) + 28 - height:.2f} "
                f"width={width:.2f} height={height:.2f} fill='var(--client)'/>"
            )
