// The style sheet of the report.
#pragma once

namespace steelyard {

inline constexpr const char* kPageStyle = R"css(
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2329; --soft: #5c6771; --rule: #d9dee3;
  --grid: #e9edf0; --c1: #2c64a4; --c2: #b8541b; --c3: #3d7f4a; --c4: #85509b;
  --bar: #7d98b5; --range: #2c64a414; --limit: #b8541b; --level: #b8541b66; --box: #f6f8f9; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15191d; --ink: #e2e6ea; --soft: #9aa5af; --rule: #353d45; --grid: #262d34;
    --c1: #79aee6; --c2: #eb9a63; --c3: #83c490; --c4: #c79bdb;
    --bar: #6f8aa6; --range: #79aee61f; --limit: #eb9a63; --level: #eb9a6366; --box: #1c2228; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 68rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .6rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--rule); }
p { margin: .4rem 0 .8rem; max-width: 46rem; }
.soft, figcaption, caption, .note { color: var(--soft); font-size: .87rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.25rem; margin: 1rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .3rem 0; }
caption { text-align: left; padding-bottom: .35rem; }
th, td { padding: .22rem .8rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; }
thead th { border-bottom: 1px solid var(--rule); }
tbody tr + tr td, tbody tr + tr th { border-top: 1px solid var(--grid); }
th.name, td.name { text-align: left; padding-left: 0; font-weight: 400; }
thead th.name { font-weight: 600; }
.group { border-left: 1px solid var(--rule); }
thead tr:first-child th.group { text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr));
  gap: 1.25rem 1.75rem; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); }
figure { margin: 0; } svg { display: block; width: 100%; height: auto; }
figcaption { font-variant-numeric: tabular-nums; line-height: 1.4; padding: 0 .2rem; }
.missing { background: var(--box); border-left: 3px solid var(--limit); padding: .6rem 1rem; }
.missing ul { margin: .3rem 0 0; padding-left: 1.1rem; } .missing li { overflow-wrap: anywhere; }
pre { background: var(--box); padding: .8rem 1rem; overflow-x: auto; font-size: .85rem;
  line-height: 1.45; }
summary { cursor: pointer; }
svg text { font: 11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--soft);
  font-variant-numeric: tabular-nums; }
svg text.title { font-size: 12.5px; font-weight: 600; fill: var(--ink); }
.axis { stroke: var(--soft); stroke-width: 1; } .grid { stroke: var(--grid); stroke-width: 1; }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); }
.line.c3 { stroke: var(--c3); } .line.c4 { stroke: var(--c4); }
.dot.c1 { fill: var(--c1); } .dot.c2 { fill: var(--c2); }
.dot.c3 { fill: var(--c3); } .dot.c4 { fill: var(--c4); }
.p1 { fill: var(--c1); } .p2 { fill: var(--c2); } .p3 { fill: var(--c4); } .p4 { fill: var(--soft); opacity: .35; }
.p5 { fill: var(--c1); opacity: .55; } .p6 { fill: var(--c3); } .p7 { fill: var(--soft); opacity: .75; }
.p8 { fill: var(--ink); }
.bar { fill: var(--bar); } .range { fill: var(--range); }
.limit { stroke: var(--limit); stroke-width: 1.5; } .level { stroke: var(--level); stroke-width: 1; }
td.meter { position: relative; min-width: 6.5rem; } td.meter i { position: relative; font-style: normal; }
td.meter span { position: absolute; left: .4rem; top: .3rem; bottom: .3rem; width: var(--share); max-width: calc(100% - .8rem);
  background: color-mix(in srgb, var(--c1) 30%, transparent); }
.confusion th span { writing-mode: vertical-rl; transform: rotate(180deg); font-weight: 400; }
.confusion td { padding: .2rem .45rem; text-align: center; }
.confusion td.right { background: color-mix(in srgb, var(--c3) var(--share), transparent); }
.confusion td.wrong { background: color-mix(in srgb, var(--c2) var(--share), transparent); }
.worst { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: 1rem; }
.worst img { width: 7rem; height: 7rem; object-fit: contain; background: var(--box); image-rendering: pixelated; }
.worst figcaption { overflow-wrap: anywhere; } .worst strong { color: var(--ink); font-weight: 600; }
.key { display: inline-block; width: 1.1em; height: .8em; vertical-align: -.05em; margin-right: .3em; }
.key.range { background: var(--range); border: 1px solid var(--rule); }
.key.limit, .key.level { width: 2px; background: var(--limit); } .key.level { background: var(--level); }
@media print { body { max-width: none; padding: 0; } figure { break-inside: avoid; } }
)css";

}  // namespace steelyard
