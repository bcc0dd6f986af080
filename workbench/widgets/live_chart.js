// Draws an Altair chart whose named datasets grow: new rows are merged, and drawn at most once per animation frame.

const VEGA_PATIENCE_MS = 5000; // then Python has to send Vega again
const SELECTION_PAUSE_MS = 40; // time between messages of a dragged brush

// The newest rows of one dataset: numbers start to end of a generation (workbench/widgets/live_chart.py says the same).
class Dataset {
  generation = 0;
  start = 0;
  end = 0;
  rows = [];

  // True when no row is missing afterwards.
  take({ generation, start, whole }, rows, maxRows) {
    if (generation < this.generation) return true;
    const newer = generation > this.generation;
    if (!whole && (newer ? start > 0 : start > this.end)) return false;
    if (newer || start > this.end) Object.assign(this, { generation, start, end: start, rows: [] });
    this.rows = this.rows.concat(rows.slice(this.end - start));
    this.end = Math.max(this.end, start + rows.length);
    this.rows.splice(0, this.rows.length - maxRows);
    this.start = this.end - this.rows.length;
    return true;
  }
}

// The rows of a dataset that one view has drawn. Vega changes its rows and removes them by identity, so it gets copies.
class Drawn {
  generation = 0;
  start = 0;
  end = 0;
  tuples = [];

  // The tuples to remove and to insert so that the view shows *dataset*; null when it does.
  follow(dataset) {
    const same = dataset.generation === this.generation;
    if (same && dataset.start === this.start && dataset.end === this.end) return null;
    const remove = this.tuples.splice(0, same ? dataset.start - this.start : this.tuples.length);
    const insert = dataset.rows.slice(same ? Math.max(0, this.end - dataset.start) : 0).map((row) => ({ ...row }));
    this.tuples = this.tuples.concat(insert);
    Object.assign(this, { generation: dataset.generation, start: dataset.start, end: dataset.end });
    return { remove, insert };
  }
}

// One place on the page where the chart is drawn.
class Figure {
  embedded = null;
  drawn = new Map();
  stale = true; // has to be embedded (again)
  frameRequested = false;
  working = false;

  constructor({ model, datasets, el, signal }) {
    Object.assign(this, { model, datasets, signal });
    this.node = element("div", "workbench-live-chart");
    this.node.tabIndex = 0;
    this.node.setAttribute("role", "group");
    this.status = element("div", "workbench-live-chart-words");
    this.status.setAttribute("role", "status");
    // hidden from screen readers: the group's label has the same text
    this.heading = element("div", "workbench-live-chart-heading");
    this.heading.setAttribute("aria-hidden", "true");
    this.place = element("div", "workbench-live-chart-place");
    this.node.append(this.heading, this.place, this.status);
    el.append(this.node);
    this.node.addEventListener("keydown", (event) => this.steer(event));
    this.node.addEventListener("blur", () => this.point(null));
  }

  redraw() {
    this.stale = true;
    this.requestFrame();
  }

  requestFrame() {
    if (this.frameRequested || this.signal.aborted) return;
    this.frameRequested = true;
    requestAnimationFrame(() => this.frame());
  }

  async frame() {
    this.frameRequested = false;
    if (this.working) return; // requests another frame when it is done
    if (this.node.clientWidth === 0) return; // in a closed tab: drawn when it is opened
    this.working = true;
    try {
      const selections = this.stale ? await this.embed() : null;
      await this.catchUp();
      if (selections) await this.listen(selections);
      await this.stretch(); // the cell may have another width than when this began
    } catch (error) {
      this.explain(error);
    } finally {
      this.working = false;
    }
    if (this.stale || this.isBehind()) this.requestFrame();
  }

  // Draw the chart without its rows; returns the selections to restore when they are drawn.
  async embed() {
    this.stale = false;
    const vegaEmbed = await vega(this.model);
    if (this.signal.aborted) return null;
    const { spec, label, stretch, datasets: names, title, subtitle } = this.model.get("_chart");
    this.node.setAttribute("aria-label", label);
    this.write(title, subtitle);
    const [text, mode, renderer] = [JSON.stringify(spec), pageMode(), this.model.get("renderer")];
    const [before, drawnAs] = [this.embedded ? this.spec : null, `${mode} ${renderer}`];
    if (before === text && this.drawnAs === drawnAs) return null; // only its title has changed
    const kept = before === text ? this.selections() : {};
    this.dispose();
    Object.assign(this.node.dataset, { mode, stretch });
    const sized = structuredClone(spec);
    if (stretch === "whole") sized.width = this.node.clientWidth;
    this.embedded = await vegaEmbed(this.place, sized, {
      ...{ actions: false, renderer, config: this.model.get("_modes")[mode] },
      ...{ tooltip: { theme: mode }, logLevel: 1 },
    });
    Object.assign(this, { names, spec: text, drawnAs });
    return kept;
  }

  // Title and subtitle are written above the drawing, where their lines wrap at any width.
  write(title, subtitle) {
    const line = (name, text) => Object.assign(element("div", name), { textContent: text });
    this.heading.replaceChildren(
      ...title.map((text) => line("workbench-live-chart-title", text)),
      ...subtitle.map((text) => line("workbench-live-chart-subtitle", text)),
    );
  }

  get view() {
    return this.embedded.view;
  }

  // Selections and variable parameters survive a change of theme, except those that refer to rows by Vega's numbers.
  selections() {
    const state = { signals: new Set(), data: new Set() };
    for (const { name, select } of this.embedded.spec.params ?? []) {
      if (!select) state.signals.add(name);
      const store = select ? this.view.data(`${name}_store`) : [];
      if (store.length === 0 || store.some((entry) => entry._vgsid_ !== undefined)) continue;
      state.data.add(`${name}_store`);
      // a brush is also remembered by its edges, in pixels and in units of the data
      const fields = store.flatMap((entry) => entry.fields.map(({ field }) => field.replace(/\W/g, "_")));
      for (const part of ["x", "y", ...fields]) state.signals.add(`${name}_${part}`);
    }
    return this.view.getState({ signals: (name) => state.signals.has(name), data: (name) => state.data.has(name) });
  }

  isBehind() {
    const differs = (dataset, drawn) => dataset?.end !== drawn?.end || dataset?.generation !== drawn?.generation;
    return this.embedded && this.names.some((name) => differs(this.datasets.get(name), this.drawn.get(name)));
  }

  async catchUp() {
    if (!this.embedded) return;
    const ends = {};
    const isFirst = this.drawn.size === 0;
    for (const name of this.names) {
      const dataset = this.datasets.get(name);
      if (!dataset) continue;
      if (!this.drawn.has(name)) this.drawn.set(name, new Drawn());
      const change = this.drawn.get(name).follow(dataset);
      if (!change) continue;
      this.view.change(name, this.view.changeset().remove(change.remove).insert(change.insert));
      ends[name] = dataset.end;
    }
    if (Object.keys(ends).length === 0) return;
    await this.view.runAsync();
    // a plot that becomes narrower next to longer labels may need more lines for its legend
    if (isFirst) await this.view.resize().runAsync();
    await this.stretch();
    this.point(null);
    this.node.dispatchEvent(new CustomEvent("drawn", { bubbles: true, detail: ends }));
  }

  // The cell may be resized, hidden and shown again.
  async resize() {
    if (this.node.clientWidth === 0) return;
    if (this.stale || this.isBehind()) this.requestFrame();
    if (this.embedded && !this.working) await this.stretch();
  }

  // The chart takes the width of its cell. The drawn width is measured, since a hidden chart may have any.
  async stretch() {
    const [cell, drawn] = [this.node.clientWidth, this.place.querySelector("svg, canvas")?.getBoundingClientRect().width];
    if (!this.embedded || cell === 0 || Math.abs(cell - drawn) < 1) return;
    if (this.node.dataset.stretch === "whole") {
      await this.view.width(cell).runAsync();
      await this.view.resize().runAsync();
    }
    if (this.node.dataset.stretch === "children") await this.widen(cell - drawn);
  }

  // Charts below each other have no option to fill their container: give them the remaining width.
  async widen(remaining) {
    const isWidth = (name) => /^(child_?width|concat_\d+_width|width)$/i.test(name);
    const { signals } = this.view.getState({ signals: isWidth, data: () => false });
    // if all widths are equal, `width` is the chart's own; otherwise it has no meaning
    if (Object.keys(signals).length > 1) delete signals.width;
    for (const [name, width] of Object.entries(signals)) this.view.signal(name, Math.max(80, width + remaining));
    await this.view.runAsync();
  }

  // Restore *selections*, then report every click and selection to Python.
  async listen(selections) {
    if (selections.data || selections.signals) await this.view.setState(selections);
    this.view.addEventListener("click", (event, item) => {
      if (isData(item)) this.sendClick(item, event.shiftKey);
    });
    for (const { name, select } of (this.embedded.spec.params ?? []).filter((param) => param.select)) {
      let timer = null;
      let reported = JSON.stringify(this.view.data(`${name}_store`));
      const report = () => {
        timer = null;
        const store = this.signal.aborted ? reported : JSON.stringify(this.view.data(`${name}_store`));
        if (store !== reported) this.sendSelection(name, select.type ?? select);
        reported = store;
      };
      this.view.addDataListener(`${name}_store`, () => {
        if (this.model.get("_listening")) timer ??= setTimeout(report, SELECTION_PAUSE_MS);
      });
    }
  }

  sendClick(item, shift) {
    const layer = (item.mark.name ?? "").replace(/_?marks$/, "");
    this.model.send({ kind: "click", datum: plain(item.datum), layer, shift });
  }

  // An entry of a selection's store holds the values of fields (of a brush: their ranges), or Vega's number of
  // the row.
  sendSelection(name, type) {
    const store = this.view.data(`${name}_store`);
    const picked = ({ fields, values }) => Object.fromEntries(fields.map(({ field }, index) => [field, values[index]]));
    const rows = store.map((entry) => (entry._vgsid_ === undefined ? picked(entry) : this.rowOf(entry._vgsid_)));
    const value = type === "interval" ? (rows[0] ?? {}) : rows;
    this.model.send({ kind: "selection", name, type, value: plain(value), store: plain(store) });
  }

  rowOf(number) {
    return allMarks(this.view).find(({ item }) => item.datum._vgsid_ === number)?.item.datum ?? {};
  }

  // Arrow keys move from mark to mark, Enter clicks, Escape ends.
  steer(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const marks = this.embedded ? allMarks(this.view) : [];
    if (event.key in steps && marks.length) {
      const next = this.at === undefined ? (steps[event.key] > 0 ? 0 : -1) : this.at + steps[event.key];
      this.point(marks, (next + marks.length) % marks.length);
    } else if (event.key === "Enter" && marks[this.at]) {
      this.sendClick(marks[this.at].item, event.shiftKey);
    } else if (event.key === "Escape" && this.at !== undefined) {
      this.point(null);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // JupyterLab would move to another cell
  }

  point(marks, at) {
    this.at = marks ? at : undefined;
    this.cursor?.remove();
    this.status.textContent = "";
    if (!marks) return;
    const { item, x, y } = marks[at];
    const description = item.description ?? JSON.stringify(plain(item.datum));
    this.status.textContent = `${at + 1} of ${marks.length}: ${description}`;
    this.cursor = element("div", "workbench-live-chart-cursor");
    const [left, top] = [0, 1].map((side) => this.view.origin()[side] + this.view.padding()[["left", "top"][side]]);
    const { x1, y1, x2, y2 } = item.bounds;
    const box = { left: left + x + x1 - 4, top: top + y + y1 - 4, width: x2 - x1 + 4, height: y2 - y1 + 4 };
    for (const [side, pixels] of Object.entries(box)) this.cursor.style[side] = `${pixels}px`;
    this.place.append(this.cursor);
  }

  explain(error) {
    console.error(error);
    this.dispose();
    const message = element("p");
    message.setAttribute("role", "alert");
    message.textContent = `This chart could not be drawn: ${error.message}`;
    this.place.replaceChildren(message);
  }

  dispose() {
    this.point(null);
    this.embedded?.finalize();
    this.embedded = null;
    this.drawn.clear();
  }
}

function element(tag, name = "") {
  return Object.assign(document.createElement(tag), { className: name });
}

// Whether a mark represents data: not an axis, not a legend, not the rectangle of a brush.
function isData(item) {
  const mark = item?.mark;
  return mark?.role === "mark" && mark.marktype !== "group" && item.datum && !/_brush(_bg)?$/.test(mark.name ?? "");
}

// Every mark that represents data, with the offset of the group it is in.
function allMarks(view) {
  const marks = [];
  const walk = (group, x, y) => {
    for (const mark of group.items ?? []) {
      for (const item of mark.items ?? []) {
        if (mark.marktype === "group") walk(item, x + (item.x ?? 0), y + (item.y ?? 0));
        else if (isData(item) && mark.aria !== false) marks.push({ item, x, y });
      }
    }
  };
  for (const root of view.scenegraph().root.items) walk(root, 0, 0);
  return marks;
}

// The part of a value that can be sent to Python: no functions, no symbols, no numbers that only Vega uses.
function plain(value) {
  return JSON.parse(JSON.stringify(value, (key, inner) => (key === "_vgsid_" ? undefined : inner)));
}

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

// The page's one copy of Vega, which workbench/widgets/vega_runtime.js unpacks.
async function vega(model) {
  const { promise } = ((globalThis.workbenchVega ??= {})[model.get("_vega_lite")] ??= Promise.withResolvers());
  const reminder = setTimeout(() => model.send({ kind: "vega" }), VEGA_PATIENCE_MS);
  try {
    return await promise;
  } finally {
    clearTimeout(reminder);
  }
}

function receive({ model, datasets }, { kind, datasets: parts }, buffers) {
  if (kind !== "rows") return;
  let complete = true;
  for (const [index, part] of parts.entries()) {
    if (!datasets.has(part.name)) datasets.set(part.name, new Dataset());
    const rows = JSON.parse(new TextDecoder().decode(buffers[index]));
    complete = datasets.get(part.name).take(part, rows, model.get("max_rows")) && complete;
  }
  if (!complete) handshake(model, datasets);
}

// Report the rows that are here; Python sends the missing ones.
function handshake(model, datasets) {
  const have = Object.fromEntries([...datasets].map(([name, { generation, end }]) => [name, [generation, end]]));
  model.send({ kind: "hello", have });
}

export default () => {
  const datasets = new Map();
  const figures = new Set();

  function initialize({ model }) {
    model.on("msg:custom", (content, buffers) => {
      receive({ model, datasets }, content, buffers);
      figures.forEach((figure) => figure.requestFrame());
    });
    const redraw = () => figures.forEach((figure) => figure.redraw());
    model.on("change:_chart", () => {
      const names = new Set(model.get("_chart").datasets);
      for (const name of datasets.keys()) if (!names.has(name)) datasets.delete(name);
      redraw();
    });
    model.on("change:renderer", redraw);
    handshake(model, datasets);
  }

  function render({ model, el, signal }) {
    const figure = new Figure({ model, datasets, el, signal });
    figures.add(figure);
    onModeChange(() => figure.redraw(), signal);
    const observer = new ResizeObserver(() => figure.resize());
    observer.observe(figure.node);
    figure.redraw();
    return () => {
      figures.delete(figure);
      observer.disconnect();
      figure.dispose();
    };
  }

  return { initialize, render };
};
