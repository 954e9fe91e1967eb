"""The style sheet of the page: light or dark as set on the reader's system, for any width and for print."""

from typing import Final

STYLE: Final = """\
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1a1f29; --soft: #596273; --line: #dde1e8; --grid: #e8ebf0;
  --insert: #2f6fd0; --update: #b87a00; --delete: #b3397a; --plain: #3f7f78; --warn: #a8321e; --point: #00000008;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151b; --card: #1b1f27; --ink: #e7eaf0; --soft: #9ea8b9; --line: #323947; --grid: #282e39;
    --insert: #6fa8ff; --update: #e2ac43; --delete: #ef80b5; --plain: #6dbab0; --warn: #ff9a85; --point: #ffffff0a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
}
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 0; }
.lead { color: var(--soft); margin: 0 0 1.5rem; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1.25rem;
  margin: 0 0 1.25rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.4rem, 1fr)); gap: .75rem;
  margin: 0 0 1.25rem; padding: 0; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem 1rem; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.35rem; line-height: 1.35; font-weight: 600; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.tiles dd.more { font-size: .85rem; font-weight: 400; color: var(--soft); white-space: normal; }
.warning { border-left: .3rem solid var(--warn); }
.warning p { margin: .2rem 0; }
.charts { display: grid; gap: 2rem; }
figure { margin: 0; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: .1rem 1rem; align-items: baseline; margin-bottom: .6rem; }
.axis { margin: 0; color: var(--soft); font-size: .85rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; list-style: none; margin: 0 0 0 auto; padding: 0;
  font-size: .85rem; }
.legend i { display: inline-block; width: .75em; height: .75em; border-radius: .15em; margin-right: .4em; }
.plot { position: relative; padding: .5rem 0 2.6rem 3.6rem; }
.plot svg { display: block; width: 100%; height: 11rem; }
.small .plot svg { height: 6.5rem; }
.ticks { position: absolute; left: 0; width: 3.1rem; top: .5rem; bottom: 2.6rem; }
.ticks span { position: absolute; right: 0; transform: translateY(50%); font-size: .78rem; line-height: 1;
  color: var(--soft); font-variant-numeric: tabular-nums; white-space: nowrap; }
.times { position: absolute; left: 3.6rem; right: 0; bottom: 0; height: 2.3rem; font-size: .78rem; line-height: 1.25;
  color: var(--soft); font-variant-numeric: tabular-nums; }
.times span { position: absolute; top: 0; transform: translateX(-50%); text-align: center; white-space: nowrap; }
.times .first { transform: none; text-align: left; margin-left: -.3rem; }
.times .last { transform: translateX(-100%); text-align: right; }
.grid { stroke: var(--grid); stroke-width: 1; vector-effect: non-scaling-stroke; }
.back { fill: transparent; }
g:hover .back { fill: var(--point); }
.insert { fill: var(--insert); background: var(--insert); }
.update { fill: var(--update); background: var(--update); }
.delete { fill: var(--delete); background: var(--delete); }
.plain { fill: var(--plain); background: var(--plain); }
.wide { overflow-x: auto; margin: 0 -1.25rem; padding: 0 1.25rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: .82rem; white-space: nowrap; }
th, td { padding: .38rem .9rem .38rem 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child > * { border-bottom: 0; }
tbody th { color: var(--ink); font-size: .9rem; font-weight: 500; white-space: normal; overflow-wrap: anywhere;
  min-width: 9rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.place { color: var(--soft); }
.place code { white-space: nowrap; }
.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
.bars { width: 28%; min-width: 7rem; vertical-align: middle; }
svg.bar { display: block; width: 100%; height: .8rem; }
code { font: .85rem/1.45 ui-monospace, "Liberation Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
details { margin-top: .9rem; }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; }
summary:focus-visible { outline: 2px solid var(--insert); outline-offset: 2px; }
details .wide { margin-top: .6rem; max-height: 24rem; overflow-y: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.25rem; }
.pair section { min-width: 0; }
footer { color: var(--soft); font-size: .85rem; }
@media (max-width: 40rem) {
  main { padding: 1.25rem .75rem 2rem; }
  section { padding: 1rem; }
  .wide { margin: 0 -1rem; padding: 0 1rem; }
  .times .odd { display: none; }
  .legend { margin-left: 0; }
  .pair { grid-template-columns: minmax(0, 1fr); }
  .plot { padding-left: 3rem; }
  .ticks { width: 2.6rem; }
  .times { left: 3rem; }
}
@media print {
  body { background: none; }
  section, .tiles div { break-inside: avoid; }
}
"""
