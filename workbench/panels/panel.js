// Plotly asks for its width once, before it has any: tell it again when its panel has another.
function render({ el }) {
  const panel = () => el.parentElement ?? el;
  const misfit = (plot) => plot._fullLayout && plot._fullLayout.width !== plot.clientWidth;
  const watch = new ResizeObserver(() => {
    const plots = Array.from(panel().querySelectorAll(".js-plotly-plot"));
    if (plots.some(misfit)) window.dispatchEvent(new Event("resize"));
  });
  requestAnimationFrame(() => watch.observe(panel()));
  return () => watch.disconnect();
}
export default { render };
