// Draws an Altair chart whose named datasets grow: new rows are merged, and drawn at most once per animation frame.

const VEGA_PATIENCE_MS = 5000; // then Python has to send Vega again
const SELECTION_PAUSE_MS = 40; // time between messages of a dragged brush
const LOWEST_PIXELS = 150; // a chart that fills what is around it is not lower: then that scrolls
const WORDS_PIXELS = 22; // for the line that says which mark the keyboard has reached
const DRAG_PIXELS = 4; // who moves the mouse so far while it is down does not click

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
    // keys are for the chart that was used last; JupyterLab takes the focus when the mouse goes down
    this.node.addEventListener("pointerup", () => this.node.focus({ preventScroll: true }));
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
      await this.setValues();
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
    const vegaEmbed = await vega(this.model, VEGA_PATIENCE_MS);
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
    if (this.fills) {
      Object.assign(sized, { height: this.room(), autosize: { ...spec.autosize, type: "fit" } });
      // what is above the chart may grow in it
      for (const part of [this.surrounding, ...this.surrounding.children]) this.observer?.observe(part);
    }
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

  // Whether the chart takes the height of what is around it: one plot does, charts below each other do not.
  get fills() {
    return this.model.get("fills") && this.node.dataset.stretch === "whole" && this.surrounding;
  }

  get surrounding() {
    return this.node.closest(this.model.get("fills") || null);
  }

  // The height below the place of the drawing that is visible without scrolling.
  room() {
    const around = this.surrounding;
    const above = this.place.getBoundingClientRect().top - around.getBoundingClientRect().top + around.scrollTop;
    return Math.max(LOWEST_PIXELS, Math.floor(around.clientHeight - above - this.below(around)));
  }

  // Paddings between the drawing and the lower end of *around*.
  below(around) {
    let pixels = WORDS_PIXELS;
    for (let at = this.node.parentElement; at && at !== around; at = at.parentElement) {
      const { paddingBottom, marginBottom, borderBottomWidth } = getComputedStyle(at);
      for (const size of [paddingBottom, marginBottom, borderBottomWidth]) pixels += parseFloat(size) || 0;
    }
    return pixels;
  }

  // Parameters that Python sets; other charts in this place may not have them.
  async setValues() {
    const known = new Set((this.embedded?.spec.params ?? []).map(({ name }) => name));
    const news = Object.entries(this.model.get("_values")).filter(
      ([name, value]) => known.has(name) && this.view.signal(name) !== value,
    );
    for (const [name, value] of news) this.view.signal(name, value);
    if (news.length) await this.view.runAsync();
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
    const pointed = this.at === undefined ? null : allMarks(this.view)[this.at]?.item.description;
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
    this.pointAgain(pointed);
    this.node.dispatchEvent(new CustomEvent("drawn", { bubbles: true, detail: ends }));
  }

  // The cell may be resized, hidden and shown again.
  async resize() {
    if (this.node.clientWidth === 0) return;
    if (this.stale || this.isBehind()) this.requestFrame();
    if (this.embedded && !this.working) await this.stretch();
  }

  // The chart takes the width of its cell, and, where it fills what is around it, that height. The drawn sizes are
  // measured, since a hidden chart may have any.
  async stretch() {
    const [cell, picture] = [this.node.clientWidth, this.place.querySelector("svg, canvas")?.getBoundingClientRect()];
    const drawn = picture?.width;
    if (!this.embedded || cell === 0) return;
    if (this.fills && Math.abs(picture.height - this.room()) >= 1) {
      await this.view.height(this.room()).runAsync();
      await this.view.resize().runAsync();
    }
    if (Math.abs(cell - drawn) < 1) return;
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
    let pressed = [0, 0];
    this.view.addEventListener("pointerdown", (event) => (pressed = [event.clientX, event.clientY]));
    this.view.addEventListener("click", (event, item) => {
      const moved = Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]);
      if (isData(item) && moved < DRAG_PIXELS) this.sendClick(item, event.shiftKey);
    });
    for (const { name, select } of (this.embedded.spec.params ?? []).filter((param) => param.select)) {
      let timer = null;
      let store = JSON.stringify(this.view.data(`${name}_store`));
      let reported = store;
      const report = () => {
        clearTimeout(timer);
        timer = null;
        if (store !== reported && !this.signal.aborted) this.sendSelection(name, select.type ?? select, JSON.parse(store));
        reported = store;
      };
      this.view.addDataListener(`${name}_store`, (_, tuples) => {
        if (!this.model.get("_listening")) return;
        if (tuples.length === 0 && timer) report(); // what a drag has reached is told before it ends
        store = JSON.stringify(tuples);
        timer ??= setTimeout(report, SELECTION_PAUSE_MS);
      });
    }
  }

  sendClick(item, shift) {
    const layer = (item.mark.name ?? "").replace(/_?marks$/, "");
    this.model.send({ kind: "click", datum: plain(item.datum), layer, shift });
  }

  // An entry of a selection's store holds the values of fields (of a brush: their ranges), or Vega's number of
  // the row.
  sendSelection(name, type, store) {
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
    } else if (event.key === "Escape" && (this.at !== undefined || this.model.get("_listening"))) {
      this.point(null);
      this.model.send({ kind: "escape" });
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

  // Who walks with the arrow keys stays at the mark with this description, if it is still there; it is not said again.
  pointAgain(description) {
    const marks = description ? allMarks(this.view) : [];
    const at = marks.findIndex(({ item }) => item.description === description);
    const spoken = this.status.textContent;
    this.point(at < 0 ? null : marks, at);
    if (at >= 0) this.status.textContent = spoken;
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
    model.on("change:_values", () => figures.forEach((figure) => figure.requestFrame()));
    handshake(model, datasets);
  }

  function render({ model, el, signal }) {
    const figure = new Figure({ model, datasets, el, signal });
    figures.add(figure);
    onModeChange(() => figure.redraw(), signal);
    const observer = new ResizeObserver(() => figure.resize());
    observer.observe(figure.node);
    figure.observer = observer;
    figure.redraw();
    return () => {
      figures.delete(figure);
      observer.disconnect();
      figure.dispose();
    };
  }

  return { initialize, render };
};
