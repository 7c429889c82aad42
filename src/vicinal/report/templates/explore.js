"use strict";
const $ = (id) => document.getElementById(id);
const token = location.hash.slice(1);
const colors = ["#1f6f8c", "#cf5f28", "#5c9a54", "#a7569b", "#b8922f", "#4f7bd0", "#c2566b", "#6f8f8a", "#8f74c9", "#8d6e55"];
const view = { zoom: 1, x: 0, y: 0 };
let bank = null, open = null, without = new Set(), pair = null, hovered = -1, range = [0, 1];

async function ask(what, body = {}) {
  const answer = await fetch("/api/" + what, { method: "POST", headers: { "X-Token": token }, body: JSON.stringify(body) });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}
// All text comes in by textContent: cells are data of others.
function make(tag, text = "", kind = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (kind) element.className = kind;
  return element;
}
function button(text, act, kind = "") {
  const element = make("button", text, kind);
  element.type = "button";
  element.addEventListener("click", () => attempt(act));
  return element;
}
async function attempt(act) {
  try { await act(); } catch (wrong) { say(wrong.message, true); }
}
function say(text, bad = false) { $("status").textContent = text; $("status").className = bad ? "bad" : "good"; }
function number(value) { return typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value ?? ""); }
function cells(row) {
  const box = make("div", "", "cells");
  for (const view of row) {
    const cell = make("div", "", "cell");
    cell.append(make("small", view.column));
    if (view.kind === "text") cell.append(make("div", view.text, "text"));
    else {
      const medium = make(view.kind === "image" ? "img" : "audio", "", "media");
      if (view.kind === "image") medium.alt = view.column + " of this row"; else medium.controls = true;
      medium.src = view.source;
      cell.append(medium);
    }
    box.append(cell);
  }
  return box;
}
function entry(one, facts, actions = []) {
  const box = make("div", "", "entry"), said = make("div", "", "facts-of num");
  box.dataset.id = one.id;
  for (const fact of facts) said.append(make("div", fact));
  const row = make("div", "", "actions");
  row.append(button("Open " + one.id, () => openRow(String(one.id))), ...actions);
  box.append(cells(one.cells), said, row);
  return box;
}

// The map.
function color(place) {
  const by = $("color").value;
  const value = by === "age" ? place : bank[by][place];
  if (value === null) return "#9999994d";
  if (by === "labels" && bank.classes) return colors[Math.min(value, 9)];
  const share = Math.max(0, Math.min(1, (value - range[0]) / (range[1] - range[0] || 1)));
  const ends = share < 0.5 ? [[31, 111, 140], [190, 184, 165]] : [[190, 184, 165], [207, 95, 40]];
  const at = share < 0.5 ? 2 * share : 2 * share - 1;
  return `rgb(${ends[0].map((one, k) => Math.round(one + (ends[1][k] - one) * at)).join(" ")})`;
}
function recolor() {
  const by = $("color").value;
  const values = (by === "age" ? bank.labels.map((_, place) => place) : bank[by]).filter((one) => one !== null).sort((a, b) => a - b);
  range = [values[Math.floor(0.02 * values.length)] ?? 0, values[Math.floor(0.98 * (values.length - 1))] ?? 1];
  $("legend").textContent = "";
  if (by === "labels" && bank.classes)
    bank.classes.slice(0, 10).forEach((name, place) => {
      const part = make("span", "● " + name + "  ");
      part.style.color = colors[place];
      $("legend").append(part);
    });
  else $("legend").textContent = by === "age" ? "blue: first rows, red: last" : `blue ${number(range[0])} to red ${number(range[1])}` +
    (by !== "labels" && bank.doubted < bank.rows ? `, of ${bank.doubted} rows` : "");
  draw();
}
function place(at) {
  const c = $("map"), side = Math.min(c.width, c.height) * 0.47 * view.zoom;
  return [c.width / 2 + (bank.points[at][0] - view.x) * side, c.height / 2 - (bank.points[at][1] - view.y) * side];
}
function draw() {
  const c = $("map"), pen = c.getContext("2d"), scale = devicePixelRatio || 1;
  c.width = c.clientWidth * scale;
  c.height = c.clientHeight * scale;
  const size = (bank.ids.length > 5000 ? 2.4 : 5) * scale;
  for (let at = 0; at < bank.ids.length; at++) {
    const [x, y] = place(at);
    if (x < 0 || y < 0 || x > c.width || y > c.height) continue;
    pen.fillStyle = color(at);
    pen.fillRect(x - size / 2, y - size / 2, size, size);
  }
  const chosen = open === null ? -1 : bank.ids.findIndex((one) => String(one) === open);
  pen.lineWidth = 2 * scale;
  pen.strokeStyle = getComputedStyle(document.body).color;
  if (chosen >= 0) { const [x, y] = place(chosen); pen.beginPath(); pen.arc(x, y, 9 * scale, 0, 7); pen.stroke(); }
}
function nearest(event) {
  const c = $("map"), scale = devicePixelRatio || 1;
  let best = -1, least = (14 * scale) ** 2;
  for (let at = 0; at < bank.ids.length; at++) {
    const [x, y] = place(at);
    const far = (x - event.offsetX * scale) ** 2 + (y - event.offsetY * scale) ** 2;
    if (far < least) { least = far; best = at; }
  }
  return best;
}
function label(at) { return bank.classes ? bank.classes[bank.labels[at]] : number(bank.labels[at]); }
function move(x, y, zoom = 1) { view.x += x / view.zoom; view.y += y / view.zoom; view.zoom = Math.max(0.5, Math.min(400, view.zoom * zoom)); draw(); }
function listen() {
  const c = $("map");
  let from = null, moved = false;
  c.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; moved = false; });
  c.addEventListener("pointerup", (event) => { from = null; if (!moved) { const at = nearest(event); if (at >= 0) attempt(() => openRow(String(bank.ids[at]))); } });
  c.addEventListener("pointermove", (event) => {
    if (from !== null && event.buttons) {
      const side = Math.min(c.clientWidth, c.clientHeight) * 0.47, dx = event.clientX - from[0], dy = event.clientY - from[1];
      if (moved || Math.abs(dx) + Math.abs(dy) > 4) { moved = true; from = [event.clientX, event.clientY]; move(-dx / side, dy / side); }
      return;
    }
    hovered = nearest(event);
    if (hovered >= 0) $("hint").textContent = `row ${bank.ids[hovered]} · ${bank.target} ${label(hovered)}` + (bank.doubt[hovered] === null ? "" : ` · doubt ${number(bank.doubt[hovered])}`);
  });
  c.addEventListener("wheel", (event) => { event.preventDefault(); move(0, 0, event.deltaY < 0 ? 1.2 : 1 / 1.2); }, { passive: false });
  c.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1], "+": [0, 0, 1.3], "-": [0, 0, 1 / 1.3] }[event.key];
    if (step) { event.preventDefault(); move(...step); }
  });
  addEventListener("resize", draw);
}

// A row.
function prediction(one) {
  const box = make("div", "", "two");
  const part = (name, value, kind) => { const div = make("div"); div.append(make("small", name, "muted"), make("div", value, "big " + kind)); box.append(div); };
  part("predicted" + (one.id === undefined ? "" : " without itself"), number(one.prediction) + (one.chance === null ? "" : ` (${Math.round(100 * one.chance)} %)`), "is-prediction");
  if (one.label !== undefined) part(bank.target, number(one.label), "is-truth");
  return box;
}
function behind(one, again) {
  const box = make("div");
  box.append(make("h3", "Rows behind it"));
  for (const row of one.behind)
    box.append(entry(row, [`${number(row.label)}`, `${(100 * row.weight).toFixed(1)} %`], [button("Leave out " + row.id, () => { without.add(String(row.id)); return again(); })]));
  if (one.others.rows) box.append(make("p", `${one.others.rows} other rows: ${(100 * one.others.weight).toFixed(1)} %`, "muted"));
  if (without.size) box.append(button(`Put back ${[...without].join(", ")}`, () => { without.clear(); return again(); }));
  return box;
}
async function openRow(name, focus = true) {
  if (open !== name) without.clear();
  open = name;
  const one = await ask("row", { name, without: [...without] }), box = $("detail");
  box.replaceChildren(make("h2", "Row " + one.id), cells(one.cells), prediction(one));
  const form = make("form"), input = make(bank.classes ? "select" : "input");
  input.id = "label";
  input.setAttribute("aria-label", "New label");
  for (const name of bank.classes || []) input.append(make("option", name));
  input.value = String(one.label);
  const correct = make("button", "Correct the label", "strong");
  form.append(input, correct);
  form.addEventListener("submit", (event) => { event.preventDefault(); attempt(() => change("relabel", { name, label: input.value }, `row ${name} is ${input.value} now`)); });
  const tools = make("div", "", "tools");
  tools.append(
    button("Forget this row", () => {
      if (confirm("Forget row " + name + "? No file will hold it. Undo works only until this page's server ends.")) return change("forget", { name }, `row ${name} is forgotten`);
    }),
    button("Nearest of another label", async () => { const { other } = await ask("nearest_other", { name }); if (other) await compare(name, String(other.id)); else say("no row of another label is near"); }),
    button(pair === null || pair === name ? "Compare with the next row I open" : `Compare with ${pair}`, () => { if (pair === null || pair === name) { pair = name; say(`open another row to compare it with ${name}`); } else { const other = pair; pair = null; return compare(name, other); } }),
  );
  box.append(form, tools, behind(one, () => openRow(name)));
  const near = make("div");
  near.append(make("h3", "Most like it"), ...one.near.map((hit) => entry(hit, [number(hit.label), "score " + number(hit.score)])));
  box.append(near);
  draw();
  if (focus) box.focus();
}
async function compare(a, b) {
  const both = await ask("compare", { a, b }), table = make("table"), head = make("tr");
  const names = both.cells[0].map((cell) => cell.column);
  for (const text of ["", `row ${a}: ${number(both.labels[0])}`, `row ${b}: ${number(both.labels[1])}`, "nearer if equal"]) head.append(make("th", text));
  table.append(head);
  names.forEach((name, at) => {
    const line = make("tr");
    line.append(make("th", name));
    for (const row of both.cells) { const cell = make("td"); cell.append(cells([row[at]])); line.append(cell); }
    line.append(make("td", both.adds && name in both.adds ? number(both.adds[name]) : "", "num"));
    table.append(line);
  });
  const scroll = make("div", "", "scroll");
  scroll.append(table);
  $("list").replaceChildren(make("h2", "Two rows"), make("p", `score ${number(both.score)}` + (both.adds ? "; the last column says by how much it would rise if the first row had the cell of the second" : ""), "muted"), scroll);
}
async function suspects() {
  const rows = await ask("suspects");
  await load();
  $("list").replaceChildren(make("h2", "Suspicious labels"), make("p", `Rows whose label fits least what all other rows say, most doubtful first, of ${bank.doubted} that were looked at.`, "muted"),
    ...rows.map((one) => entry(one, [`${bank.target} ${number(one.label)}`, `others say ${number(one.said)}`, `doubt ${number(one.score)}`])));
}
function addForm() {
  const form = make("form"), row = make("textarea"), input = make("input"), send = make("button", "Add it", "strong");
  row.id = "new-row"; row.setAttribute("aria-label", "Row as JSON"); input.id = "new-label"; input.setAttribute("aria-label", "Label of the new row");
  row.value = JSON.stringify(Object.fromEntries(Object.keys(bank.columns).map((name) => [name, bank.columns[name] === "number" ? 0 : ""])));
  input.placeholder = bank.target;
  form.append(row, input, send);
  form.addEventListener("submit", (event) => { event.preventDefault(); attempt(async () => { const done = await change("add", { row: row.value, label: input.value }, "the row is added"); await openRow(String(done.id)); }); });
  $("list").replaceChildren(make("h2", "Add a row"), form);
  row.focus();
}
async function search(query) {
  without.clear();
  await searchAgain(query);
}
async function searchAgain(query) {
  const one = await ask("search", { query, without: [...without] });
  if (one.id !== undefined) return openRow(String(one.id));
  $("list").replaceChildren(make("h2", "Most like it"), ...one.hits.map((hit) => entry(hit, [number(hit.label), "score " + number(hit.score)])));
  if (one.behind) { open = null; $("detail").replaceChildren(make("h2", "This row"), prediction(one), behind(one, () => searchAgain(query))); }
}
async function change(what, body, text) {
  const done = await ask(what, body);
  if (what === "forget") { open = null; $("detail").replaceChildren(); }
  try {
    if (open !== null) await openRow(open, false);
  } catch { open = null; $("detail").replaceChildren(); }
  say(text);
  await load();
  return done;
}
async function load() {
  bank = await ask("map");
  $("name").textContent = `${bank.name}: ${bank.rows} rows`;
  $("undo").disabled = bank.undo === 0;
  recolor();
}
async function follow() {
  try {
    const now = await ask("version");
    if (now.version !== bank.version) {
      await load();
      if (open !== null && !bank.ids.some((one) => String(one) === open)) { open = null; $("detail").replaceChildren(); }
      if (open !== null) await openRow(open, false);
      say("the bank was changed elsewhere; this is how it is now");
    }
  } catch { /* the server has ended, or is busy: ask again */ }
  setTimeout(follow, 2000);
}
addEventListener("DOMContentLoaded", () => attempt(async () => {
  await load();
  listen();
  $("color").addEventListener("change", recolor);
  $("find").addEventListener("submit", (event) => { event.preventDefault(); attempt(() => search($("query").value)); });
  $("show-suspects").addEventListener("click", () => attempt(suspects));
  $("show-add").addEventListener("click", addForm);
  $("undo").addEventListener("click", () => attempt(() => change("undo", {}, "taken back")));
  $("export").addEventListener("click", () => attempt(async () => {
    const { csv } = await ask("changed"), link = make("a");
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    link.download = "changes.csv";
    link.click();
  }));
  await suspects();
  setTimeout(follow, 2000);
}));
