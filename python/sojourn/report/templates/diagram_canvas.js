// Draws a stretch of one flow on a canvas: above sequence numbers over time, below each segment's delay.

const MARGIN = { left: 64, right: 12, top: 10, bottom: 30, between: 26 };
const SHAPES = ["bar", "triangle", "square", "diamond", "circle"]; // by the kind of a retransmission
const INKS = ["first", "fast", "timeout", "probe", "other"];

const inkOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function inks() {
  const named = Object.fromEntries(["first", "fast", "timeout", "probe", "other", "ack", "window", "sack", "lost"].map((one) => [one, inkOf(`--d-${one}`)]));
  const resolved = document.createElement("span");
  document.body.append(resolved);
  for (const one of Object.keys(named)) { resolved.style.color = `var(--d-${one})`; named[one] = getComputedStyle(resolved).color; }
  for (const one of ["ink", "muted", "grid", "rule", "paper", "accent"]) { resolved.style.color = `var(--${one})`; named[one] = getComputedStyle(resolved).color; }
  resolved.remove();
  return named;
}

function placesOf(box) {
  const width = Math.max(40, box.width - MARGIN.left - MARGIN.right);
  const delay = Math.max(56, Math.round(box.height * 0.2));
  const top = MARGIN.top, height = box.height - MARGIN.top - MARGIN.bottom - MARGIN.between - delay;
  return { left: MARGIN.left, width: Math.floor(width), top, height, delayTop: top + height + MARGIN.between, delay };
}

function steps(low, high, count) {
  const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) ?? power * 10;
  const found = [];
  if (!(step > 0) || low + step === low) return { step, found };
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return { step, found };
}
const digitsOf = (step) => Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9)));
function bytesText(value) {
  const [size, unit] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([one]) => Math.abs(value) >= one) ?? [1, "B"];
  return `${Number((value / size).toPrecision(7))} ${unit}`;
}

function shape(context, kind, x, y, size) {
  context.beginPath();
  if (kind === "triangle") { context.moveTo(x, y - size); context.lineTo(x + size, y + size * 0.8); context.lineTo(x - size, y + size * 0.8); }
  else if (kind === "square") context.rect(x - size * 0.85, y - size * 0.85, size * 1.7, size * 1.7);
  else if (kind === "diamond") { context.moveTo(x, y - size * 1.15); context.lineTo(x + size * 1.15, y); context.lineTo(x, y + size * 1.15); context.lineTo(x - size * 1.15, y); }
  else context.arc(x, y, size * 0.9, 0, 7);
  context.closePath();
  context.fill();
}

function cross(context, x, y, size) {
  context.beginPath();
  context.moveTo(x - size, y - size); context.lineTo(x + size, y + size);
  context.moveTo(x - size, y + size); context.lineTo(x + size, y - size);
  context.stroke();
}

// A line of steps: of each pixel column its first, least, greatest and last value.
function stairs(context, line, view, xOf, yOf) {
  const from = Math.max(0, firstFrom(line.time_ns, view.begin) - 1), until = Math.min(line.time_ns.length, firstFrom(line.time_ns, view.end) + 1);
  if (until <= from) return;
  context.beginPath();
  let i = from, before = yOf(line.at[i]);
  context.moveTo(xOf(line.time_ns[i]), before);
  while (i < until) {
    const x = xOf(line.time_ns[i]), column = Math.round(x);
    let low = line.at[i], high = low;
    for (; i < until && Math.round(xOf(line.time_ns[i])) === column; i++) { low = Math.min(low, line.at[i]); high = Math.max(high, line.at[i]); }
    const last = yOf(line.at[i - 1]);
    context.lineTo(x, before);
    if (low !== high) { context.lineTo(x, yOf(low)); context.lineTo(x, yOf(high)); }
    context.lineTo(x, last);
    before = last;
  }
  context.lineTo(xOf(Math.max(line.time_ns[until - 1], until === line.time_ns.length ? view.end : 0)), before);
  context.stroke();
}

// Whether a line lies above all that is shown.
function isAbove(line, view, high) {
  const from = Math.max(0, firstFrom(line.time_ns, view.begin) - 1), until = Math.min(line.time_ns.length, firstFrom(line.time_ns, view.end) + 1);
  for (let i = from; i < until; i++) if (line.at[i] <= high) return false;
  return until > from;
}

function axes(context, colours, view, place, range, slowest, flow) {
  context.font = `12px ${inkOf("--sans")}`;
  context.textBaseline = "middle"; context.lineWidth = 1;
  const bottom = place.top + place.height, under = place.delayTop + place.delay;
  const line = (x0, y0, x1, y1, ink) => { context.strokeStyle = ink; context.beginPath(); context.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5); context.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5); context.stroke(); };
  const times = steps(view.begin / 1e9, view.end / 1e9, place.width / 110);
  context.textAlign = "center";
  for (const at of times.found) {
    const x = place.left + ((at * 1e9 - view.begin) / (view.end - view.begin)) * place.width;
    line(x, place.top, x, bottom, colours.grid); line(x, place.delayTop, x, under, colours.grid);
    context.fillStyle = colours.muted;
    const text = at.toFixed(digitsOf(times.step));
    if (x < place.left + place.width - 24 - text.length * 3) context.fillText(text, x, under + 14);
  }
  context.textAlign = "right"; context.fillText("s", place.left + place.width, under + 14);
  for (const at of steps(range.low, range.high, place.height / 60).found) {
    const y = bottom - ((at - range.low) / (range.high - range.low)) * place.height;
    line(place.left, y, place.left + place.width, y, colours.grid);
    context.fillStyle = colours.muted; context.fillText(bytesText(at), place.left - 8, y);
  }
  if (slowest > 0) for (const at of steps(0, slowest / 1e6, 2).found) {
    const y = under - (at * 1e6 / slowest) * place.delay;
    line(place.left, y, place.left + place.width, y, colours.grid);
    context.fillStyle = colours.muted; context.fillText(String(Number(at.toPrecision(6))), place.left - 8, y);
  }
  context.strokeStyle = colours.rule;
  context.strokeRect(place.left + 0.5, place.top + 0.5, place.width, place.height);
  context.strokeRect(place.left + 0.5, place.delayTop + 0.5, place.width, place.delay);
  context.textAlign = "left"; context.fillStyle = colours.muted;
  context.fillText(`Delay to the ${flow.delayed_to}, ms`, place.left, place.delayTop - 10);
}

// Returns where things are, so that a pointer finds them.
function draw(canvas, flow, view, selected) {
  const box = canvas.getBoundingClientRect(), density = window.devicePixelRatio || 1;
  canvas.width = Math.round(box.width * density); canvas.height = Math.round(box.height * density);
  const context = canvas.getContext("2d"), colours = inks(), place = placesOf(box);
  context.scale(density, density);
  context.fillStyle = colours.paper; context.fillRect(0, 0, box.width, box.height);
  const thin = thinned(flow.columns, view.begin, view.end, place.width);
  const range = view.range ?? rangeOf(flow, thin, view);
  let slowest = 0;
  for (const one of thin.most) if (one > slowest) slowest = one;
  slowest *= 1.08;
  const bottom = place.top + place.height, under = place.delayTop + place.delay;
  const xOf = (at) => place.left + ((at - view.begin) / (view.end - view.begin)) * place.width;
  const yOf = (at) => bottom - ((at - range.low) / (range.high - range.low)) * place.height;
  axes(context, colours, view, place, range, slowest, flow);
  const { sent, at, payload_bytes: length, mark, delay_ns: delay } = flow.columns;

  context.save(); context.beginPath(); context.rect(place.left, place.top, place.width, place.height); context.clip();
  context.lineWidth = 1.2; context.setLineDash([4, 3]); context.strokeStyle = colours.window;
  stairs(context, flow.lines.window, view, xOf, yOf);
  context.setLineDash([]);
  if (isAbove(flow.lines.window, view, range.high)) {
    context.fillStyle = colours.muted; context.textAlign = "left";
    context.fillText("↑ the end of the receiver's window is above", place.left + 8, place.top + 12);
  }
  context.lineWidth = 1.4; context.strokeStyle = colours.ack;
  stairs(context, flow.lines.acks, view, xOf, yOf);
  context.fillStyle = colours.sack;
  const sacks = flow.lines.sacks;
  for (let i = firstFrom(sacks.time_ns, view.begin), drawnAt = ""; i < sacks.time_ns.length && sacks.time_ns[i] <= view.end; i++) {
    const x = Math.round(xOf(sacks.time_ns[i])), y = Math.round(yOf(sacks.high[i])), key = `${x} ${y}`;
    if (key !== drawnAt) context.fillRect(x - 1, y, 2, Math.max(2, yOf(sacks.low[i]) - y));
    drawnAt = key;
  }
  context.fillStyle = colours.first;
  for (let x = 0; x < place.width; x++) if (thin.high[x] > -Infinity) {
    const y = yOf(thin.high[x]);
    context.fillRect(place.left + x, y, 1, Math.max(1.5, yOf(thin.low[x]) - y));
  }
  for (const k of thin.singly) if (!(mark[k] & KIND)) bar(context, xOf(sent[k]), yOf(at[k]), yOf(at[k] + length[k]));
  const marked = thin.singly.reduce((count, k) => count + (mark[k] > 0), 0), size = marked > place.width / 3 ? 1.6 : 4.5;
  const seen = new Set();
  const fresh = (x, y, of) => { const key = (Math.round(x) * 8192 + Math.round(y)) * 64 + of; return seen.has(key) ? false : seen.add(key); };
  for (const k of thin.singly) if (mark[k] & KIND) {
    const kind = mark[k] & KIND, x = xOf(sent[k]), low = yOf(at[k]), high = yOf(at[k] + length[k]);
    if (!fresh(x, low, kind)) continue;
    context.fillStyle = colours[INKS[kind]];
    bar(context, x, low, high);
    shape(context, SHAPES[kind], x, (low + high) / 2, size);
  }
  context.strokeStyle = colours.lost; context.lineWidth = size > 2 ? 2 : 1;
  for (const k of thin.singly) if (mark[k] >> LOSS) {
    const x = xOf(sent[k]), y = yOf(at[k] + length[k] / 2);
    if (fresh(x, y, 32 + (mark[k] >> LOSS))) cross(context, x, y, size + 0.5);
    if (mark[k] >> LOSS === 2) { context.beginPath(); context.arc(x, y, size * 1.7, 0, 7); context.stroke(); }
  }
  context.strokeStyle = colours.ack;
  const gone = flow.lines.lost_acks;
  for (let i = firstFrom(gone.time_ns, view.begin); i < gone.time_ns.length && gone.time_ns[i] <= view.end; i++) cross(context, xOf(gone.time_ns[i]), yOf(gone.at[i]), 3.5);
  if (selected >= 0) ring(context, colours, xOf(sent[selected]), yOf(at[selected] + length[selected] / 2), Math.abs(yOf(at[selected]) - yOf(at[selected] + length[selected])) / 2);
  context.restore();

  context.save(); context.beginPath(); context.rect(place.left, place.delayTop, place.width, place.delay); context.clip();
  const dOf = (value) => under - (value / slowest) * place.delay;
  context.fillStyle = colours.first;
  for (let x = 0; x < place.width; x++) if (thin.most[x] >= 0) context.fillRect(place.left + x, dOf(thin.most[x]) - 1, 1, Math.max(2, dOf(thin.least[x]) - dOf(thin.most[x]) + 2));
  for (const k of thin.singly) if (delay[k] >= 0 && place.width > (thin.until - thin.from) * 2) context.fillRect(xOf(sent[k]) - 1.5, dOf(delay[k]) - 1.5, 3, 3);
  if (selected >= 0 && delay[selected] >= 0) ring(context, colours, xOf(sent[selected]), dOf(delay[selected]), 2);
  context.restore();
  return { place, range, thin, xOf, yOf, box };
}

// A segment: from its first to its last byte, with arrowheads where there is room, as tcptrace has them.
function bar(context, x, low, high) {
  const size = low - high;
  context.fillRect(x - 0.75, high, 1.5, Math.max(2, size));
  if (size > 9) { context.fillRect(x - 3.5, high, 7, 1.5); context.fillRect(x - 3.5, low - 1.5, 7, 1.5); }
}

function ring(context, colours, x, y, half) {
  context.strokeStyle = colours.paper; context.lineWidth = 5;
  for (const [ink, width] of [[colours.paper, 5], [colours.ink, 2]]) {
    context.strokeStyle = ink; context.lineWidth = width;
    context.beginPath(); context.ellipse(x, y, 9, Math.max(9, half + 5), 0, 0, 7); context.stroke();
  }
}

// The sequence numbers of what is shown: of the segments there, and of what was acknowledged then.
function rangeOf(flow, thin, view) {
  const { at, payload_bytes: length } = flow.columns, { time_ns, at: acked } = flow.lines.acks;
  let low = Infinity, high = -Infinity;
  for (const one of thin.low) if (one < low) low = one;
  for (const one of thin.high) if (one > high) high = one;
  for (const k of thin.singly) { low = Math.min(low, at[k]); high = Math.max(high, at[k] + length[k]); }
  const first = Math.max(0, firstFrom(time_ns, view.begin) - 1), last = Math.min(time_ns.length, firstFrom(time_ns, view.end)) - 1;
  if (last >= first && acked.length) { low = Math.min(low, acked[first]); high = Math.max(high, acked[last]); }
  if (!(high > low)) { low = Math.min(low, 0); high = Math.max(high, low + 1448); }
  const room = (high - low) * 0.06;
  return { low: low - room, high: high + room };
}
