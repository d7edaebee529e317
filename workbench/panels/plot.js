// Shows a figure and what has changed in it since; plotly.js comes once a page, whichever asks first.
const CONFIG = { displayModeBar: false };

async function load(model) {
  const library = await model.widget_manager.get_model(model.get("library").replace("IPY_MODEL_", ""));
  const code = new Blob([library.get("code")]).stream().pipeThrough(new DecompressionStream("gzip"));
  const headers = { "Content-Type": "text/javascript" };
  const url = URL.createObjectURL(await new Response(code, { headers }).blob());
  await import(url);
  URL.revokeObjectURL(url);
  return globalThis.Plotly;
}

function plotly(model) {
  globalThis.workbenchPlotly ??= load(model).catch((error) => {
    delete globalThis.workbenchPlotly; // the next figure tries again
    throw error;
  });
  return globalThis.workbenchPlotly;
}

// Plotly writes into what it is given.
function shown(model, width) {
  const { data, layout } = structuredClone(model.get("first"));
  const patch = structuredClone(model.get("patch"));
  const traces = data.map((trace, i) => ({ ...trace, ...patch.data[i] }));
  // A constant uirevision keeps where the reader has zoomed to.
  return [traces, { width, uirevision: "kept", ...layout, ...patch.layout }];
}

// At once, then at most once a frame, always the newest.
function paced(draw) {
  let resting = false, missed = false;
  return function now() {
    missed = resting;
    if (resting) return;
    resting = true;
    draw();
    requestAnimationFrame(() => { resting = false; if (missed) now(); });
  };
}

async function watch(model, plot, closed) {
  const Plotly = await plotly(model);
  if (closed.aborted) return;
  const draw = paced(() => {
    const width = plot.clientWidth;
    if (width && !closed.aborted) Plotly.react(plot, ...shown(model, width), CONFIG);
  });
  const resized = new ResizeObserver(draw); // calls once at the start, when there is a width
  resized.observe(plot);
  model.on("change:patch", draw);
  closed.addEventListener("abort", () => {
    resized.disconnect();
    model.off("change:patch", draw);
    Plotly.purge(plot);
  });
}

function render({ model, el }) {
  const plot = document.createElement("div");
  const closing = new AbortController();
  plot.style.minHeight = `${model.get("first").layout.height ?? 450}px`; // no jump when it comes
  el.append(plot);
  watch(model, plot, closing.signal).catch((error) => {
    plot.textContent = `The figure cannot be drawn: ${error.message}`;
  });
  return () => closing.abort();
}
export default { render };
