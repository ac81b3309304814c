// What both live pages need: the scheme, the stream of events, numbers with their units. Text of others is only ever text.
const root = document.documentElement;
const byId = (id) => document.getElementById(id);

function make(name, words, attributes = {}) {
  const one = document.createElement(name);
  if (words !== undefined && words !== null) one.textContent = words;
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  return one;
}

const button = document.querySelector(".scheme");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const scheme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
const label = () => { button.textContent = scheme() === "dark" ? "Light" : "Dark"; };
const remembered = (value) => {
  try {
    if (value) localStorage.setItem("sojourn-scheme", value);
    return localStorage.getItem("sojourn-scheme");
  } catch { return null; }
};
if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
button.hidden = false;
button.addEventListener("click", () => {
  root.dataset.theme = scheme() === "dark" ? "light" : "dark";
  remembered(root.dataset.theme);
  label();
});
dark.addEventListener("change", label);
label();

// A stream that ends is asked for again. A server that was started anew refuses it: this page has the old token.
function follow(show) {
  const link = byId("link");
  const say = (state, words) => { link.dataset.state = state; link.textContent = words; };
  let events = null;
  const open = () => {
    events = new EventSource("events");
    events.onopen = () => say("live", "live");
    events.onmessage = (message) => {
      say("live", "live");
      show(JSON.parse(message.data));
      root.dataset.shown = String(Number(root.dataset.shown || 0) + 1);
    };
    events.onerror = () => {
      const refused = events.readyState === EventSource.CLOSED;
      say("lost", refused ? "sojourn watch refuses this address: open the one that it printed last"
        : "sojourn watch does not answer: trying again");
      if (refused) setTimeout(open, 2000);
    };
  };
  open();
}

const NOTHING = "–";
const digits = (value, n = 3) => {
  if (!Number.isFinite(value)) return NOTHING;
  const whole = Math.abs(value) >= 10 ** (n - 1);
  return (whole ? value.toLocaleString("en", { maximumFractionDigits: 0 }).replaceAll(",", "\u202f") : value.toPrecision(n))
    .replace("-", "\u2212");
};
const SCALES = {
  ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  "bit/s": [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]],
  "1/s": [[1e6, "M/s"], [1e3, "k/s"], [1, "/s"]],
  1: [[0.01, "%"]],
};
// The unit that suits the largest of several values, so that they can be compared.
function unitFor(unit, values) {
  const largest = Math.max(0, ...values.filter(Number.isFinite).map(Math.abs));
  const scales = SCALES[unit] || [[1, unit]];
  return scales.find(([size]) => largest >= size) || scales[scales.length - 1];
}
function shown(unit, value) {
  if (value === null || value === undefined) return NOTHING;
  if (value === 0) return unit === "1" ? "0 %" : `0 ${unitFor(unit, [0])[1]}`;
  const [size, name] = unitFor(unit, [value]);
  return `${digits(value / size)} ${name}`;
}
function withInterval(unit, value, low, high) {
  if (value === null) return ["lost", ""];
  const [size, name] = unitFor(unit, [value, low ?? 0, high ?? 0]);
  if (low === null || high === null) return [shown(unit, value), "no interval yet"];
  // Two digits of what the interval is wide: as the report rounds.
  const half = (high - low) / size / 2;
  const places = half > 0 ? Math.max(0, Math.min(6, 1 - Math.floor(Math.log10(half)))) : 0;
  const rounded = (one) => (one / size).toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places })
    .replaceAll(",", "\u202f").replace(/^-(?=[0.]*$)/, "").replace("-", "\u2212");
  return [`${rounded(value)} ${name}`, `${rounded(low)} to ${rounded(high)}`];
}
function lasting(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}
const TONES = { finished: "trusted", failed: "invalid", interrupted: "doubtful" };
