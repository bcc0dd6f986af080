// Tables that are sorted by their headings; each is in a box that scrolls by itself, so that all columns can be reached.

const element = (tag, name = "", text = "") => Object.assign(document.createElement(tag), { className: name, textContent: text });

// Rows without a value are last, in either order.
function ordered(rows, column, descending) {
  const value = (row) => row.cells[column].order;
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const known = rows.filter((row) => value(row) !== null).sort((a, b) => compare(value(a), value(b)));
  return [...(descending ? known.reverse() : known), ...rows.filter((row) => value(row) === null)];
}

function cellOf(column, cell) {
  const td = element("td", `${column.figure ? "wb-figure" : ""} ${column.descends ? "wb-gain" : ""}`.trim());
  const text = element("span");
  text.append(element("span", cell.tone ? `wb-${cell.tone}` : "", cell.text));
  if (cell.aside) text.append(" ", element("span", "wb-aside", cell.aside));
  if (cell.badge) text.append(" ", element("span", "wb-badge", cell.badge));
  if (cell.share === null) return td.append(text), td;
  const [line, track, bar] = [element("div", "wb-line"), element("span", "wb-track"), element("span", "wb-bar")];
  bar.style.width = `${100 * Math.min(1, Math.max(0, cell.share))}%`;
  track.append(bar);
  line.append(track, text);
  return td.append(line), td;
}

class Part {
  constructor(sorting, redraw) {
    Object.assign(this, { sorting, redraw });
  }

  // The order of the heading that was pressed last, if the table still has it; otherwise the table's own order.
  order({ title, columns, sorted }) {
    const pressed = this.sorting.get(title);
    const column = columns.findIndex(({ heading }) => heading === pressed?.heading);
    return column < 0 ? { column: sorted, descending: false } : { column, descending: pressed.descending };
  }

  press(part, column) {
    const before = this.order(part);
    const { heading, descends } = part.columns[column];
    const descending = before.column === column ? !before.descending : descends;
    this.sorting.set(part.title, { heading, descending });
    this.redraw();
  }

  heading(part, column, index) {
    const { column: by, descending } = this.order(part);
    const th = element("th", `${column.figure ? "wb-figure" : ""} ${column.descends ? "wb-gain" : ""}`.trim());
    th.scope = "col";
    th.setAttribute("aria-sort", by !== index ? "none" : descending ? "descending" : "ascending");
    const press = element("button", "wb-sort", column.heading);
    press.type = "button";
    press.dataset.at = `${part.title}|${index}`;
    press.title = `Sort by ${column.heading}`;
    press.addEventListener("click", () => this.press(part, index));
    th.append(press);
    return th;
  }

  draw(part) {
    const section = element("section", "wb-part");
    if (part.title) section.append(element("h4", "wb-part-title", part.title));
    if (part.note) section.append(element("p", "wb-note", part.note));
    const box = element("div", "wb-scroll");
    box.tabIndex = 0;
    box.dataset.at = `${part.title}|box`;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", `Outcomes ${part.title}. Arrow keys scroll.`);
    const table = element("table");
    const [head, body] = [table.createTHead().insertRow(), table.createTBody()];
    head.append(...part.columns.map((column, index) => this.heading(part, column, index)));
    const { column, descending } = this.order(part);
    const rows = column === null ? part.rows : ordered(part.rows, column, descending);
    for (const { cells, best } of rows) {
      const row = body.insertRow();
      row.className = best ? "wb-best" : "";
      row.append(...cells.map((cell, index) => cellOf(part.columns[index], cell)));
    }
    box.append(table);
    section.append(element("p", "wb-note wb-beyond"), box);
    return section;
  }
}

// Names above a box that is too narrow the columns beyond its edge, since its scrollbar may be hidden.
function nameHiddenColumns(box) {
  const cut = [...box.querySelectorAll("th")].filter((each) => each.offsetLeft + each.offsetWidth > box.clientWidth + 1);
  const headings = cut.map((each) => each.innerText.trim());
  const hint = headings.length ? `Scroll the table to the right for ${headings.join(", ")}.` : "";
  if (box.previousElementSibling.textContent !== hint) box.previousElementSibling.textContent = hint;
}

function render({ model, el }) {
  const sorting = new Map();
  const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => nameHiddenColumns(target)));
  // new rows come while a person reads: focus and scrolling stay
  const redraw = () => {
    const focused = el.contains(document.activeElement) ? document.activeElement.dataset.at : undefined;
    const boxes = () => [...el.querySelectorAll(".wb-scroll")];
    const scrolled = new Map(boxes().map((box) => [box.dataset.at, [box.scrollLeft, box.scrollTop]]));
    const part = new Part(sorting, redraw);
    sizes.disconnect();
    el.replaceChildren(...model.get("parts").map((table) => part.draw(table)));
    boxes().forEach((box) => sizes.observe(box));
    for (const box of boxes()) [box.scrollLeft, box.scrollTop] = scrolled.get(box.dataset.at) ?? [0, 0];
    if (focused !== undefined) el.querySelector(`[data-at="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  };
  // JupyterLab would handle arrow keys and Enter itself
  el.addEventListener("keydown", (event) => event.key !== "Escape" && event.stopPropagation());
  model.on("change:parts", redraw);
  redraw();
  return () => sizes.disconnect();
}

export default { render };
