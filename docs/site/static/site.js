// What Furo's pages lack for those who use a keyboard or have the page read: names of landmarks, levels of headings,
// and a way to scroll what is wider than the window. Loads nothing.
document.addEventListener("DOMContentLoaded", () => {
  const name = (selector, words) => document.querySelector(selector)?.setAttribute("aria-label", words);
  name(".sidebar-drawer", "All pages");
  name(".toc-drawer", "On this page");
  for (const one of document.querySelectorAll(".caption[role=heading]")) one.setAttribute("aria-level", "2");
  for (const one of document.querySelectorAll("article pre, article .table-wrapper")) one.tabIndex = 0;
});
