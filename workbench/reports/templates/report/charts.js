// Draws every chart of the page in light or dark colours; the frozen picture stays if one cannot be drawn.
const night = window.matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map();

// A specification names the page's colours (workbench/reports/pictures.py); rows are not searched for them.
function inked(value, page, key) {
  if (key === "datasets" || key === "values") return value;
  if (Array.isArray(value)) return value.map((entry) => inked(entry, page));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, inked(entry, page, name)]));
  }
  const name = typeof value === "string" && /^var\((--[a-z-]+)\)$/.exec(value);
  return name ? page.getPropertyValue(name[1]).trim() : value;
}

// Rows are embedded in the page. An address in a specification is refused here, and by the page's policy.
const loader = {
  load: (address) => Promise.reject(new Error(`its data are at ${address}, and a report fetches nothing`)),
  sanitize: (address, options) =>
    options?.context === "href" || String(address).startsWith("data:image/")
      ? Promise.resolve({ href: address, target: "_blank", rel: "noopener noreferrer" })
      : Promise.reject(new Error("a report fetches nothing")),
};

async function draw(figure, index) {
  drawn.get(figure)?.finalize();
  figure.classList.add("wb-drawn");
  try {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const page = getComputedStyle(document.documentElement);
    drawn.set(figure, await vegaEmbed(figure.querySelector(".wb-live"), inked(spec, page), {
      ast: true, loader, renderer: "svg", downloadFileName: `chart-${index + 1}`,
      tooltip: { theme: night.matches ? "dark" : "light" },
      actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
    }));
  } catch (error) {
    figure.classList.remove("wb-drawn");
    figure.querySelector(".wb-note").textContent = `Shown as a picture: ${error.message}.`;
  }
}

function drawAll() {
  document.querySelectorAll(".wb-chart").forEach(draw);
}

night.addEventListener("change", drawAll);
drawAll();
