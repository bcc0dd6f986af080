// Parallel coordinates that Vega draws: brushes move here, and Python learns where they are.

const VEGA_PATIENCE_MS = 3000;
const SIDES = 120; // padding of the drawing, left and right

class Lines {
  view = null;
  working = false;
  stale = true;
  quiet = false; // brushes are set by Python
  waiting = null; // the newest brush that was not sent yet
  isSending = false; // Python has not answered the last one yet

  constructor({ model, el, signal }) {
    Object.assign(this, { model, signal });
    this.node = Object.assign(document.createElement("div"), { className: "workbench-parallel" });
    this.node.setAttribute("role", "img");
    el.append(this.node);
  }

  async draw() {
    this.stale = true;
    if (this.working || this.signal.aborted || this.node.clientWidth === 0) return;
    this.working = true;
    try {
      while (this.stale && !this.signal.aborted) await this.embed();
    } catch (error) {
      console.error(error);
      this.node.textContent = `The lines could not be drawn: ${error.message}`;
    } finally {
      this.working = false;
    }
  }

  async embed() {
    this.stale = false;
    const [drawing, axes] = [this.model.get("_drawing"), this.model.get("_axes")];
    this.dispose();
    if (axes.length === 0) return;
    const vegaEmbed = await vega(this.model, VEGA_PATIENCE_MS);
    const mode = pageMode();
    this.node.dataset.mode = mode;
    const embedded = await vegaEmbed(this.node, structuredClone(drawing), {
      mode: "vega", actions: false, renderer: "canvas", config: this.model.get("_looks")[mode], logLevel: 1,
    });
    this.embedded = embedded;
    this.view = embedded.view;
    this.axes = axes;
    this.resizeNow();
    this.fill();
    this.follow();
    axes.forEach((_, number) => this.view.addSignalListener(`b${number}`, () => this.moved(number)));
    this.view.addEventListener("click", (event, item) => {
      const place = item?.datum?.place;
      if (place !== undefined) this.model.send({ kind: "pick", place });
    });
    await this.view.runAsync();
    this.announce();
  }

  // The lines that Python sends, column by column.
  fill() {
    if (!this.view || this.axes !== this.model.get("_axes")) return;
    const lines = unpacked(this.model.get("_lines"), this.axes);
    this.view.data("lines", lines).signal("chosen", this.model.get("_chosen"));
    this.node.setAttribute("aria-label", this.model.get("_words"));
  }

  // The brushes are where the state has them, unless a hand moves one.
  follow() {
    if (!this.view || this.dragging) return;
    const brushes = this.model.get("_brushes");
    this.quiet = true;
    this.axes.forEach(({ column }, number) => {
      const kept = brushes[column];
      this.view.signal(`b${number}`, kept ? this.pixels(number, kept) : null);
    });
  }

  pixels(number, kept) {
    const scale = this.view.scale(`y${number}`);
    const places = kept.map((value) => scale(value)).filter((place) => Number.isFinite(place));
    const height = this.view.signal("height");
    if (typeof kept[0] === "string" || kept.length === 0) {
      return places.length ? [Math.min(...places) - 6, Math.max(...places) + 6] : [0, 0.5];
    }
    const [low, high] = scale.domain();
    const [from, to] = [Math.max(kept[0], low), Math.min(kept[1], high)];
    return from > to ? [0, 0.5] : [to, from].map((end) => Math.min(Math.max(scale(end), 0), height));
  }

  kept(number, brush) {
    const scale = this.view.scale(`y${number}`);
    const [top, bottom] = [Math.min(...brush), Math.max(...brush)];
    if (this.axes[number].texts) return scale.domain().filter((text) => scale(text) >= top && scale(text) <= bottom);
    const ends = [scale.invert(bottom), scale.invert(top)];
    return ends.every(Number.isFinite) ? ends : null;
  }

  moved(number) {
    if (this.quiet) return;
    this.dragging = true;
    const brush = this.view.signal(`b${number}`);
    if (brush && Math.abs(brush[1] - brush[0]) < 3) return; // not yet a range
    const kept = brush ? this.kept(number, brush) : null;
    this.waiting = { kind: "brush", column: this.axes[number].column, kept: kept?.length ? kept : null };
    this.send();
    this.view.runAfter(() => this.announce()); // the lines here are filtered at once
  }

  // One position at a time: while Python answers, the newest one waits.
  send() {
    if (this.isSending || !this.waiting) return;
    this.isSending = this.moves = true;
    this.model.send(this.waiting);
    this.waiting = null;
  }

  done() {
    this.isSending = false;
    this.send();
    this.settle();
  }

  // The hand has left the brush, and Python knows where: other lines may be drawn.
  settle() {
    if (this.dragging || this.isSending || !this.moves) return;
    this.moves = false;
    this.model.send({ kind: "settled" });
  }

  async update() {
    if (!this.view || this.working || this.dragging) return; // a hand that moves a brush waits for nothing
    this.fill();
    this.follow();
    await this.view.runAsync();
    this.quiet = false;
    this.announce();
  }

  announce() {
    this.quiet = false;
    this.node.dispatchEvent(new CustomEvent("drawn", { bubbles: true, detail: { lines: this.view.data("lines").length } }));
  }

  resizeNow() {
    this.view.signal("width", Math.max(200, this.node.clientWidth - SIDES));
    this.view.resize();
  }

  resize() {
    if (this.node.clientWidth === 0) return;
    if (!this.view || this.stale) {
      this.draw();
      return;
    }
    this.resizeNow();
    this.update();
  }

  dispose() {
    this.embedded?.finalize();
    this.embedded = this.view = null;
  }
}

// Lines from rows of numbers (workbench/charts/parallel.py: rows): the slowest first, so that the fastest are on top.
function unpacked(bytes, axes) {
  const width = axes.length + 2;
  const numbers = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  const count = Math.floor(numbers.length / width);
  return Array.from({ length: count }, (_, row) => {
    const [place, timed, ...values] = numbers.subarray(row * width, (row + 1) * width);
    const line = { place, timed: timed === 1, fast: count > 1 ? row / (count - 1) : 1 };
    values.forEach((value, number) => {
      const { texts } = axes[number];
      line[`v${number}`] = Number.isNaN(value) ? null : texts ? texts[value] : value;
    });
    return line;
  });
}

export default {
  render({ model, el, signal }) {
    const lines = new Lines({ model, el, signal });
    const on = (name, listener) => {
      model.on(name, listener);
      signal.addEventListener("abort", () => model.off(name, listener));
    };
    let frame = null; // several traits change together: one redraw
    const soon = () => {
      frame ??= requestAnimationFrame(() => {
        frame = null;
        if (lines.axes === model.get("_axes")) lines.update();
        else lines.draw();
      });
    };
    for (const name of ["_drawing", "_lines", "_brushes", "_chosen"]) on(`change:${name}`, soon);
    on("msg:custom", ({ kind }) => kind === "done" && lines.done());
    window.addEventListener("pointerup", () => {
      // after the signals of this event
      setTimeout(() => {
        lines.dragging = false;
        lines.settle();
      }, 0);
    }, { signal });
    const observer = new ResizeObserver(() => lines.resize());
    observer.observe(lines.node);
    // a page that changes its theme has no size for a moment
    onModeChange(() => requestAnimationFrame(() => lines.draw()), signal);
    lines.draw();
    return () => {
      observer.disconnect();
      lines.dispose();
    };
  },
};
