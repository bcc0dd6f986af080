// The menu "Copy as": texts come from Python when it opens, so that a click can copy at once. Links come by the address.

const KINDS = [["command", "Command", "for a terminal"], ["toml", "TOML", "for workbench sweep"], ["python", "Python", "for a notebook"], ["link", "Link", "opens this view"]];
const element = (tag, name = "", text = "") => Object.assign(document.createElement(tag), { className: name, textContent: text });

class Menu {
  constructor(model, el, signal) {
    Object.assign(this, { model, signal });
    this.root = element("div", "wb-copy");
    this.opener = element("button", "wb-copy-open", "Copy as ▾");
    Object.assign(this.opener, { type: "button", title: "This question as a command, TOML, Python or a link" });
    // a popover is above everything, wherever the page clips; the browser closes it with Escape or a click elsewhere
    this.panel = element("div", "wb-copy-panel");
    this.panel.popover = "auto";
    this.opener.popoverTargetElement = this.panel;
    this.panel.addEventListener("toggle", ({ newState }) => newState === "open" && this.open());
    this.items = Object.fromEntries(KINDS.map(([kind, title, what]) => [kind, this.item(kind, title, what)]));
    this.text = element("textarea", "wb-copy-text");
    Object.assign(this.text, { readOnly: true, rows: 5, hidden: true });
    this.text.setAttribute("aria-label", "What was copied");
    this.status = element("div", "wb-copy-status");
    this.status.setAttribute("role", "status");
    this.panel.append(...Object.values(this.items), this.text, this.paste(), this.status);
    this.root.append(this.opener, this.panel);
    this.root.addEventListener("keydown", (event) => this.walk(event));
    el.append(this.root);
    const listeners = { "change:texts": () => this.draw(), "change:message": () => this.draw(), "change:refused": () => this.draw() };
    for (const [name, listen] of Object.entries(listeners)) model.on(name, listen);
    signal.addEventListener("abort", () => Object.entries(listeners).forEach(([name, listen]) => model.off(name, listen)));
    window.addEventListener("hashchange", () => this.readAddress(), { signal });
    this.readAddress();
    this.draw();
  }

  send(kind, content = {}) {
    if (!this.signal.aborted) this.model.send({ kind, ...content });
  }

  item(kind, title, what) {
    const made = element("button", "wb-copy-item");
    Object.assign(made, { type: "button" });
    made.append(element("b", "", title), " ", element("span", "", what));
    made.addEventListener("click", () => this.copy(kind, title));
    return made;
  }

  paste() {
    const made = element("input", "wb-copy-paste");
    Object.assign(made, { type: "text", placeholder: "paste a link …" });
    made.setAttribute("aria-label", "Paste a link, and press Enter");
    made.addEventListener("keydown", ({ key }) => {
      if (key !== "Enter" || !made.value.trim()) return;
      this.send("open", { text: made.value });
      made.value = "";
    });
    return made;
  }

  open() {
    const { right, bottom } = this.opener.getBoundingClientRect();
    this.panel.style.left = `${Math.max(4, right - this.panel.offsetWidth)}px`;
    this.panel.style.top = `${Math.max(4, Math.min(bottom + 2, innerHeight - this.panel.offsetHeight - 4))}px`;
    this.text.hidden = true;
    this.say("");
    this.send("texts");
  }

  // Up and down go through the entries, from the last to the first; from the button to the first.
  walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const entries = Object.values(this.items).filter((item) => !item.disabled);
    const isText = event.target.matches("input, textarea");
    if (!step || isText || !entries.length || !this.panel.matches(":popover-open")) return;
    event.preventDefault();
    const place = entries.indexOf(event.target);
    const next = place < 0 && step < 0 ? -1 : place + step;
    entries.at(next % entries.length).focus();
  }

  textOf(kind) {
    const texts = this.model.get("texts");
    if (kind !== "link") return texts[kind];
    return texts.code && `${location.origin}${location.pathname}#view=${texts.code}`; // never with the token of the address
  }

  draw() {
    for (const [kind, item] of Object.entries(this.items)) item.disabled = !this.textOf(kind);
    if (this.model.get("message")) this.say(this.model.get("message"), this.model.get("refused"));
  }

  say(text, refused = false) {
    this.status.textContent = text;
    this.status.classList.toggle("wb-copy-refused", refused);
  }

  async copy(kind, title) {
    const text = this.textOf(kind);
    Object.assign(this.text, { value: text, hidden: false });
    try {
      await navigator.clipboard.writeText(text);
      this.say(`${title} copied.`);
    } catch {
      this.text.focus();
      this.text.select();
      this.say("This browser does not let the page copy: press Ctrl+C.");
    }
  }

  // A link was opened: its code goes to the kernel once, and out of the address, so that a reload keeps later changes.
  readAddress() {
    const code = new URLSearchParams(location.hash.slice(1)).get("view");
    if (!code) return;
    history.replaceState(history.state, "", location.pathname + location.search);
    this.send("open", { text: code });
  }
}

export default { render: ({ model, el, signal }) => void new Menu(model, el, signal) };
