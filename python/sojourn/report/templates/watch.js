
const FIGURES = [
  ["rtt_p50_ns", "RTT, median", "ns"], ["rtt_p90_ns", "RTT, p90", "ns"], ["rtt_p99_ns", "RTT, p99", "ns"],
  ["delay_p50_ns", "One-way delay, median", "ns"], ["delay_p99_ns", "One-way delay, p99", "ns"],
  ["throughput_bps", "Throughput", "bit/s"], ["pacing_p99_ns", "Pacing error, p99", "ns"],
];
const CHARTS = [
  ["rtt_p50_ns", "Round-trip time, median of a trial", "ns"], ["rtt_p99_ns", "Round-trip time, p99 of a trial", "ns"],
  ["delay_p50_ns", "One-way delay, median of a trial", "ns"], ["delay_p99_ns", "One-way delay, p99 of a trial", "ns"],
  ["loss", "Lost", "1"], ["throughput_bps", "Throughput received", "bit/s"], ["pacing_p99_ns", "Pacing error, p99 of a trial", "ns"],
];
const PRESENT = [
  ["device_latency", "mean", "Over direct, one way"], ["delay_between_taps", "p50", "Between taps, median"],
  ["one_way_delay", "p50", "One-way delay, median"], ["one_way_delay", "p99", "One-way delay, p99"],
  ["rtt", "p50", "RTT, median"], ["rtt", "p99", "RTT, p99"], ["loss", "ratio", "Lost"], ["loss_ratio", "ratio", "Lost"],
  ["received_pps", "mean", "Frames received"], ["throughput_bps", "mean", "Throughput"], ["pacing_error", "p99", "Pacing error, p99"],
];
let slugs = {}, symbols = {};

function device(name) {
  const cell = make("td", null, { class: "w" });
  cell.append(make("span", null, { class: `swatch device-${slugs[name] || "other1"}` }), name);
  return cell;
}
function head(names) {
  const part = make("thead"), row = make("tr");
  row.append(...names.map(([words, numeric]) => make("th", words, numeric ? { scope: "col", class: "n" } : { scope: "col" })));
  part.append(row);
  return part;
}
function bar(done, planned) {
  const whole = make("div", null, { class: "progress" }), part = make("div");
  part.style.width = `${planned ? (100 * done) / planned : 0}%`;
  whole.append(part);
  return whole;
}

function showStatus(told) {
  const look = told.look || {}, over = told.state === "finished", isFinal = over && look.final;
  byId("title").textContent = look.title || told.name;
  document.title = `${told.total ? `${Math.floor((100 * told.done) / told.total)} % – ` : ""}${look.title || told.name} – Sojourn, live`;
  byId("facts").textContent = [told.study && `study ${told.study}`, `run ${told.name}`, look.question].filter(Boolean).join(" · ");
  byId("folder").textContent = told.folder;
  const state = byId("state"), status = byId("status");
  state.textContent = told.state;
  status.className = `verdict ${(isFinal && look.verdict) || (over ? "note" : TONES[told.state] || "note")}`;
  const progress = byId("progress");
  progress.setAttribute("aria-valuemax", String(told.total));
  progress.setAttribute("aria-valuenow", String(told.done));
  progress.firstElementChild.style.width = `${told.total ? Math.min(100, (100 * told.done) / told.total) : 0}%`;
  byId("counts").textContent = [
    told.total ? `${told.done.toLocaleString("en").replaceAll(",", "\u202f")} of ${told.total.toLocaleString("en").replaceAll(",", "\u202f")} trials` : "no trial yet",
    told.beds > 1 ? `bed ${told.beds}` : "", told.elapsed_s ? (over ? `took ${lasting(told.elapsed_s)}` : `${lasting(told.elapsed_s)} so far`) : "",
    told.left_s ? `about ${lasting(told.left_s)} left` : "",
    told.still_s ? `nothing was written for ${lasting(told.still_s)}` : "",
  ].filter(Boolean).join(" · ");
  const sentence = byId("sentence");
  const words = told.sentence || (look.sentence ? `${isFinal ? "" : "So far: "}${look.sentence}` : "");
  sentence.hidden = !words;
  sentence.textContent = words;
}

function showPaths(told) {
  const paths = Object.entries(told.paths), has = FIGURES.filter(([key]) => paths.some(([, one]) => key in one.middle));
  byId("part-paths").hidden = paths.length === 0;
  byId("joined").hidden = !told.joined;
  const body = make("tbody");
  for (const [name, one] of paths) {
    const row = make("tr");
    row.append(device(name), make("td", one.trials.toLocaleString("en").replaceAll(",", "\u202f"), { class: "n" }));
    row.append(...has.map(([key, , unit]) => make("td", shown(unit, one.middle[key]), { class: "n" })));
    row.append(make("td", one.sent ? shown("1", one.lost / one.sent) : NOTHING, { class: "n" }));
    body.append(row);
  }
  const names = [["Path"], ["Trials", true], ...has.map(([, words]) => [words, true]), ["Lost, of all", true]];
  byId("paths").replaceChildren(head(names), body);
}

const SVG = "http://www.w3.org/2000/svg";
function draw(name, attributes, words) {
  const one = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  if (words !== undefined) one.textContent = words;
  return one;
}
const quantile = (sorted, p) => sorted[Math.min(sorted.length - 1, Math.floor(p * sorted.length))];

// Round steps of which three to six lie between two values.
function steps(low, high) {
  const rough = (high - low) / 4 || 1, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * size >= rough) * size;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

function panel([key, title, unit], paths) {
  const series = paths.filter(([, one]) => (one.points[key] || []).length);
  const values = series.flatMap(([, one]) => one.points[key].map(([, value]) => value)).sort((a, b) => a - b);
  const times = series.flatMap(([, one]) => one.points[key].map(([at]) => at));
  if (!values.length || (unit === "1" && values.every((one) => one === 0))) return null;
  let low = quantile(values, 0.01), high = quantile(values, 0.99);
  if (unit === "1" || low < 0.25 * high) low = Math.min(0, low);
  const room = (high - low || Math.abs(high) || (unit === "1" ? 0.01 : 1)) * 0.06;
  low = low === 0 ? 0 : low - room;
  high += room;
  const [size, name] = unitFor(unit, [high]);
  const width = Math.max(280, Math.min(560, byId("charts").clientWidth - 4)), height = 180, left = 46, bottom = 20, top = 8;
  const from = Math.min(...times), to = Math.max(...times, from + 1);
  const x = (at) => left + 6 + ((at - from) / (to - from)) * (width - left - 14);
  const y = (value) => top + (1 - (Math.min(high, Math.max(low, value)) - low) / (high - low)) * (height - top - bottom - 4);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}, ${values.length} trials` });
  for (const at of steps(low / size, high / size)) {
    svg.append(draw("line", { class: "gridline", x1: left, x2: width, y1: y(at * size), y2: y(at * size) }));
    svg.append(draw("text", { class: "tick", x: left - 6, y: y(at * size) + 4, "text-anchor": "end" }, String(Number(at.toPrecision(6))).replace("-", "\u2212")));
  }
  const [timeSize, timeName] = to - from > 600 ? [60, "min"] : [1, "s"];
  const marks = steps(from / timeSize, to / timeSize);
  marks.forEach((at, place) => {
    const words = `${Number(at.toPrecision(6)).toLocaleString("en").replaceAll(",", "\u202f")}${place === marks.length - 1 ? ` ${timeName}` : ""}`;
    svg.append(draw("text", { class: "tick", x: x(at * timeSize), y: height - 4, "text-anchor": place === marks.length - 1 ? "end" : "middle" }, words));
  });
  svg.append(draw("line", { class: "axis", x1: left, x2: width, y1: height - bottom, y2: height - bottom }));
  for (const [path, one] of series) {
    const group = draw("g", { class: `device-${slugs[path] || "other1"}` });
    for (const [at, value] of one.points[key]) group.append(dot(path, x(at), y(value), 2.3));
    svg.append(group);
  }
  const whole = make("div", null, { class: "panel", id: `chart-${key}` }), plot = make("div", null, { class: "plot" });
  plot.append(svg);
  whole.append(make("h3", `${title} [${name}]`), plot);
  return whole;
}

function dot(path, x, y, size) {
  return draw("path", { class: "dot", d: symbols[path] || "M-1,-1H1V1H-1Z", transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})` });
}

function showCharts(told) {
  const paths = Object.entries(told.paths);
  byId("part-charts").hidden = false; // its width is needed
  const panels = CHARTS.map((one) => panel(one, paths)).filter(Boolean);
  byId("part-charts").hidden = panels.length === 0;
  const legend = make("ul", null, { class: "legend" });
  legend.append(...paths.map(([name]) => {
    const one = make("li");
    const mark = draw("svg", { class: `mark device-${slugs[name] || "other1"}`, viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" });
    mark.append(dot(name, 6, 6, 4.5));
    one.append(mark, name);
    return one;
  }));
  const before = document.querySelector("#part-charts .legend");
  if (before) before.replaceWith(legend); else byId("charts").before(legend);
  byId("charts").replaceChildren(...panels);
}

function showCells(told) {
  const look = told.look || {}, cells = look.cells || [];
  byId("part-cells").hidden = cells.length === 0 && !look.problem && !told.looking;
  const measured = cells.reduce((sum, one) => sum + (one.done >= one.planned), 0);
  byId("looked").textContent = [
    cells.length ? `${measured} of ${cells.length} cells are complete, ${cells.length - measured} are to go` : "",
    look.problem ? `No figures: ${look.problem}` : "", told.looking ? "the records are being looked at" : "",
  ].filter(Boolean).join("; ");
  byId("of-cells").hidden = cells.length === 0;
  const at = (one, [quantity, statistic]) => (look.figures || []).find((row) =>
    row.cell === one.cell && row.device === one.device && row.quantity === quantity && row.statistic === statistic &&
    (row.reference === null || row.reference === "direct"));
  const has = PRESENT.filter((figure) => cells.some((one) => at(one, figure)));
  const body = make("tbody");
  cells.forEach((one, place) => {
    const opens = place === 0 || cells[place - 1].cell !== one.cell;
    const row = make("tr", null, opens ? { class: "opens" } : {});
    const name = make("td", null, { class: "w" });
    name.append(make("span", one.label, opens ? {} : { class: "again" }));
    row.append(name, device(one.device));
    const done = make("td", `${one.done} of ${one.planned}`, { class: "n" });
    done.append(bar(one.done, one.planned));
    row.append(done, ...has.map((figure) => {
      const found = at(one, figure);
      const cell = make("td", null, { class: "n" });
      if (!found) { cell.textContent = NOTHING; return cell; }
      const [value, interval] = withInterval(found.unit, found.estimate, found.ci_low, found.ci_high);
      cell.append(value, make("span", interval, { class: "ci" }));
      return cell;
    }));
    body.append(row);
  });
  byId("cells").replaceChildren(head([["Cell"], ["Path"], ["Trials", true], ...has.map(([, , words]) => [words, true])]), body);
}

function showFindings(told) {
  const found = [
    ...((told.look || {}).findings || []).map((one) => [one.severity, `${one.name.replaceAll("_", " ")}${one.where ? ` (${one.where})` : ""}: ${one.sentence}`]),
    ...told.notes.map((one) => ["log", `after ${lasting(one.at_s)}: ${one.sentence}`]),
  ];
  const tone = { invalid: "invalid", doubtful: "doubtful" };
  byId("part-findings").hidden = found.length === 0;
  byId("findings").replaceChildren(...found.map(([severity, words]) => {
    const line = make("li", null, { class: tone[severity] || "note" });
    line.append(make("span", severity, { class: "badge" }), make("div", words));
    return line;
  }));
}

let latest = null;
function show(told) {
  latest = told;
  slugs = told.slugs;
  symbols = told.symbols;
  for (const part of [showStatus, showPaths, showCharts, showCells, showFindings]) part(told);
}
let waiting = 0;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => latest && showCharts(latest), 200); });
follow(show);
