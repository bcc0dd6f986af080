// Asks the scheduler once a second for the class board, and draws what is new. All that people wrote is text, never HTML.

const specs = SPECIFICATIONS; // by kind of guess, then by mode; the unit is filled in here
const UNIT = "UNIT_MARK";
const EVERY_MS = 1000;
const PATIENCE_MS = 5000;
const key = location.hash.slice(1);
const night = window.matchMedia("(prefers-color-scheme: dark)");
const sections = new Map();
let refusal = ""; // why the last press of a button did nothing; it stays until the next one

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

async function ask(path, body) {
  const request = { headers: { Authorization: `Bearer ${key}` }, signal: AbortSignal.timeout(PATIENCE_MS) };
  if (body) Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  const answer = await fetch(path, request);
  if (answer.status === 403) throw new Error("this address has no key, or that of an older workshop. Open the address that `workbench workshop up` prints");
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

function count(number, one, many) {
  return `${number} ${number === 1 ? one : many}`;
}

function timeText(seconds) {
  const [factor, unit] = seconds < 1e-3 ? [1e6, "µs"] : seconds < 1 ? [1e3, "ms"] : [1, "s"];
  return `${Number((seconds * factor).toPrecision(3))} ${unit}`;
}

// The same records as workbench/charts/class_board.py: rows.
function records(entries) {
  return entries.flatMap((entry) => [["guess", entry.guess], ["estimated", entry.estimate], [entry.source ?? "measured", entry.measured]]
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([look, value]) => ({ alias: entry.alias, value, look, typed: !entry.default,
      aloud: `${entry.alias}: ${look} ${value}${entry.unit ? ` ${entry.unit}` : ""}` })));
}

function withUnit(value, unit) {
  if (value === UNIT) return unit;
  if (Array.isArray(value)) return value.map((each) => withUnit(each, unit));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, withUnit(each, unit)]));
  }
  return value;
}

async function draw(section, entries) {
  const numbers = entries.every((entry) => typeof entry.guess === "number");
  const spec = withUnit(specs[numbers ? "number" : "choice"][night.matches ? "dark" : "light"], entries[0].unit || " ");
  section.view?.finalize();
  section.view = await vegaEmbed(section.chart, { ...spec, datasets: { guesses: records(entries) } }, {
    ast: true, renderer: "svg", actions: false, tooltip: { theme: night.matches ? "dark" : "light" },
  });
}

function sectionOf(name, entry) {
  if (sections.has(name)) return sections.get(name);
  const node = element("section");
  const head = element("header");
  const button = element("button");
  const note = element("p", "", "note");
  const chart = element("div", undefined, "chart");
  head.append(element("h2", `Lesson ${entry.lesson}: ${entry.question.replaceAll("_", " ")}`), button);
  node.append(head, note, chart);
  document.getElementById("questions").append(node);
  const section = { node, button, note, chart, drawn: "", view: null };
  button.addEventListener("click", async () => {
    const shown = button.dataset.shown !== "yes";
    refusal = "";
    try {
      await ask("/workshop/reveal", { lesson: entry.lesson, question: entry.question, shown });
    } catch (error) {
      refusal = `The answer is not ${shown ? "revealed" : "hidden"}: ${error.message}. Press the button again.`;
    }
    await look();
  });
  sections.set(name, section);
  return section;
}

async function showQuestion(name, entries) {
  const section = sectionOf(name, entries[0]);
  const shown = entries[0].revealed;
  section.button.textContent = shown ? "Hide the answer" : "Reveal the answer";
  section.button.dataset.shown = shown ? "yes" : "no";
  section.note.textContent = `${count(entries.length, "guess", "guesses")}${shown ? "" : "; estimates and measurements are hidden until you reveal them"}.`;
  const text = JSON.stringify([entries, night.matches]);
  if (section.drawn === text) return;
  section.drawn = text;
  await draw(section, entries);
}

function showBest(best) {
  const tables = document.getElementById("tables");
  document.getElementById("best").hidden = best.length === 0;
  const text = JSON.stringify(best);
  if (tables.dataset.shown === text) return;
  tables.dataset.shown = text;
  tables.replaceChildren();
  for (const problem of new Set(best.map((each) => each.problem))) {
    const table = element("table");
    const head = element("tr");
    head.append(element("th", "", "number"), element("th", "Alias"), element("th", "Time", "number"), element("th", "Schedule"));
    table.append(element("caption", problem), head);
    const people = best.filter((each) => each.problem === problem);
    people.forEach((each) => {
      const row = element("tr");
      const place = 1 + people.findIndex((other) => other.time_s === each.time_s);
      row.append(element("td", `${place}`, "number"), element("td", each.alias),
        element("td", timeText(each.time_s), "number"), element("td", each.schedule));
      table.append(row);
    });
    tables.append(table);
  }
}

async function show(state) {
  const left = state.ends_at > state.now ? `links let people in until ${clock(state.ends_at)}` : "links have expired";
  document.getElementById("status").textContent = [
    `${state.joined} of ${count(state.links, "link", "links")} used`, left,
    `${count(state.ranks, "rank", "ranks")}: ${count(state.measuring, "gang measures", "gangs measure")}, ${state.waiting} wait`,
    ...state.holders.map((each) => `${each.who} holds ${count(each.ranks, "rank", "ranks")}`),
    `${count(state.measured, "list", "lists")} measured for all, ${count(state.shared, "time", "times")} shared`,
  ].join("; ") + ".";
  const questions = new Map();
  for (const entry of state.guesses) {
    const name = JSON.stringify([String(entry.lesson), entry.question]);
    questions.set(name, [...(questions.get(name) ?? []), entry]);
  }
  for (const [name, section] of sections) {
    if (!questions.has(name)) { section.node.remove(); sections.delete(name); }
  }
  for (const [name, entries] of questions) await showQuestion(name, entries);
  showBest(state.best);
}

async function look() {
  const trouble = document.getElementById("trouble");
  try {
    await show(await ask("/workshop/state"));
    trouble.textContent = refusal;
  } catch (error) {
    trouble.textContent = `The board is as it was a moment ago: ${error.message}. The page tries again every second.`;
  }
}

async function keepLooking() {
  await look();
  setTimeout(keepLooking, EVERY_MS);
}

keepLooking();
