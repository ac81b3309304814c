// The page of a time–sequence diagram: which flow, which stretch of it, which segment.

const root = document.documentElement, byId = (id) => document.getElementById(id);
const facts = JSON.parse(byId("facts").textContent);
const place = byId("diagram"), canvas = place.querySelector("canvas");
const MOST_EVENTS = 200, LEAST_NS = 1000;
let flow, view, selected = -1, drawn, events, waiting = false;

const whenRead = new Promise((done) => { if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", done); else done(); });
async function columnsOf(head) {
  if (!facts.early.includes(head.id)) await whenRead;
  return unpacked(head, await octetsOf(byId(head.id).textContent));
}
const whole = () => { const room = Math.max(LEAST_NS, flow.last * 0.01); return { begin: -room, end: flow.last + room, range: null }; };
const element = (name, text, kind) => { const one = document.createElement(name); if (text !== undefined) one.textContent = text; if (kind) one.className = kind; return one; };
const seconds = (ns) => (ns / 1e9).toFixed(6);
const span = (ns) => { const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([one]) => Math.abs(ns) >= one) ?? [1, "ns"]; return `${Number((ns / size).toPrecision(6))} ${unit}`; };

async function opened(number) {
  const found = facts.flows[number];
  const [columns, acks, windows, sacks, lost] = await Promise.all([found.drawn, found.acks, found.window, found.sacks, found.lost_acks].map(columnsOf));
  // Another flow may have been chosen meanwhile.
  if (Number(byId("flow").value) !== number) return;
  flow = { ...found, columns, lines: { acks, window: windows, sacks, lost_acks: lost }, kept: new Map() };
  const { sent, delay_ns: delay, mark } = columns;
  flow.last = sent[sent.length - 1];
  for (let i = Math.max(0, sent.length - 2000); i < sent.length; i++) if (delay[i] >= 0) flow.last = Math.max(flow.last, sent[i] + delay[i]);
  events = [];
  for (let i = 0; i < mark.length; i++) if (mark[i]) events.push(i);
  selected = -1;
  byId("segment").replaceChildren(element("p", "No segment is selected.", "muted"));
  byId("account").replaceChildren(...flow.account.map((one) => element("li", one)));
  legend();
  view = whole();
  redraw();
}

function legend() {
  const svg = (inner, ink) => `<svg viewBox="0 0 26 14" aria-hidden="true" style="color: var(--d-${ink})">${inner}</svg>`;
  const many = flow.columns.mark, kinds = new Set(), losses = new Set();
  for (const k of events) { kinds.add(many[k] & KIND); losses.add(many[k] >> LOSS); }
  const solid = 'fill="currentColor"', shapes = { 1: `<path d="M13 2l6 10H7z" ${solid}/>`, 2: `<path d="M8 2h10v10H8z" ${solid}/>`, 3: `<path d="M13 1l6 6-6 6-6-6z" ${solid}/>`, 4: `<circle cx="13" cy="7" r="5" ${solid}/>` };
  const crossed = '<path d="M8 2l10 10M18 2L8 12" stroke="currentColor" stroke-width="2.2"/>';
  const items = [[svg(`<path d="M12 1h2v12h-2zM9 1h8v2H9zM9 11h8v2H9z" ${solid}/>`, "first"), "segment, sent for the first time"]];
  for (const kind of [1, 2, 3, 4]) if (kinds.has(kind)) items.push([svg(shapes[kind], INKS[kind]), `retransmission: ${facts.kinds[kind]}`]);
  if (losses.has(1)) items.push([svg(crossed, "lost"), "lost at an emulator"]);
  if (losses.has(2)) items.push([svg(`${crossed}<circle cx="13" cy="7" r="6" fill="none" stroke="currentColor"/>`, "lost"), "lost elsewhere"]);
  items.push([svg('<path d="M0 11h9V4h17" fill="none" stroke="currentColor" stroke-width="2"/>', "ack"), "acknowledged"]);
  items.push([svg('<path d="M0 7h26" stroke="currentColor" stroke-width="2" stroke-dasharray="5 4"/>', "window"), "receiver's window"]);
  if (flow.lines.sacks.time_ns.length) items.push([svg(`<path d="M12 1h3v12h-3z" ${solid}/>`, "sack"), `SACK block, as seen at ${flow.sacks_seen_at}`]);
  if (flow.lines.lost_acks.time_ns.length) items.push([svg(crossed, "ack"), "acknowledgement lost at an emulator"]);
  byId("legend").replaceChildren(...items.map(([picture, text]) => { const one = element("li"); one.innerHTML = picture; one.append(text); return one; }));
}

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawn = draw(canvas, flow, view, selected);
    tell();
    if (!root.dataset.diagram) root.dataset.loadedMs = String(Math.round(performance.now()));
    root.dataset.diagram = "drawn";
    root.dataset.begin = String(view.begin); root.dataset.end = String(view.end);
  });
}

const whatOf = (k) => {
  const mark = flow.columns.mark[k], told = [];
  if (mark & KIND) told.push(`retransmission: ${facts.kinds[mark & KIND]}`);
  if (mark >> LOSS) told.push(mark >> LOSS === 1 ? "lost at an emulator" : "lost elsewhere");
  return told.join(", ");
};

// In words, and as a table: what the stretch shows.
function tell() {
  const from = firstFrom(events, drawn.thin.from), until = firstFrom(events, drawn.thin.until);
  const again = {}, mark = flow.columns.mark;
  let lost = 0, slowest = 0;
  for (let i = from; i < until; i++) { const k = mark[events[i]] & KIND; if (k) again[k] = (again[k] ?? 0) + 1; if (mark[events[i]] >> LOSS) lost++; }
  for (const one of drawn.thin.most) if (one > slowest) slowest = one;
  const kinds = Object.entries(again).map(([kind, count]) => `${count} ${facts.kinds[kind]}`).join(", ");
  const count = drawn.thin.until - drawn.thin.from;
  byId("stretch").textContent = `${seconds(Math.max(0, view.begin))} s to ${seconds(Math.min(view.end, flow.last))} s of ${seconds(flow.last)} s: ${count.toLocaleString("en")} segments, retransmissions: ${kinds || "none"}, lost: ${lost}` + (slowest ? `, largest delay to the ${flow.delayed_to} ${span(slowest)}.` : ".");
  const rows = events.slice(from, Math.min(until, from + MOST_EVENTS)).map((k) => {
    const row = element("tr"), cell = element("td"), button = element("button", `${k + 1}`);
    button.type = "button"; button.dataset.segment = k; button.setAttribute("aria-label", `Select segment ${k + 1}`);
    cell.append(button);
    row.append(cell, element("td", seconds(flow.columns.sent[k]), "n"), element("td", flow.columns.at[k].toLocaleString("en"), "n"), element("td", String(flow.columns.payload_bytes[k]), "n"), element("td", whatOf(k)));
    return row;
  });
  byId("events").tBodies[0].replaceChildren(...rows);
  const left = until - from - rows.length;
  byId("events-foot").textContent = until === from ? "None in this stretch." : left > 0 ? `The first ${rows.length} of ${until - from}: magnify to see the others.` : `${rows.length} in this stretch.`;
}

async function rowOf(k) {
  const piece = Math.floor(k / flow.rows_a_piece), of = flow;
  if (!of.kept.has(piece)) of.kept.set(piece, await columnsOf(of.pieces[piece]));
  const columns = of.kept.get(piece), at = k % of.rows_a_piece;
  return { ...Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[at]])), again: (of.columns.mark[k] & KIND) > 0 };
}

function valueOf(name, row) {
  const value = row[name];
  if (!Number.isFinite(value)) return "–";
  if (flow.texts[name]) return flow.texts[name][value] || "–";
  if (name === "marked") return value ? "yes" : "no";
  if (flow.thousandths.includes(name)) return `${value / 1000} µs`;
  if (name.endsWith("_ns")) {
    const after = name === "sent_ns" ? value : row.sent_ns + value;
    const near = name === "sent_ns" ? `${value / 1e9} s` : `${value < 0 ? "−" : "+"}${span(Math.abs(value))}`;
    return [near, `${BigInt(flow.begin) + BigInt(after)} ns`];
  }
  return String(value);
}

async function select(k, follow) {
  if (!(k >= 0 && k < flow.columns.sent.length)) return;
  const of = flow;
  selected = k;
  if (follow) reveal(k);
  redraw();
  const row = await rowOf(k);
  if (selected !== k || of !== flow) return;
  const what = whatOf(k), title = element("h2", `Segment ${k + 1} of ${flow.columns.sent.length.toLocaleString("en")}${what ? `: ${what}` : ""}`);
  byId("segment").replaceChildren(title, ...wayOf(row), recordsOf(row));
  byId("segment").dataset.segment = String(k);
}

function wayOf(row) {
  const stages = stagesOf(row, facts.stages);
  if (!stages.length) return [element("p", "No record has it behind the sender's TCP.")];
  const total = stages.reduce((sum, [, from, until]) => sum + until - from, 0) || 1;
  const inks = ["--device-other2", "--trace-cwnd", "--trace-minimum", "--trace-ssthresh", "--trace-recovery", "--trace-loss", "--device-other1", "--muted"];
  const names = ["send buffer", ...facts.stages.map(([, name]) => name), "acknowledgement"];
  const bar = element("div", undefined, "way"), list = element("ol", undefined, "stages");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `Stages of its way: ${stages.map(([name, from, until]) => `${name} ${span(until - from)}`).join(", ")}`);
  for (const [name, from, until] of stages) {
    const hue = `var(${inks[names.indexOf(name) % inks.length]})`, piece = element("span"), item = element("li"), swatch = element("span", undefined, "swatch");
    piece.style.setProperty("--hue", hue); swatch.style.setProperty("--hue", hue);
    piece.style.width = `${((until - from) / total) * 100}%`; piece.title = `${name}: ${span(until - from)}`;
    item.append(swatch, `${name} ${span(until - from)}`); item.dataset.stage = name; item.dataset.ns = String(until - from);
    bar.append(piece); list.append(item);
  }
  return [bar, list];
}

function recordsOf(row) {
  const all = element("div", undefined, "records");
  for (const { name, columns } of facts.records) {
    const known = columns.filter(([one]) => Number.isFinite(row[one])), part = element("div");
    part.dataset.record = name;
    part.append(element("h3", name));
    if (!known.length) { part.append(element("p", "not in the records", "muted small")); all.append(part); continue; }
    if (flow.files[name]) part.append(element("p", flow.files[name], "file"));
    const table = element("table"), body = element("tbody");
    for (const [one, meaning] of known) { const line = element("tr"), title = element("td", one); title.title = meaning; const [near, whole] = [valueOf(one, row)].flat(), told = element("td", near, "n"); if (whole) told.append(element("small", whole)); line.dataset.column = one; line.append(title, told); body.append(line); }
    table.append(body); part.append(table); all.append(part);
  }
  return all;
}

// --- which stretch ---

function show(begin, end, range = null) {
  const least = Math.max(LEAST_NS, end - begin), full = whole(), middle = (begin + end) / 2;
  const size = Math.min(least, full.end - full.begin);
  const from = Math.min(Math.max(middle - size / 2, full.begin), full.end - size);
  view = { begin: from, end: from + size, range };
  redraw();
}
function zoom(factor, at = (view.begin + view.end) / 2) {
  const size = (view.end - view.begin) / factor, share = (at - view.begin) / (view.end - view.begin);
  show(at - size * share, at + size * (1 - share));
}
const move = (share) => { const by = (view.end - view.begin) * share; show(view.begin + by, view.end + by, view.range); };
function lift(share) {
  const range = view.range ?? drawn.range, by = (range.high - range.low) * share;
  view = { ...view, range: { low: range.low + by, high: range.high + by } };
  redraw();
}
function reveal(k) {
  const at = flow.columns.sent[k], y = flow.columns.at[k], size = view.end - view.begin;
  const above = view.range && (y < view.range.low || y > view.range.high);
  if (at < view.begin + size * 0.02 || at > view.end - size * 0.02) show(at - size / 2, at + size / 2);
  else if (above) view = { ...view, range: null };
}
function nextEvent(way) {
  if (!events.length) return;
  const here = selected >= 0 ? selected : firstFrom(flow.columns.sent, way > 0 ? view.begin : view.end) - (way > 0 ? 1 : 0);
  const at = firstFrom(events, here), found = way > 0 ? events[events[at] === here ? at + 1 : at] : events[at - 1];
  if (found !== undefined) select(found, true);
}

// The segment nearest to a place of the canvas; one that is marked wins over one that is not.
function nearest(x, y) {
  const { sent, at, payload_bytes: length, mark, delay_ns: delay } = flow.columns, { place: frame } = drawn;
  const perPixel = (view.end - view.begin) / frame.width, time = view.begin + (x - frame.left) * perPixel;
  const from = firstFrom(sent, time - 24 * perPixel), until = firstFrom(sent, time + 24 * perPixel);
  const slowest = drawn.thin.most.reduce((most, one) => (one > most ? one : most), 0) * 1.08;
  let best = -1, least = Infinity;
  for (let k = from; k < until; k++) {
    const high = drawn.yOf(at[k] + length[k]), low = drawn.yOf(at[k]);
    const down = y > frame.delayTop - 8 ? frame.delayTop + frame.delay - (delay[k] / slowest) * frame.delay - y : y < high ? high - y : y > low ? y - low : 0;
    const far = Math.hypot(drawn.xOf(sent[k]) - x, down) - (mark[k] ? 3 : 0);
    if (far < least) { least = far; best = k; }
  }
  return best;
}
function nearestToMiddle() {
  const { place: frame } = drawn, x = frame.left + frame.width / 2;
  const near = Math.min(firstFrom(flow.columns.sent, (view.begin + view.end) / 2), flow.columns.sent.length - 1);
  const found = nearest(x, frame.top + frame.height / 2);
  return found >= 0 ? found : near;
}

const DEEDS = { whole: () => { view = whole(); redraw(); }, in: () => zoom(2), out: () => zoom(0.5), left: () => move(-0.25), right: () => move(0.25), previous: () => nextEvent(-1), next: () => nextEvent(1) };
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => DEEDS[button.dataset.do]());
byId("events").addEventListener("click", (event) => { const button = event.target.closest("button"); if (button) select(Number(button.dataset.segment), true); });
byId("flow").addEventListener("change", () => opened(Number(byId("flow").value)).catch(failed));

const KEYS = { ArrowLeft: () => move(-0.1), ArrowRight: () => move(0.1), ArrowUp: () => lift(0.1), ArrowDown: () => lift(-0.1), "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), 0: DEEDS.whole, Home: DEEDS.whole, Enter: () => select(nearestToMiddle()), ".": () => select(selected + 1, true), ",": () => select(selected - 1, true), n: DEEDS.next, p: DEEDS.previous };
place.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
canvas.addEventListener("wheel", (event) => {
  if (document.activeElement !== place && !event.ctrlKey) return;
  event.preventDefault();
  const { place: frame } = drawn, x = event.offsetX - frame.left;
  zoom(event.deltaY < 0 ? 1.25 : 0.8, view.begin + (x / frame.width) * (view.end - view.begin));
}, { passive: false });

// A drag of the mouse magnifies what it covers; with Shift, or of a finger, it moves.
let pressed = null;
const box = element("div"); box.style.cssText = "position:absolute;pointer-events:none;border:1px solid var(--accent);background:color-mix(in srgb, var(--accent) 15%, transparent);display:none";
place.append(box);
canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  pressed = { x: event.offsetX, y: event.offsetY, moves: event.shiftKey || event.pointerType === "touch", view, far: false };
  canvas.setPointerCapture(event.pointerId);
  place.focus({ preventScroll: true });
});
canvas.addEventListener("pointermove", (event) => {
  if (!pressed) return;
  const { place: frame } = drawn, dx = event.offsetX - pressed.x, dy = event.offsetY - pressed.y;
  pressed.far ||= Math.hypot(dx, dy) > 4;
  if (!pressed.far) return;
  if (pressed.moves) { const by = (-dx / frame.width) * (pressed.view.end - pressed.view.begin); show(pressed.view.begin + by, pressed.view.end + by, pressed.view.range); return; }
  const tall = Math.abs(dy) > 16, top = tall ? Math.min(pressed.y, event.offsetY) : frame.top;
  Object.assign(box.style, { display: "block", left: `${Math.min(pressed.x, event.offsetX)}px`, width: `${Math.abs(dx)}px`, top: `${top}px`, height: `${tall ? Math.abs(dy) : frame.height}px` });
});
canvas.addEventListener("pointerup", (event) => {
  if (!pressed) return;
  const { x, y, moves, far } = pressed, { place: frame, range } = drawn;
  pressed = null; box.style.display = "none";
  if (moves && far) return;
  if (!far) { select(nearest(event.offsetX, event.offsetY)); return; }
  const time = (at) => view.begin + ((at - frame.left) / frame.width) * (view.end - view.begin);
  const height = (at) => range.low + ((frame.top + frame.height - at) / frame.height) * (range.high - range.low);
  const [left, right] = [x, event.offsetX].sort((a, b) => a - b), [top, bottom] = [y, event.offsetY].sort((a, b) => a - b);
  if (right - left > 4) show(time(left), time(right), bottom - top > 16 && top < frame.top + frame.height ? { low: height(Math.min(bottom, frame.top + frame.height)), high: height(Math.max(top, frame.top)) } : null);
});
canvas.addEventListener("pointercancel", () => { pressed = null; box.style.display = "none"; });
canvas.addEventListener("dblclick", DEEDS.whole);
new ResizeObserver(() => flow && redraw()).observe(place);

const button = document.querySelector(".scheme"), dark = window.matchMedia("(prefers-color-scheme: dark)");
const scheme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
const label = () => { button.textContent = scheme() === "dark" ? "Light" : "Dark"; };
function remembered(value) {
  // A page opened from disk may have no storage; then the choice lasts as long as the page.
  try { if (value) localStorage.setItem("sojourn-scheme", value); return localStorage.getItem("sojourn-scheme"); } catch { return null; }
}
const before = remembered();
if (before === "light" || before === "dark") root.dataset.theme = before;
button.hidden = false;
button.addEventListener("click", () => { root.dataset.theme = scheme() === "dark" ? "light" : "dark"; remembered(root.dataset.theme); label(); redraw(); });
dark.addEventListener("change", () => { label(); redraw(); });
label();

function failed(error) { root.dataset.diagram = "failed"; console.error(`The diagram could not be drawn: ${error}`); }
window.diagram = { thinned, unpacked, stagesOf, rowOf, select, show, columns: () => flow.columns, placeOf: (k) => ({ x: drawn.xOf(flow.columns.sent[k]), y: drawn.yOf(flow.columns.at[k] + flow.columns.payload_bytes[k] / 2) }) };
opened(0).catch(failed);
