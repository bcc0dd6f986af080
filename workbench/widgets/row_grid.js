// A grid that DataTables draws: the rows in sight come from Python, others while a person scrolls.

const BUFFER = 2; // screens of rows that are drawn at once

// The page's one copy of DataTables, unpacked from the widget's state.
function library(model) {
  const loaded = ((globalThis.workbenchTables ??= {})[model.get("_version")] ??= (async () => {
    const packed = new Blob([model.get("_library")]).stream().pipeThrough(new DecompressionStream("gzip"));
    const url = URL.createObjectURL(new Blob([await new Response(packed).text()], { type: "text/javascript" }));
    const style = Object.assign(document.createElement("style"), { textContent: model.get("_style") });
    document.head.prepend(style); // before ours, which has the page's colours
    try {
      return (await import(url)).default;
    } finally {
      URL.revokeObjectURL(url);
    }
  })());
  return loaded;
}

// One place on the page where the grid is drawn.
class Grid {
  table = null;
  working = false;
  callbacks = new Map(); // DataTables' callbacks by number of the draw
  fresh = null; // rows that Python sent by itself, of which the next draw is made

  constructor({ model, el, signal }) {
    Object.assign(this, { model, signal });
    this.node = element("div", "workbench-row-grid");
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", model.get("_label"));
    el.append(this.node);
    this.node.addEventListener("click", (event) => this.clicked(event));
    this.node.addEventListener("keydown", (event) => this.steer(event));
  }

  get body() {
    return this.node.querySelector(".dt-scroll-body");
  }

  async build() {
    if (this.working || this.signal.aborted || this.node.clientWidth === 0) return;
    const columns = this.model.get("_columns");
    if (columns.length === 0) return;
    this.working = true;
    try {
      const DataTable = await library(this.model);
      if (this.signal.aborted) return;
      this.scrolled = this.table && { scrollTop: this.body.scrollTop, scrollLeft: this.body.scrollLeft };
      this.dispose();
      this.drawnColumns = JSON.stringify(columns);
      const place = element("table", "display compact nowrap");
      this.node.replaceChildren(place);
      this.table = new DataTable(place, this.options(DataTable, columns));
      this.table.on("order.dt", () => this.sorted());
      this.body.tabIndex = 0;
    } finally {
      this.working = false;
    }
    if (this.drawnColumns !== JSON.stringify(this.model.get("_columns"))) this.build();
  }

  options(DataTable, columns) {
    const text = DataTable.render.text();
    const shown = columns.map(({ name, title, is_number: isNumber, width, sorts }, index) => ({
      name, data: index + 2, title: escaped(title), render: text, orderable: sorts, orderSequence: ["asc", "desc"],
      className: isNumber ? "dt-right" : "dt-left", width: `${width + 4}ch`,
    }));
    return {
      columns: shown, order: this.order(columns), serverSide: true, processing: false, searching: false,
      ajax: (request, done) => this.ask(request, done), autoWidth: false, scrollX: true, scrollY: this.height(),
      scroller: { displayBuffer: BUFFER, boundaryScale: 0.5, serverWait: 30, loadingIndicator: false },
      deferRender: true, layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null },
      language: { emptyTable: "No row passes these filters.", zeroRecords: "No row passes these filters." },
      createdRow: (row, data) => this.mark(row, data),
      headerCallback: (head) => this.explain(head, columns),
    };
  }

  order(columns) {
    const [name, descending] = this.model.get("_order");
    const index = columns.findIndex((column) => column.name === name);
    return index < 0 ? [] : [[index, descending ? "desc" : "asc"]];
  }

  height() {
    const head = this.node.querySelector(".dt-scroll-head")?.offsetHeight ?? 34;
    return Math.max(60, this.node.clientHeight - head);
  }

  explain(head, columns) {
    [...head.children].forEach((cell, index) => {
      if (columns[index]?.tip) cell.title = columns[index].tip;
    });
  }

  mark(row, [id, kind]) {
    row.dataset.row = id;
    if (kind) row.classList.add(kind);
    this.markSelected(row);
  }

  markSelected(row) {
    const selected = row.dataset.row === this.model.get("_selected") && row.dataset.row !== "";
    row.classList.toggle("workbench-selected", selected);
    row.setAttribute("aria-selected", String(selected));
  }

  // Rows that Python sent by itself are drawn at once; others are requested.
  ask(request, done) {
    const { start, length, draw } = request;
    const fresh = this.fresh;
    this.fresh = null;
    const enough = fresh && fresh.start === start && (fresh.rows.length >= length || start + fresh.rows.length >= fresh.total);
    if (enough) {
      done(answer(draw, fresh));
      this.drawn(fresh);
      return;
    }
    this.callbacks.clear(); // DataTables draws the newest answer alone
    this.callbacks.set(draw, done);
    this.model.send({ kind: "window", start, length: length < 0 ? 100 : length, draw });
  }

  receive(content) {
    if (content.kind === "window") {
      const done = this.callbacks.get(content.draw);
      this.callbacks.delete(content.draw);
      done?.(answer(content.draw, content));
      if (done) this.drawn(content);
    } else if (content.kind === "fresh" && this.table) {
      this.refresh(content);
    } else if (content.kind === "reveal" && this.table) {
      this.reveal(content.place);
    }
  }

  refresh(content) {
    this.fresh = content;
    const columns = this.model.get("_columns");
    if (this.drawnColumns !== JSON.stringify(columns)) return; // the table is built anew, with rows of its own
    const order = this.order(columns);
    this.following = true;
    try {
      if (JSON.stringify(order) !== JSON.stringify(this.table.order())) this.table.order(order);
      this.table.draw(content.hold ? "page" : "full-reset");
    } finally {
      this.following = false;
    }
    if (!content.hold && this.body) this.body.scrollTop = 0;
  }

  drawn({ total }) {
    if (this.scrolled) Object.assign(this.body, this.scrolled); // other columns leave the scroll where it was
    this.scrolled = null;
    this.node.setAttribute("aria-rowcount", String(total));
    this.node.dispatchEvent(new CustomEvent("drawn", { bubbles: true, detail: { rows: total } }));
  }

  sorted() {
    if (this.following) return;
    const [first] = this.table.order();
    const column = this.model.get("_columns")[first?.[0]];
    const [name, descending] = this.model.get("_order");
    const down = first?.[1] === "desc";
    if (column && (column.name !== name || down !== descending)) {
      this.model.send({ kind: "sort", column: column.name, descending: down });
    }
  }

  select() {
    this.node.querySelectorAll("tr[data-row]").forEach((row) => this.markSelected(row));
  }

  // A row comes into sight, if it is not.
  reveal(place) {
    const { start, end } = this.table.scroller.page();
    if (place < start || place > end - 1) this.table.scroller.toPosition(Math.max(0, place - 2), false);
  }

  clicked(event) {
    const row = event.target.closest("tr[data-row]");
    if (row) this.model.send({ kind: "select", row: row.dataset.row });
  }

  // Arrow keys select the next row, in the order of all rows.
  steer(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (!(event.key in steps) || event.target.closest("th")) return;
    this.model.send({ kind: "step", by: steps[event.key] });
    event.preventDefault();
    event.stopPropagation(); // JupyterLab would move to another cell
  }

  resize() {
    if (this.node.clientWidth === 0) return;
    if (!this.table) {
      this.build();
      return;
    }
    const height = `${this.height()}px`;
    if (this.body.style.height !== height || this.body.style.maxHeight !== height) {
      Object.assign(this.body.style, { height, maxHeight: height });
      this.table.scroller.measure(true);
    }
  }

  dispose() {
    this.callbacks.clear();
    this.table?.destroy();
    this.table = null;
  }
}

function answer(draw, { rows, total }) {
  return { draw, data: rows, recordsTotal: total, recordsFiltered: total };
}

function element(tag, name) {
  return Object.assign(document.createElement(tag), { className: name });
}

function escaped(text) {
  return Object.assign(document.createElement("span"), { textContent: text }).innerHTML;
}

export default {
  render({ model, el, signal }) {
    const grid = new Grid({ model, el, signal });
    const on = (name, listener) => {
      model.on(name, listener);
      signal.addEventListener("abort", () => model.off(name, listener));
    };
    on("msg:custom", (content) => grid.receive(content));
    on("change:_columns", () => grid.build());
    on("change:_selected", () => grid.select());
    const observer = new ResizeObserver(() => grid.resize());
    observer.observe(grid.node);
    grid.build();
    return () => {
      observer.disconnect();
      grid.dispose();
    };
  },
};
