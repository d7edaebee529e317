// Plotly asks for its width once, before it has any: tell it again when the panel changes size.
function render({ el }) {
  const watch = new ResizeObserver(() => window.dispatchEvent(new Event("resize")));
  requestAnimationFrame(() => watch.observe(el.parentElement ?? el));
  return () => watch.disconnect();
}
export default { render };
