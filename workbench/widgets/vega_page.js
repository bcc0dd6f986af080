// What each widget that Vega draws needs of its page; workbench/widgets/live_chart.py puts it before their own module.

// The theme of JupyterLab; elsewhere that of the browser.
function pageMode() {
  const light = document.body.dataset.jpThemeLight;
  const dark = light === undefined ? matchMedia("(prefers-color-scheme: dark)").matches : light === "false";
  return dark ? "dark" : "light";
}

function onModeChange(listener, signal) {
  let mode = pageMode();
  const check = () => {
    if (pageMode() === mode) return;
    mode = pageMode();
    listener();
  };
  const observer = new MutationObserver(check);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  signal.addEventListener("abort", () => observer.disconnect());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", check, { signal });
}

// The page's one copy of Vega, which workbench/widgets/vega_runtime.js unpacks; after *patienceMs* Python sends it again.
async function vega(model, patienceMs) {
  const { promise } = ((globalThis.workbenchVega ??= {})[model.get("_vega_lite")] ??= Promise.withResolvers());
  const reminder = setTimeout(() => model.send({ kind: "vega" }), patienceMs);
  try {
    return await promise;
  } finally {
    clearTimeout(reminder);
  }
}
