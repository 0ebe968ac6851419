"""The page's style and its script: both small, both within the page, and no other may run (`POLICY`)."""

from __future__ import annotations

import base64
import hashlib

CSS = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--raised:#f6f8fa;--edge:#d0d7de;--link:#0550ae;
--alarm:#b3261e;--shade:#1b1f2444}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4af;--paper:#0f1318;--raised:#171c23;--edge:#3d444d;
--link:#79b8ff;--alarm:#ff8f87;--shade:#e6edf355}}
*{box-sizing:border-box}
body{margin:0;font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
color:var(--ink);background:var(--paper)}
main,header,nav,footer{max-width:84rem;margin:0 auto;padding:0 1rem}
body:has(.two) :is(main,header,nav,footer){max-width:99rem}
h1{font:600 1.35rem/1.4 ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere;margin:1.2rem 0 .4rem}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--edge)}
h3{font-size:1rem;margin:1.2rem 0 .4rem;overflow-wrap:anywhere}
a{color:var(--link)}p,li{overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;list-style:none}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--paper);padding:.3rem}
.soft{color:var(--soft)}code,.code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.9em}
dl.sums{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.5rem,1fr));gap:.6rem;margin:1rem 0}
dl.sums div{background:var(--raised);border:1px solid var(--edge);border-radius:6px;padding:.5rem .7rem}
dl.sums dt{font-size:.85rem;color:var(--soft)}dl.sums dd{margin:0;font-size:1.15rem;font-weight:600}
dl.sums dd small{display:block;font-weight:400;font-size:.8rem;color:var(--soft)}
.warning{border-left:4px solid var(--alarm);padding:.2rem .8rem;background:var(--raised)}
.scrolls{overflow-x:auto;max-width:100%;margin:.4rem 0;background:
linear-gradient(to right,var(--paper) 30%,transparent) left/2.4rem 100% local no-repeat,
linear-gradient(to left,var(--paper) 30%,transparent) right -1px top/2.4rem 100% local no-repeat,
linear-gradient(to right,var(--shade),transparent) left/.7rem 100% scroll no-repeat,
linear-gradient(to left,var(--shade),transparent) right/.7rem 100% scroll no-repeat}
.scrolls:focus-visible,button:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--link);
outline-offset:2px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(34rem,100%),1fr));gap:0 1.6rem}.two>*{min-width:0}
.row{display:flex;flex-wrap:wrap;gap:1.2rem}.row>*{max-width:100%}
table{border-collapse:collapse;font-size:.9rem}caption{text-align:left;color:var(--soft);padding:.2rem 0}
th,td{border-bottom:1px solid var(--edge);padding:.25rem .7rem .25rem 0;text-align:left;
vertical-align:top;white-space:nowrap}
td.wide{white-space:normal;min-width:11rem;overflow-wrap:anywhere}td.wide:has(.code){min-width:22rem}
th button{all:unset;cursor:pointer;font-weight:600}th button::after{content:" \\2195";color:var(--soft)}
th[aria-sort=ascending] button::after{content:" \\2191"}th[aria-sort=descending] button::after{content:" \\2193"}
pre{background:var(--raised);border:1px solid var(--edge);border-radius:6px;padding:.7rem;margin:0;overflow:visible;
width:max-content;min-width:100%;font-size:.85rem}
button.copy{font:inherit;font-size:.85rem;color:var(--ink);background:var(--raised);border:1px solid var(--edge);
border-radius:6px;padding:.15rem .6rem;cursor:pointer}
h3 .code,h1{white-space:pre-wrap}details{margin:.4rem 0}summary{cursor:pointer;overflow-wrap:anywhere}
svg.shardc-picture{display:block;max-width:none}
"""

SCRIPT = """
"use strict";
document.querySelectorAll("table.sorts thead button").forEach(function (button) {
  button.addEventListener("click", function () {
    var head = button.closest("th"), column = Array.prototype.indexOf.call(head.parentNode.children, head);
    var body = button.closest("table").tBodies[0], down = head.getAttribute("aria-sort") === "ascending";
    function key(row) {
      var cell = row.children[column], told = cell.getAttribute("data-key");
      return told === null ? cell.textContent : Number(told);
    }
    var rows = Array.prototype.slice.call(body.rows).sort(function (a, b) {
      var x = key(a), y = key(b), order = x < y ? -1 : x > y ? 1 : 0;
      return down ? -order : order;
    });
    Array.prototype.forEach.call(head.parentNode.children, function (other) { other.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.forEach(function (row) { body.appendChild(row); });
  });
});
document.querySelectorAll("button.copy").forEach(function (button) {
  button.addEventListener("click", function () {
    var text = document.getElementById(button.getAttribute("data-of")).textContent;
    function said(word) { button.textContent = word; setTimeout(function () { button.textContent = "copy"; }, 1500); }
    function selected() {
      var range = document.createRange(), chosen = window.getSelection();
      range.selectNodeContents(document.getElementById(button.getAttribute("data-of")));
      chosen.removeAllRanges(); chosen.addRange(range);
      said(document.execCommand && document.execCommand("copy") ? "copied" : "selected");
    }
    if (!navigator.clipboard) { selected(); return; }
    navigator.clipboard.writeText(text).then(function () { said("copied"); }, selected);
  });
});
"""


def policy() -> str:
    """What the page may do: nothing over a network, and no script but this one."""
    hashed = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'; base-uri 'none'"
