// Draws every figure once; colours are CSS variables, so a change of scheme or the printer needs no redrawing.
const root = document.documentElement;

const drawn = [...document.querySelectorAll(".plot")].map((place) => {
  const spec = JSON.parse(document.getElementById(`spec-${place.id}`).textContent);
  const controls = place.querySelector(".controls");
  const target = place.querySelector(".target");
  return vegaEmbed(target, spec, { actions: false, ast: true, renderer: "svg", bind: controls, tooltip: { theme: "custom" } });
});
Promise.all(drawn).then(
  (all) => { root.dataset.figures = "drawn"; root.dataset.count = String(all.length); },
  (error) => { root.dataset.figures = "failed"; console.error(`A figure could not be drawn: ${error}`); },
);

const button = document.querySelector(".scheme");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const scheme = () => root.dataset.theme || (dark.matches ? "dark" : "light");
const label = () => { button.textContent = scheme() === "dark" ? "Light" : "Dark"; };

function remembered(value) {
  // A page opened from disk may have no storage; then the choice lasts as long as the page.
  try {
    if (value) localStorage.setItem("sojourn-scheme", value);
    return localStorage.getItem("sojourn-scheme");
  } catch { return null; }
}

const before = remembered();
if (before === "light" || before === "dark") root.dataset.theme = before;
button.hidden = false;
button.addEventListener("click", () => {
  root.dataset.theme = scheme() === "dark" ? "light" : "dark";
  remembered(root.dataset.theme);
  label();
});
dark.addEventListener("change", label);
label();

// Collapsed parts would be missing on paper; the longest lists (interrupts, counters) stay as the reader left them.
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open]):not(.inner)")];
  for (const part of opened) part.open = true;
});
window.addEventListener("afterprint", () => { for (const part of opened) part.open = false; });
