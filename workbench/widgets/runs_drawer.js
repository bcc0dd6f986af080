// The list of all stored runs: filtered here, changed by Python. Files that are dropped on the page go there in pieces.

const PIECE_BYTES = 1 << 20; // a message of the notebook's server holds some megabytes
const element = (tag, name = "", text = "") => Object.assign(document.createElement(tag), { className: name, textContent: text });

// Rows are blocks with the roles of a table: the browser lays out only those in sight, which it does not do for tables.
function part(role, name) {
  const made = element("div", name);
  made.setAttribute("role", role);
  return made;
}

function button(name, text, label, act) {
  const made = element("button", name, text);
  made.type = "button";
  made.title = label;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

// A text that becomes an input where it is pressed: Enter or leaving keeps it, Escape does not.
function editable(text, empty, label, keep, ended) {
  const shown = button(`wb-run-edit${text ? "" : " wb-run-empty"}`, text || empty, `${label}: ${text || "none"}. Edit`, () => {
    const input = element("input", "wb-run-input");
    input.value = text;
    input.setAttribute("aria-label", label);
    let isOpen = true;
    const end = (kept, focus) => {
      if (!isOpen) return;
      isOpen = false;
      const changed = kept && input.value.trim() !== text;
      input.replaceWith(shown);
      if (focus) shown.focus();
      if (changed) keep(input.value.trim());
      ended();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "Escape") {
        event.preventDefault(); // the button that gets the focus would be pressed
        end(event.key === "Enter", true);
      }
      event.stopPropagation();
    });
    input.addEventListener("blur", () => end(true, false));
    shown.replaceWith(input);
    input.focus();
    input.select();
  });
  return shown;
}

const words = (text) => text.split(",").map((tag) => tag.trim().replace(/^#/, "")).filter(Boolean);

class Drawer {
  constructor(model, el, signal) {
    Object.assign(this, { model, el, signal, text: "" });
    this.root = element("div", "wb-runs");
    this.message = element("div", "wb-runs-message");
    this.message.setAttribute("role", "status");
    this.body = part("rowgroup", "wb-runs-body");
    this.count = element("span", "wb-runs-count");
    this.deleted = element("div", "wb-runs-deleted");
    this.root.append(this.bar(), this.message, this.deleted, this.table());
    el.append(this.root);
    const listeners = {
      "change:runs": () => this.drawRows(),
      "change:shown": () => this.drawRows(),
      "change:num_stored": () => this.drawCount(),
      "change:ticked": () => this.drawTicks(),
      "change:message": () => this.drawMessage(),
      "change:refused": () => this.drawMessage(),
      "change:deleted": () => this.drawDeleted(),
      "msg:custom": (message) => this.hear(message),
    };
    for (const [name, listen] of Object.entries(listeners)) model.on(name, listen);
    const seen = new IntersectionObserver((entries) => entries.some((one) => one.isIntersecting) && this.send("refresh"));
    seen.observe(this.root);
    signal.addEventListener("abort", () => {
      seen.disconnect();
      for (const [name, listen] of Object.entries(listeners)) model.off(name, listen);
    });
    this.acceptFiles();
    this.drawRows();
    this.drawMessage();
    this.drawDeleted();
  }

  send(kind, content = {}, buffers = []) {
    if (!this.signal.aborted) this.model.send({ kind, ...content }, undefined, buffers);
  }

  bar() {
    const bar = element("div", "wb-runs-bar");
    this.filter = element("input", "wb-runs-filter");
    this.filter.type = "search";
    this.filter.placeholder = "filter: operator, size, scheme, #tag, note …";
    this.filter.setAttribute("aria-label", "Filter the runs");
    this.filter.addEventListener("input", () => this.drawFilter());
    const act = (kind) => () => this.send(kind, { runs: this.model.get("ticked") });
    this.actions = {
      show: button("", "Show", "Show the ticked runs in one chart", act("show")),
      compare: button("", "Compare", "Compare the two ticked runs", act("compare")),
      report: button("", "Report", "One report of the ticked runs", act("report")),
      delete: button("", "Delete", "Delete the ticked runs; they can be brought back", act("delete")),
    };
    this.file = element("input");
    Object.assign(this.file, { type: "file", accept: ".csv,.parquet,.jsonl", hidden: true });
    this.file.addEventListener("change", () => this.upload(this.file.files[0]));
    const open = button("", "Import …", "Import a file that workbench export wrote; or drop it on this page", () => this.file.click());
    bar.append(this.filter, this.count, ...Object.values(this.actions), open, this.file);
    return bar;
  }

  table() {
    const box = element("div", "wb-runs-scroll");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Stored runs");
    const table = part("table", "wb-runs-table");
    const head = part("row", "wb-runs-head");
    for (const [name, text] of [["tick", ""], ["best", "best"], ["problem", "operator and sizes"], ["date", "run"], ["note", "note"], ["tags", "tags"]]) {
      const heading = part("columnheader", `wb-runs-${name}`);
      heading.textContent = text;
      head.append(heading);
    }
    table.append(head, this.body);
    box.append(table);
    return box;
  }

  // Rows.

  // An input that is open stays: the list waits for its end.
  drawRows() {
    this.waits = this.body.querySelector(".wb-run-input") !== null;
    if (this.waits) return;
    const shown = new Set(this.model.get("shown"));
    this.rows = this.model.get("runs").map((run) => ({ run, node: this.row(run, shown.has(run.run)) }));
    this.body.replaceChildren(...this.rows.map(({ node }) => node));
    this.drawTicks();
    this.drawFilter();
  }

  row(run, isShown) {
    const node = part("row", isShown ? "wb-runs-line wb-run-shown" : "wb-runs-line");
    node.dataset.run = run.run;
    const tick = element("input");
    tick.type = "checkbox";
    tick.setAttribute("aria-label", `Run ${run.run}, ${run.problem}`);
    tick.addEventListener("change", () => this.tick(run.run, tick.checked));
    const cell = (name, text, aside) => {
      const made = part("cell", `wb-runs-${name}`);
      made.append(element("span", "wb-run-text", text), element("span", "wb-run-aside", aside));
      made.title = [text, aside].filter(Boolean).join("\n");
      return made;
    };
    const cells = [part("cell", "wb-runs-tick"), cell("best", run.best, run.schedule), cell("problem", run.problem, run.where), cell("date", run.date, run.run)];
    cells[0].append(tick);
    for (const [name, text, empty, keep] of [
      ["note", run.note, "add a note", (kept) => this.send("note", { run: run.run, text: kept })],
      ["tags", run.tags.join(", "), "add tags", (kept) => this.sendTags(run, words(kept))],
    ]) {
      const made = part("cell", `wb-runs-${name}`);
      made.append(editable(text, empty, `${name === "note" ? "Note" : "Tags, with commas"} of run ${run.run}`, keep, () => this.waits && this.drawRows()));
      cells.push(made);
    }
    node.append(...cells);
    return node;
  }

  // What another page added meanwhile stays: only what was changed here is sent.
  sendTags(run, tags) {
    this.send("tags", { run: run.run, added: tags.filter((tag) => !run.tags.includes(tag)), removed: run.tags.filter((tag) => !tags.includes(tag)) });
  }

  tick(run, ticked) {
    this.model.set("ticked", [...this.model.get("ticked").filter((each) => each !== run), ...(ticked ? [run] : [])]);
    this.model.save_changes();
    this.drawTicks();
  }

  drawTicks() {
    const ticked = this.model.get("ticked");
    for (const { run, node } of this.rows) node.querySelector("input[type=checkbox]").checked = ticked.includes(run.run);
    for (const [name, action] of Object.entries(this.actions)) action.disabled = name === "compare" ? ticked.length !== 2 : !ticked.length;
    this.drawCount();
  }

  drawFilter() {
    const wanted = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { run, node } of this.rows) node.hidden = !wanted.every((word) => run.text.includes(word));
    this.drawCount();
  }

  drawCount() {
    const [all, ticked] = [this.model.get("num_stored"), this.model.get("ticked").length];
    const seen = this.rows.filter(({ node }) => !node.hidden).length;
    this.count.textContent = `${seen.toLocaleString("en")} of ${Math.max(all, this.rows.length).toLocaleString("en")} runs${ticked ? `, ${ticked} ticked` : ""}`;
  }

  drawMessage() {
    const refused = this.model.get("refused");
    this.message.textContent = this.model.get("message");
    this.message.setAttribute("role", refused ? "alert" : "status");
    this.message.classList.toggle("wb-runs-refused", refused);
  }

  drawDeleted() {
    const deleted = this.model.get("deleted");
    const undo = ({ run, day }) => {
      const line = element("span", "wb-run-deleted", `${run} is deleted (${day}) `);
      line.append(button("", "Undo", `Bring run ${run} back`, () => this.send("undo", { runs: [run] })));
      return line;
    };
    const [newest, ...older] = deleted;
    this.deleted.replaceChildren(...(newest ? [undo(newest)] : []));
    if (!older.length) return;
    const fold = element("details");
    fold.append(element("summary", "", `${older.length} more deleted`), ...older.map(undo));
    this.deleted.append(fold);
  }

  // Files: dropped anywhere on the explorer's page, or chosen.

  acceptFiles() {
    const listen = () => {
      if (this.signal.aborted) return;
      if (!this.root.isConnected) return requestAnimationFrame(listen);
      const page = this.root.closest(".wb-explorer") ?? this.root;
      const isFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
      const on = (name, act) => page.addEventListener(name, (event) => {
        if (!isFile(event)) return;
        event.preventDefault();
        event.stopPropagation();
        act(event);
      }, { signal: this.signal });
      on("dragover", () => page.classList.add("wb-runs-drop"));
      on("dragleave", (event) => page.contains(event.relatedTarget) || page.classList.remove("wb-runs-drop"));
      on("drop", (event) => {
        page.classList.remove("wb-runs-drop");
        const files = event.dataTransfer.files;
        if (files.length > 1) this.send("several", { count: files.length });
        else this.upload(files[0]);
      });
    };
    listen();
  }

  upload(file) {
    this.file.value = "";
    if (!file) return;
    this.uploaded = file;
    this.send("file", { name: file.name, size: file.size });
  }

  async hear(message) {
    if (message.kind !== "want" || !this.uploaded || message.name !== this.uploaded.name) return;
    try {
      const piece = await this.uploaded.slice(message.start, message.start + PIECE_BYTES).arrayBuffer();
      this.send("piece", { name: message.name, start: message.start }, [piece]);
    } catch (error) { // the file has changed, or is gone
      this.send("unread", { name: message.name, reason: String(error?.message ?? error) });
    }
  }
}

export default { render: ({ model, el, signal }) => void new Drawer(model, el, signal) };
