"""How panels look: labels as wide as their text, groups that wrap, the reader's theme."""

from collections.abc import Iterator, Sequence

import ipywidgets as widgets

ROW = {"display": "flex", "flex_flow": "row wrap", "width": "100%", "align_items": "stretch"}

# Plotly writes its ink into every text; inside a notebook the theme knows better.
_CSS = """<style>
.js-plotly-plot .xtick text, .js-plotly-plot .ytick text, .js-plotly-plot .infolayer text,
.js-plotly-plot .textpoint text, .js-plotly-plot .bartext {
  fill: var(--jp-content-font-color1, #808080) !important; }
.wb-group { border: 1px solid var(--jp-border-color2, #80808066); border-radius: 6px;
  padding: 4px 10px 8px; margin: 0 8px 8px 0; }
.wb-group .widget-label { color: var(--jp-content-font-color1); }
.wb-title { font-weight: 600; color: var(--jp-content-font-color1); }
.wb-alert { color: var(--jp-content-font-color0); border-left: 4px solid #D55E00;
  padding: 4px 10px; margin: 2px 0 6px; background: rgba(213,94,0,0.12); }
.wb-good { border-left: 4px solid #009E73; padding: 4px 10px; margin: 2px 0;
  background: rgba(0,158,115,0.12); color: var(--jp-content-font-color0); }
.wb-tiles { display: flex; flex-wrap: wrap; gap: 8px; margin: 2px 0 6px; }
.wb-tile { flex: 1 1 190px; border: 1px solid var(--jp-border-color2, #80808066);
  border-radius: 6px; padding: 6px 12px; line-height: 1.35; color: var(--jp-content-font-color1); }
.wb-tile b { display: block; font-size: 1.45em; color: var(--jp-content-font-color0); }
.wb-tile.wb-bad { border-left: 4px solid #D55E00; }
.wb-tile.wb-ok { border-left: 4px solid #009E73; }
.wb-table { border-collapse: collapse; color: var(--jp-content-font-color1); }
.wb-table th, .wb-table td { text-align: left; padding: 3px 16px 3px 0;
  border-bottom: 1px solid var(--jp-border-color2, #80808066); }
.wb-table .wb-number { text-align: right; font-variant-numeric: tabular-nums; }
.wb-command { color: var(--jp-content-font-color0); background: var(--jp-layout-color2, #80808022);
  padding: 6px 10px; border-radius: 4px; display: inline-block;
  user-select: all; white-space: pre-wrap; }
</style>"""


def sheet() -> widgets.HTML:
    """Return the style sheet as a widget that takes no room."""
    return widgets.HTML(_CSS, layout={"height": "0", "margin": "0", "overflow": "hidden"})


def group(title: str, controls: Sequence[widgets.Widget]) -> widgets.VBox:
    """Return `controls` under a `title`, their labels aligned and wide enough for the longest."""
    labelled = [w for c in controls for w in family(c) if getattr(w, "description", "")]
    labels = [w for w in labelled if not isinstance(w, widgets.Button)]
    width = max((len(w.description) for w in labels), default=0) + 1
    for widget in labels:
        widget.style.description_width = f"{width}ch"
    head = widgets.HTML(f'<span class="wb-title">{title}</span>')
    box = widgets.VBox([head, *controls], layout={"flex": "1 1 300px", "overflow": "hidden"})
    box.add_class("wb-group")
    return box


def family(widget: widgets.Widget) -> Iterator[widgets.Widget]:
    """Yield a widget and everything inside it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from family(child)
