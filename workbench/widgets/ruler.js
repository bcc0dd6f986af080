// The ruler of times: marks lie where their time is, and labels are moved apart until none touches another one.

const SPACE = "http://www.w3.org/2000/svg";
const [AXIS_Y, LEADER_TOP, SIDE, GAP] = [38, 27, 14, 10];
const SHAPES = {
  circle: "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
  square: "M-4.5,-4.5h9v9h-9z",
  diamond: "M0,-6L6,0L0,6L-6,0z",
  "triangle-down": "M-6,-6H6L0,5z",
  stroke: "M0,-8V8",
};

function add(parent, name, attributes = {}, text = "") {
  const node = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent.append(node);
  return node;
}

// Left edges of *labels* (their wanted centre and width, in order) so that neighbours keep GAP, each as near as can be.
function spread(labels, width) {
  const blocks = [];
  for (const label of labels) {
    blocks.push({ labels: [label], width: label.width, wanted: label.centre - label.width / 2 });
    for (;;) {
      const last = blocks.at(-1);
      last.left = Math.max(0, Math.min(last.wanted, width - last.width));
      const before = blocks.at(-2);
      if (!before || before.left + before.width + GAP <= last.left) break;
      blocks.splice(-2, 2, {
        labels: [...before.labels, ...last.labels],
        width: before.width + GAP + last.width,
        wanted:
          (before.labels.length * before.wanted + last.labels.length * (last.wanted - before.width - GAP)) /
          (before.labels.length + last.labels.length),
      });
    }
  }
  for (const block of blocks) {
    let left = block.left;
    for (const label of block.labels) {
      label.left = left;
      left += label.width + GAP;
    }
  }
}

function drawLabels(svg, marks, at, width) {
  const labels = marks
    .map((mark) => {
      const group = add(svg, "g", { class: "wb-ruler-label" });
      const time = add(group, "text", { class: "wb-ruler-time", y: 11, "text-anchor": "middle" }, mark.text);
      const name = add(group, "text", { class: "wb-ruler-name", y: 24, "text-anchor": "middle" }, mark.name);
      const wide = Math.max(time.getComputedTextLength(), name.getComputedTextLength());
      return { mark, group, name, time, width: wide, centre: at(mark.seconds) };
    })
    .sort((a, b) => a.centre - b.centre);
  const needed = () => labels.reduce((sum, label) => sum + label.width + GAP, -GAP);
  if (needed() > width) {
    // too narrow for names: they stay in the tooltips, and in the words for screen readers
    for (const label of labels) {
      label.name.remove();
      label.width = label.time.getComputedTextLength();
    }
  }
  spread(labels, width);
  for (const { group, left, width: wide, centre, mark } of labels) {
    const middle = left + wide / 2;
    group.setAttribute("transform", `translate(${middle},0)`);
    add(group, "title", {}, mark.title);
    add(svg, "path", { class: "wb-ruler-leader", d: `M${middle},${LEADER_TOP}L${centre},${AXIS_Y - 7}` });
  }
}

function drawAxis(svg, ticks, at, width) {
  add(svg, "path", { class: "wb-ruler-axis", d: `M0,${AXIS_Y}H${width}` });
  let free = 0;
  for (const { seconds, text } of ticks) {
    const x = at(seconds);
    add(svg, "path", { class: "wb-ruler-axis", d: `M${x},${AXIS_Y}v4` });
    const label = add(svg, "text", { class: "wb-ruler-tick", x, y: AXIS_Y + 15, "text-anchor": "middle" }, text);
    const half = label.getComputedTextLength() / 2;
    const middle = Math.min(x, width - half); // the last tick may lie at the very end
    label.setAttribute("x", middle);
    if (middle - half < free) label.remove();
    else free = middle + half + GAP;
  }
}

function drawMark(svg, mark, at, width) {
  const { seconds, low, high, shape, filled, colour, title, beyond = [] } = mark;
  const group = add(svg, "g", { class: "wb-ruler-mark" });
  add(group, "title", {}, title);
  if (low !== null && high !== null) {
    const [left, right] = [at(low), at(high)].map((x) => Math.max(0, Math.min(width, x)));
    const line = { d: `M${left},${AXIS_Y}H${right}`, stroke: colour, "stroke-width": 4, "stroke-opacity": 0.35 };
    add(group, "path", line);
    // a band that goes on has an arrowhead at the ruler's end: uncertainty is larger than what is drawn
    for (const [x, away] of [[left, beyond.includes("left") && -1], [right, beyond.includes("right") && 1]])
      if (away) add(group, "path", { class: "wb-ruler-beyond", d: `M${x},${AXIS_Y}l${-9 * away},-6v12z`, fill: colour });
  }
  const drawn = {
    d: SHAPES[shape] ?? SHAPES.circle,
    transform: `translate(${at(seconds)},${AXIS_Y})`,
    stroke: colour,
    "stroke-width": shape === "stroke" ? 3 : 2,
    fill: filled ? colour : "var(--jp-layout-color0, Canvas)",
  };
  add(group, "path", drawn);
}

function draw(el, { marks, gain, note, log, domain, ticks }) {
  const place = document.createElement("div");
  const words = Object.assign(document.createElement("div"), { className: "wb-ruler-note", textContent: note });
  words.title = note;
  el.replaceChildren(place);
  if (gain) {
    const gained = Object.assign(document.createElement("div"), { className: "wb-ruler-gain", title: gain.why });
    gained.classList.toggle("wb-ruler-unsure", !/^[\d.]/.test(gain.text));
    const number = Object.assign(document.createElement("b"), { textContent: gain.text });
    gained.append(number, gain.over);
    el.append(gained);
  }
  el.append(words);
  if (!marks.length) return;
  const svg = add(place, "svg", { "aria-hidden": "true" }); // the headline has the same numbers as text
  const width = place.clientWidth;
  const scale = log ? Math.log : (seconds) => seconds;
  const [from, to] = domain.map(scale);
  const at = (seconds) => SIDE + ((scale(seconds) - from) / (to - from)) * (width - 2 * SIDE);
  drawAxis(svg, ticks, at, width);
  for (const mark of marks) drawMark(svg, mark, at, width);
  drawLabels(svg, marks, at, width);
}

function render({ model, el, signal }) {
  el.classList.add("wb-ruler");
  let [requested, drawnAt] = [false, 0];
  const redraw = () => {
    if (requested || signal.aborted) return;
    requested = true;
    requestAnimationFrame(() => {
      requested = false;
      if (el.clientWidth === 0) return;
      drawnAt = el.clientWidth;
      draw(el, { marks: [], ticks: [], note: "", ...model.get("drawing") });
    });
  };
  const sizes = new ResizeObserver(() => el.clientWidth !== drawnAt && redraw());
  sizes.observe(el);
  model.on("change:drawing", redraw);
  signal.addEventListener("abort", () => sizes.disconnect());
  redraw();
}

export default { render };
