"""The looks. Everything is under one class, takes its colours from the page, and knows light, dark and print."""

from __future__ import annotations

import re

# What a value takes, in a notebook as in a report. Lines and shades are mixed from the colour of the text.
VALUE = """
.tbv {
  --tbv-line: color-mix(in srgb, currentColor 16%, transparent);
  --tbv-soft: color-mix(in srgb, currentColor 6%, transparent);
  --tbv-accent: #2f6fde; --tbv-warn: #c2410c;
  font: 13px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums; max-width: 1080px;
}
@media (prefers-color-scheme: dark) { .tbv { --tbv-accent: #79a8ff; --tbv-warn: #fb923c; } }
.tbv * { box-sizing: border-box; }
.tbv .tbv-head { display: flex; flex-wrap: wrap; gap: 2px 12px; align-items: baseline; margin: 0 0 6px; }
.tbv .tbv-name { font-weight: 600; overflow-wrap: anywhere; min-width: 0; }
.tbv .tbv-kind { opacity: .72; overflow-wrap: anywhere; }
.tbv .tbv-dim { opacity: .62; font-weight: 400; }
.tbv .tbv-body { display: flex; flex-wrap: wrap; gap: 10px 32px; align-items: flex-start; }
.tbv .tbv-told { flex: 1 1 270px; max-width: 470px; min-width: 0; }
.tbv dl.tbv-facts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(78px, 1fr)); gap: 6px 10px; margin: 0 0 8px;
}
.tbv dl div { min-width: 0; }
.tbv dt { font-size: 11px; opacity: .62; font-weight: 400; margin: 0; }
.tbv dd { margin: 0; overflow-wrap: anywhere; }
.tbv .tbv-warn { color: var(--tbv-warn); font-weight: 600; }
.tbv figure { margin: 0; max-width: 100%; }
.tbv figcaption { font-size: 11px; line-height: 1.4; opacity: .7; max-width: 260px; margin-top: 3px; }
.tbv .tbv-ends { display: flex; justify-content: space-between; max-width: none; gap: 8px; }
.tbv svg { display: block; width: 260px; max-width: 100%; height: 64px; color: var(--tbv-accent); overflow: visible; }
.tbv .tbv-bars { fill: currentColor; }
.tbv .tbv-zero { stroke: var(--tbv-warn); stroke-width: 1; vector-effect: non-scaling-stroke; opacity: .8; }
.tbv .tbv-line {
  fill: none; stroke: currentColor; stroke-width: 1.5; vector-effect: non-scaling-stroke;
  stroke-linejoin: round; stroke-linecap: round;
}
.tbv .tbv-grid { stroke: var(--tbv-line); vector-effect: non-scaling-stroke; }
.tbv svg.tbv-spark { width: 120px; height: 26px; }
.tbv img { display: block; max-width: 100%; height: auto; border-radius: 3px; margin: 0; }
.tbv img.tbv-photo { max-width: 132px; max-height: 132px; width: auto; }
.tbv img.tbv-image { image-rendering: pixelated; }
.tbv img.tbv-heatmap { image-rendering: pixelated; outline: 1px solid var(--tbv-line); }
.tbv .tbv-strip { display: flex; flex-wrap: wrap; gap: 6px; max-width: 520px; }
.tbv .tbv-strip img { flex: none; }
.tbv i.tbv-nan, .tbv i.tbv-inf {
  display: inline-block; width: 9px; height: 9px; border-radius: 2px; background: #db27a9;
}
.tbv i.tbv-inf { background: #cab200; }
.tbv .tbv-values {
  display: block; font: 12px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; margin: 0;
  padding: 0; overflow-wrap: anywhere; white-space: pre-wrap; background: none; color: inherit; opacity: .85;
}
.tbv p.tbv-note { font-size: 11px; opacity: .7; margin: 6px 0 0; overflow-wrap: anywhere; }
.tbv table { border-collapse: collapse; margin: 4px 0; font-size: 12.5px; border: 0; }
.tbv .tbv-wide { overflow-x: auto; max-width: 100%; }
.tbv th, .tbv td {
  text-align: left; padding: 3px 14px 3px 0; border: 0; border-bottom: 1px solid var(--tbv-line);
  vertical-align: top; background: none; max-width: 420px; overflow-wrap: anywhere;
}
.tbv thead th { font-weight: 400; font-size: 11px; opacity: .62; overflow-wrap: normal; }
.tbv td.tbv-n, .tbv th.tbv-n { text-align: right; white-space: nowrap; }
.tbv tbody th { font-weight: 500; }
.tbv .tbv-bar {
  display: inline-block; width: 110px; height: 8px; border-radius: 2px; background: var(--tbv-soft);
  vertical-align: middle; overflow: hidden;
}
.tbv .tbv-bar b { display: block; height: 100%; background: var(--tbv-accent); min-width: 1px; }
"""

# What a page around them takes.
PAGE = """
:root { color-scheme: light dark; }
body { margin: 0; background: #fbfbfa; color: #1d1f23; }
@media (prefers-color-scheme: dark) { body { background: #15171a; color: #e4e6ea; } }
.tbv.tbv-page { max-width: 1160px; margin: 0 auto; padding: 36px 28px 64px; font-size: 14px; }
.tbv-page h1 {
  font-size: 26px; line-height: 1.25; font-weight: 650; letter-spacing: -.01em; margin: 0; overflow-wrap: anywhere;
}
.tbv-page h2 {
  font-size: 18px; font-weight: 650; margin: 40px 0 10px; padding-top: 16px; border-top: 1px solid var(--tbv-line);
}
.tbv-page h3 { font-size: 14px; font-weight: 600; margin: 0; min-width: 0; overflow-wrap: anywhere; }
.tbv-page .tbv-eyebrow { font-size: 12px; opacity: .62; margin: 0 0 4px; }
.tbv-page .tbv-path { opacity: .7; margin: 4px 0 0; overflow-wrap: anywhere; }
.tbv-page dl.tbv-key {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 14px 24px; margin: 22px 0 0;
}
.tbv-page dl.tbv-key dt { font-size: 12px; }
.tbv-page dl.tbv-key dd { font-size: 19px; font-weight: 600; line-height: 1.3; }
.tbv-page .tbv-looked {
  margin: 22px 0 0; padding: 10px 14px; background: var(--tbv-soft); border-radius: 6px; font-size: 13px;
  overflow-wrap: anywhere;
}
.tbv-page .tbv-looked ul { margin: 4px 0 0; padding-left: 18px; }
.tbv-page nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 18px 0 0; font-size: 13px; }
.tbv-page a { color: var(--tbv-accent); text-decoration: none; }
.tbv-page a:hover { text-decoration: underline; }
.tbv-page a.tbv-self { color: inherit; }
.tbv-page article { padding: 18px 0; border-bottom: 1px solid var(--tbv-line); break-inside: avoid; }
.tbv-page article:last-child { border-bottom: 0; }
.tbv-page tr:target { background: var(--tbv-soft); }
.tbv-page article:target { background: var(--tbv-soft); box-shadow: 0 0 0 10px var(--tbv-soft); }
.tbv-page article .tbv-head { justify-content: space-between; margin-bottom: 10px; }
.tbv-page dl.tbv-facts { font-size: 13px; }
.tbv-page table { width: 100%; font-size: 13px; }
.tbv-page .tbv-meta th { width: 240px; }
.tbv-page article > figure { width: fit-content; }
.tbv-page details { margin: 8px 0; }
.tbv-page summary { cursor: pointer; overflow-wrap: anywhere; }
.tbv-page .tbv-tree { font-size: 13px; margin-top: 18px; }
.tbv-page .tbv-tree details { margin: 0; }
.tbv-page .tbv-tree details > details, .tbv-page .tbv-tree details > p { margin-left: 18px; }
.tbv-page .tbv-tree summary, .tbv-page .tbv-tree p {
  display: flex; gap: 12px; align-items: center; margin: 0; padding: 3px 0; list-style: none;
}
.tbv-page .tbv-tree summary::-webkit-details-marker { display: none; }
.tbv-page .tbv-tree summary::before, .tbv-page .tbv-tree p::before {
  content: ""; flex: 0 0 10px; width: 10px; opacity: .6; text-align: center;
}
.tbv-page .tbv-tree summary::before { content: "\\25B8"; }
.tbv-page .tbv-tree details[open] > summary::before { content: "\\25BE"; }
.tbv-page .tbv-tree summary:hover { background: var(--tbv-soft); }
.tbv-page .tbv-each { display: flex; flex-wrap: wrap; gap: 0 8px; font-size: 12px; }
.tbv-page a.tbv-warn, .tbv-page .tbv-error a { color: inherit; text-decoration: underline; }
.tbv-page a.tbv-warn { color: var(--tbv-warn); }
.tbv-page .tbv-label { flex: 1 1 auto; min-width: 0; overflow-wrap: anywhere; }
.tbv-page .tbv-tree .tbv-bar { flex: 0 0 200px; width: 200px; }
.tbv-page .tbv-tree .tbv-n { flex: 0 0 68px; text-align: right; white-space: nowrap; }
.tbv-page .tbv-stack {
  display: flex; height: 12px; border-radius: 3px; overflow: hidden; background: var(--tbv-soft); margin: 10px 0;
}
.tbv-page .tbv-stack b { display: block; min-width: 1px; }
.tbv-page .tbv-legend { display: flex; flex-wrap: wrap; gap: 2px 24px; margin: 0; font-size: 13px; }
.tbv-page i.tbv-dot { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 6px; }
.tbv-page .tbv-curves {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); gap: 30px 36px;
  margin-top: 14px;
}
.tbv-page svg.tbv-curve { width: 100%; height: 130px; margin: 5px 0; }
.tbv-page .tbv-curves figcaption { max-width: none; }
.tbv-page .tbv-list th, .tbv-page .tbv-features th { max-width: 460px; }
.tbv-page .tbv-list td:last-child, .tbv-page .tbv-list thead th:last-child { text-align: right; white-space: nowrap; }
.tbv-page .tbv-rows td { min-width: 44px; max-width: 340px; padding-top: 7px; padding-bottom: 7px; }
.tbv-page .tbv-rows tbody th { padding-top: 7px; }
.tbv-page .tbv-rows tbody th.tbv-dim { white-space: nowrap; min-width: 24px; }
.tbv-page .tbv-rows td .tbv-dim { font-size: 12px; }
.tbv-page .tbv-rows .tbv-text { white-space: pre-wrap; }
.tbv-page .tbv-features svg { width: 190px; height: 34px; }
.tbv-page .tbv-features td:last-child { padding-right: 0; width: 190px; }
.tbv-page .tbv-stacked table, .tbv-page .tbv-stacked tbody { display: block; }
.tbv-page .tbv-stacked thead { display: none; }
.tbv-page .tbv-stacked tr {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 4px 22px; padding: 14px 0;
  border-bottom: 1px solid var(--tbv-line);
}
.tbv-page .tbv-stacked tbody th { grid-column: 1 / -1; border: 0; padding: 0; }
.tbv-page .tbv-stacked td { border: 0; padding: 2px 0; max-width: none; min-width: 0; }
.tbv-page .tbv-stacked td:has(.tbv-text) { grid-column: span 2; }
.tbv-page .tbv-stacked td[data-label]::before {
  content: attr(data-label); display: block; font-size: 11px; opacity: .62; overflow-wrap: anywhere;
}
.tbv-page footer { margin-top: 48px; font-size: 12px; opacity: .6; }
.tbv-page .tbv-error { color: var(--tbv-warn); margin: 10px 0 0; overflow-wrap: anywhere; }
@media (max-width: 720px) {
  .tbv.tbv-page { padding: 22px 16px 40px; }
  .tbv-page h1 { font-size: 21px; }
  .tbv-page .tbv-meta th { width: 35%; }
  .tbv-page dl.tbv-key { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .tbv-page dl.tbv-key dd { font-size: 16px; }
  .tbv-page .tbv-tree .tbv-bar { flex-basis: 44px; width: 44px; }
  .tbv-page .tbv-tree details > details, .tbv-page .tbv-tree details > p { margin-left: 10px; }
  .tbv-page .tbv-tree summary, .tbv-page .tbv-tree p { gap: 8px; }
  .tbv-page .tbv-list td:nth-child(3) { overflow-wrap: normal; }
  .tbv-page .tbv-rows table, .tbv-page .tbv-rows tbody, .tbv-page .tbv-rows tbody th { display: block; }
  .tbv-page .tbv-rows thead { display: none; }
  .tbv-page .tbv-rows tr {
    display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 6px 18px; padding: 14px 0;
    border-bottom: 1px solid var(--tbv-line);
  }
  .tbv-page .tbv-rows td, .tbv-page .tbv-rows tbody th {
    border: 0; padding: 0; text-align: left; white-space: normal; max-width: none; min-width: 0;
  }
  .tbv-page .tbv-rows tbody th { grid-column: 1 / -1; }
  .tbv-page .tbv-stacked td:has(.tbv-text) { grid-column: auto; }
  .tbv-page .tbv-rows td:empty { display: none; }
  .tbv-page .tbv-rows td[data-label]::before {
    content: attr(data-label); display: block; font-size: 11px; opacity: .62; overflow-wrap: anywhere;
  }
  .tbv-page .tbv-features td:last-child { width: auto; }
}
@media print {
  body { background: none; color: #000; }
  .tbv-page nav { display: none; }
  .tbv.tbv-page { max-width: none; padding: 0; }
  .tbv-page a { color: inherit; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

_SPACES = re.compile(r"\s*([{};,])\s*|\s+")


def compact(css: str) -> str:
    """The same in fewer bytes."""
    return _SPACES.sub(lambda found: found[1] or " ", css).replace(": ", ":").replace(";}", "}").strip()
