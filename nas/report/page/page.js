// Selects a mechanism, sorts and searches the table, and shows tooltips.
// Everything that is shown is already in the page, as HTML that Python has escaped.

const at = (id) => document.getElementById(id);
const panel = at("mechanism");
const body = document.querySelector(".rows tbody");
const rows = [...body.rows];
const details = new Map([...document.querySelectorAll("template")].map((one) => [one.dataset.address, one.content]));

/** The selected mechanism: that of the page's address, or the best one. */
function selected() {
  return details.has(location.hash) ? location.hash : panel.dataset.selected;
}

/** Show the selected mechanism in its panel, in the table and in the front. */
function select() {
  const address = selected();
  const content = details.get(address);
  if (content) panel.replaceChildren(content.cloneNode(true));
  for (const row of rows) row.setAttribute("aria-selected", String(row.dataset.address === address));
  for (const link of document.querySelectorAll(".chart a")) link.classList.toggle("chosen", link.getAttribute("href") === address);
}

/** Show the rows that contain every word of the search box. */
function search() {
  const words = at("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    row.text ??= row.textContent.toLowerCase();
    row.hidden = !words.every((word) => row.text.includes(word));
    count += row.hidden ? 0 : 1;
  }
  at("count").textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
}

/** Sort the table by a column: numbers first downwards, words upwards, a second time the other way. */
function sort(head) {
  const column = head.cellIndex;
  const isNumber = head.classList.contains("number");
  const first = isNumber ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === first ? (isNumber ? "ascending" : "descending") : first;
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const number = (row) => Number(row.cells[column].dataset.value ?? NaN);
  const compared = (a, b) => {
    if (!isNumber) return sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent);
    const [left, right] = [number(a), number(b)];
    // Unknown numbers come last in either direction.
    return Number.isNaN(left) - Number.isNaN(right) || sign * (left - right) || 0;
  };
  body.append(...[...rows].sort(compared));
}

/** Show the mechanism of a link in the front beside it. */
function showTip(link) {
  const content = details.get(link.getAttribute("href"));
  if (!content) return;
  const tip = at("tip");
  const parts = ["h2", ".formula", ".facts", ".bars"].map((part) => content.querySelector(part));
  tip.replaceChildren(...parts.filter(Boolean).map((part) => part.cloneNode(true)));
  tip.hidden = false;
  const { left, right, top } = link.getBoundingClientRect();
  const { width, height } = tip.getBoundingClientRect();
  const x = right + 12 + width > innerWidth ? left - 12 - width : right + 12;
  const y = Math.min(Math.max(8, top - height / 2), innerHeight - height - 8);
  tip.style.transform = `translate(${Math.max(8, x)}px, ${y}px)`;
}

for (const head of document.querySelectorAll(".rows th")) head.addEventListener("click", () => sort(head));
at("words").addEventListener("input", search);
body.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (row && !event.target.closest("a")) location.hash = row.dataset.address;
});
for (const chart of document.querySelectorAll(".chart")) {
  chart.addEventListener("pointerover", (event) => {
    const link = event.target.closest("a");
    if (link) showTip(link);
    else at("tip").hidden = true;
  });
  chart.addEventListener("pointerleave", () => (at("tip").hidden = true));
}
addEventListener("keydown", (event) => {
  if (event.key === "Escape") at("tip").hidden = true;
  if (event.key !== "/" || event.target.matches("input")) return;
  event.preventDefault();
  at("words").focus();
});
addEventListener("hashchange", () => {
  select();
  // A link further down leads back to the panel.
  if (panel.getBoundingClientRect().bottom < 0) panel.scrollIntoView();
});

select();
search();
document.documentElement.classList.add("scripted");
document.documentElement.dataset.ready = Math.round(performance.now());
