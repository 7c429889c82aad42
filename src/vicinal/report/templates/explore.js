"use strict";
const colors = ["#1f6f8c", "#cf5f28", "#5c9a54", "#a7569b", "#b8922f", "#4f7bd0", "#c2566b", "#6f8f8a", "#8f74c9", "#8d6e55"];
const view = { zoom: 1, x: 0, y: 0 };
let bank = null, filtered = null, open = null, without = new Set(), pair = null, range = [0, 1];
// What is open: {name} of a row of the bank, {place} of the table, or {query, files} that was typed; show() draws it again.

// Four digits, and those before the point of a large number: a label of 62795 is not shown as 62800.
function number(value) { return typeof value !== "number" ? String(value ?? "") : String(Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4))); }
function player(view, who) {
  const play = button("▶ " + view.text, async () => {
    const { source } = await ask("sound", { column: view.column, ...who }), sound = make("audio", "", "media");
    sound.controls = true;
    sound.setAttribute("aria-label", view.text);
    sound.src = source;
    play.replaceWith(sound);
    sound.focus();
    await sound.play();
  });
  return play;
}
function cells(row, who = {}) {
  const box = make("div", "", "cells");
  for (const view of row) {
    const cell = make("div", "", "cell");
    cell.append(make("small", view.column));
    if (view.kind === "text") cell.append(make("div", view.text, "text"));
    else if (view.kind === "sound") cell.append(player(view, who));
    else {
      const medium = make("img", "", "media");
      medium.alt = view.column + " of this row";
      medium.src = view.source;
      cell.append(medium);
    }
    box.append(cell);
  }
  return box;
}
function entry(one, facts, actions = []) {
  const box = make("div", "", "entry"), said = make("div", "", "facts-of num");
  for (const fact of facts) said.append(make("div", fact));
  const row = make("div", "", "actions"), who = one.place === undefined ? { name: String(one.id) } : { place: String(one.place) };
  row.append(button("Open " + (one.title ?? one.id), () => (who.name === undefined ? openQuery(who.place) : openRow(who.name))), ...actions);
  box.append(cells(one.cells, who), said, row);
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
  const point = at < bank.ids.length ? bank.points[at] : bank.queries[at - bank.ids.length].point;
  return [c.width / 2 + (point[0] - view.x) * side, c.height / 2 - (point[1] - view.y) * side];
}
function draw() {
  const c = $("map"), pen = c.getContext("2d"), scale = devicePixelRatio || 1, rows = bank.ids.length;
  c.width = c.clientWidth * scale;
  c.height = c.clientHeight * scale;
  const size = (rows > 5000 ? 2.4 : 5) * scale, ink = getComputedStyle(document.body).color;
  let last = "";
  pen.lineWidth = 1.5 * scale;
  pen.strokeStyle = ink;
  for (let at = 0; at < rows + bank.queries.length; at++) {
    const [x, y] = place(at);
    if (x < 0 || y < 0 || x > c.width || y > c.height) continue;
    if (at < rows) { const fill = filtered && !filtered[at] ? "#9999994d" : color(at); if (fill !== last) pen.fillStyle = last = fill; pen.fillRect(x - size / 2, y - size / 2, size, size); }
    else pen.strokeRect(x - 3 * scale, y - 3 * scale, 6 * scale, 6 * scale);
  }
  const chosen = open === null ? -1 : open.name !== undefined ? bank.ids.findIndex((one) => String(one) === open.name)
    : open.place !== undefined ? rows + bank.queries.findIndex((one) => String(one.place) === open.place) : -1;
  pen.lineWidth = 2 * scale;
  if (chosen >= 0) { const [x, y] = place(chosen); pen.beginPath(); pen.arc(x, y, 9 * scale, 0, 7); pen.stroke(); }
  if (document.activeElement === c && c.matches(":focus-visible"))
    for (const [x, y] of [[12, 1], [1, 12]]) pen.strokeRect(c.width / 2 - x * scale, c.height / 2 - y * scale, 2 * x * scale, 2 * y * scale);
}
function nearest(x0, y0, within = 14) {
  const scale = devicePixelRatio || 1;
  let best = -1, least = (within * scale) ** 2;
  for (let at = 0; at < bank.ids.length + bank.queries.length; at++) {
    const [x, y] = place(at), far = (x - x0 * scale) ** 2 + (y - y0 * scale) ** 2;
    if (far < least) { least = far; best = at; }
  }
  return best;
}
function label(at) { return bank.classes ? bank.classes[bank.labels[at]] : number(bank.labels[at]); }
function hint(at) {
  if (at < 0) return;
  const other = bank.queries[at - bank.ids.length];
  $("hint").textContent = other ? `${other.title} of ${bank.table.name}, not in the bank`
    : `row ${bank.ids[at]} · ${bank.target} ${label(at)}` + (bank.doubt[at] === null ? "" : ` · doubt ${number(bank.doubt[at])}`);
}
function openPoint(at) {
  if (at < 0) return;
  const other = bank.queries[at - bank.ids.length];
  return other ? openQuery(String(other.place)) : openRow(String(bank.ids[at]));
}
function move(x, y, zoom = 1) { view.x += x / view.zoom; view.y += y / view.zoom; view.zoom = Math.max(0.5, Math.min(400, view.zoom * zoom)); $("f-view").checked && !$("rows").hidden ? filterRows() : draw(); }
function listen() {
  const c = $("map"), middle = () => nearest(c.clientWidth / 2, c.clientHeight / 2, Infinity);
  let from = null, moved = false;
  c.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; moved = false; });
  c.addEventListener("pointerup", (event) => { from = null; if (!moved) attempt(() => openPoint(nearest(event.offsetX, event.offsetY))); });
  c.addEventListener("pointermove", (event) => {
    if (from !== null && event.buttons) {
      const side = Math.min(c.clientWidth, c.clientHeight) * 0.47, dx = event.clientX - from[0], dy = event.clientY - from[1];
      if (moved || Math.abs(dx) + Math.abs(dy) > 4) { moved = true; from = [event.clientX, event.clientY]; move(-dx / side, dy / side); }
      return;
    }
    hint(nearest(event.offsetX, event.offsetY));
  });
  c.addEventListener("wheel", (event) => { event.preventDefault(); move(0, 0, event.deltaY < 0 ? 1.2 : 1 / 1.2); }, { passive: false });
  c.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-0.05, 0], ArrowRight: [0.05, 0], ArrowUp: [0, 0.05], ArrowDown: [0, -0.05], "+": [0, 0, 1.3], "-": [0, 0, 1 / 1.3] }[event.key];
    if (step) { event.preventDefault(); move(...step); hint(middle()); }
    if (event.key === "Enter") attempt(() => openPoint(middle()));
  });
  for (const event of ["focus", "blur"]) c.addEventListener(event, draw);
  addEventListener("resize", draw);
}

// A row.
function prediction(one) {
  const box = make("div", "", "two");
  const part = (name, value, kind) => { const div = make("div"); div.append(make("small", name, "muted"), make("div", value, "big " + kind)); box.append(div); };
  part("predicted" + (one.label === undefined ? "" : " without itself"), number(one.prediction) + (one.chance === null ? "" : ` (${Math.round(100 * one.chance)} %)`), "is-prediction");
  if (one.label !== undefined) part(bank.target, number(one.label), "is-truth");
  return box;
}
// The two columns that add most, of a trend or to a label.
function most(columns) {
  const named = Object.entries(columns).filter(([, value]) => value).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 2);
  return named.map(([name, value]) => `${name} ${value > 0 ? "+" : ""}${number(Number(value.toPrecision(3)))}`).join(", ");
}
function behind(one, again) {
  const box = make("div");
  box.append(make("h3", "Rows behind it"));
  if (bank.scale) box.append(make("p", bank.scale[0].toUpperCase() + bank.scale.slice(1) + ".", "muted"));
  for (const row of one.behind)
    box.append(entry(row, [row.adjusted === undefined ? number(row.label) : `${number(row.label)} → ${number(row.adjusted)}`, ...(row.adjusted === undefined ? [] : [most(row.adjustments)]), `${(100 * row.weight).toFixed(1)} %`], [button("Leave out " + row.id, () => keepFocus(() => { without.add(String(row.id)); return again(); }))]));
  if (one.trend) box.append(make("p", `Trend by columns${bank.scale ? ", on that scale" : ""}: ${number(one.trend.value)} (${most(one.trend.columns)}), ${(100 * one.trend.weight).toFixed(1)} %`, "muted"));
  if (one.others.rows) box.append(make("p", `${one.others.rows} other rows: ${(100 * one.others.weight).toFixed(1)} %`, "muted"));
  if (without.size) box.append(button(`Put back ${[...without].join(", ")}`, () => keepFocus(() => { without.clear(); return again(); })));
  return box;
}
function show(what, again) {
  if (open === null || what.name !== open.name || what.place !== open.place || what.query !== open.query) without.clear();
  open = { ...what, show: again };
}
// A label is typed or chosen, and given to what is open.
function labelForm(value, text, act) {
  const form = make("form"), input = make(bank.classes ? "select" : "input");
  input.id = "label";
  input.setAttribute("aria-label", "Label");
  input.required = true;
  for (const name of bank.classes || []) input.append(make("option", name));
  input.value = String(value);
  form.append(input, make("button", text, "strong"));
  form.addEventListener("submit", (event) => { event.preventDefault(); attempt(() => act(input.value)); });
  return form;
}
function mostLike(rows) {
  const near = make("div");
  near.append(make("h3", "Most similar"), ...rows.map((hit) => entry(hit, [number(hit.label), "score " + number(hit.score)])));
  return near;
}
// Draws a part of the page again; who was at a button is at it again, or at the part if the button is gone.
async function keepFocus(work) {
  const before = document.activeElement, part = before.closest("#detail, #list"), name = before.id || before.textContent;
  await work();
  if (part && !before.isConnected)
    ([...part.querySelectorAll("button, input, select")].find((one) => (one.id || one.textContent) === name) || part).focus();
}
async function openQuery(place, focus = true) {
  show({ place }, () => openQuery(place, false));
  const one = await ask("query", { place, without: [...without] }), box = $("detail");
  box.replaceChildren(make("h2", `${one.title} of ${bank.table.name}`), cells(one.cells, { place }), prediction(one),
    labelForm(one.prediction, "Add it with this label", async (label) => { const done = await change("add_query", { place, label }, `${one.title} is in the bank now`); await openRow(String(done.id)); }),
    behind(one, () => openQuery(place, false)), mostLike(one.near));
  draw();
  if (focus) box.focus();
}
async function openRow(name, focus = true) {
  show({ name }, () => openRow(name, false));
  const one = await ask("row", { name, without: [...without] }), box = $("detail");
  box.replaceChildren(make("h2", "Row " + one.id), cells(one.cells, { name }), prediction(one));
  const form = labelForm(one.label, "Correct the label", (label) => change("relabel", { name, label }, `row ${name} is ${label} now`));
  const tools = make("div", "", "tools");
  tools.append(
    button("Forget this row", () => {
      if (confirm("Forget row " + name + "? No file will hold it. Undo works only until this page's server ends.")) return change("forget", { name }, `row ${name} is forgotten`);
    }),
    button("Nearest of another label", async () => { const { other } = await ask("nearest_other", { name }); if (other) await compare(name, String(other.id)); else say("no row of another label is near"); }),
    button(pair === null || pair === name ? "Compare with the next row I open" : `Compare with ${pair}`, () => { if (pair === null || pair === name) { pair = name; say(`open another row to compare it with ${name}`); } else { const other = pair; pair = null; return compare(name, other); } }),
  );
  box.append(form, tools, behind(one, () => openRow(name, false)), mostLike(one.near));
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
    for (const row of both.cells) { const cell = make("td"); cell.append(cells([row[at]], { name: row === both.cells[0] ? a : b })); line.append(cell); }
    line.append(make("td", both.adds && name in both.adds ? number(both.adds[name]) : "", "num"));
    table.append(line);
  });
  const scroll = make("div", "", "scroll");
  scroll.append(table);
  fill("list", make("h2", "Two rows"), make("p", `score ${number(both.score)}` + (both.adds ? "; the last column says by how much it would rise if the first row had the cell of the second" : ""), "muted"), scroll);
}
function fill(where, ...parts) { $(where).replaceChildren(...parts); }
async function tableRows(start = "0", focus = true) {
  const rows = await ask("queries", { start }), last = rows[rows.length - 1], left = bank.queries;
  const about = `${left.length} of ${bank.table.total} rows of ${bank.table.name} that are not in the bank are shown.`;
  fill("list", make("h2", "Rows of " + bank.table.name), make("p", about, "muted"), ...rows.map((one) => entry(one, [`predicted ${number(one.said)}`])));
  if (last && left.some((one) => one.place > last.place)) $("list").append(button("More rows", () => tableRows(String(last.place + 1))));
  if (focus) $("list").focus();
}
// The table of all rows, the largest error first. Its filters gray out the other rows of the map, whose view is a filter, too.
const SHOWN = 100;
function filterRows() {
  const words = $("f-words").value.toLowerCase(), error = $("f-error").value, chance = $("f-chance").value, inView = $("f-view").checked;
  const c = $("map"), found = [];
  bank.words ??= bank.ids.map((id, at) => `${id} ${label(at)}`.toLowerCase());
  for (let at = 0; at < bank.ids.length; at++) {
    if (error !== "" && !(bank.error[at] !== null && bank.error[at] >= Number(error))) continue;
    if (chance !== "" && !(bank.chance[at] !== null && 100 * bank.chance[at] >= Number(chance))) continue;
    if (inView) { const [x, y] = place(at); if (x < 0 || y < 0 || x > c.width || y > c.height) continue; }
    if (words && !bank.words[at].includes(words)) continue;
    found.push(at);
  }
  filtered = found.length < bank.ids.length ? new Uint8Array(bank.ids.length) : null;
  if (filtered) for (const at of found) filtered[at] = 1;
  found.sort((a, b) => (bank.error[b] ?? -1) - (bank.error[a] ?? -1));
  $("f-count").textContent = `${found.length} of ${bank.ids.length} rows` + (found.length > SHOWN ? `; the ${SHOWN} of largest error are listed` : "");
  const head = make("tr");
  for (const name of ["id", bank.target, "error", "wrong with"]) head.append(make("th", name));
  $("f-table").replaceChildren(head, ...found.slice(0, SHOWN).map((at) => {
    const line = make("tr"), id = make("td");
    id.append(button(String(bank.ids[at]), () => openRow(String(bank.ids[at]))));
    line.append(id, make("td", label(at)), make("td", bank.error[at] === null ? "" : number(bank.error[at]), "num"), make("td", bank.chance[at] ? `${Math.round(100 * bank.chance[at])} %` : "", "num"));
    return line;
  }));
  draw();
}
// Labels that are more probably wrong than right; the others that look most suspicious stand behind a button.
async function suspects(again = true, all = false) {
  const rows = await ask("suspects"), about = make("p", "", "muted"), worth = rows.filter((one) => one.chance >= 0.5);
  const expected = worth.reduce((sum, one) => sum + one.chance, 0), listed = all ? rows : worth;
  fill("list", make("h2", "Labels worth checking"), about, ...listed.map((one) => entry(one, [`${bank.target} ${number(one.label)}`, `predicted ${number(one.said)}`, one.chance ? `wrong with ${Math.round(100 * one.chance)} %` : `suspicion ${number(one.score)}`])));
  if (!all && worth.length < rows.length) $("list").append(button(`Show the ${rows.length} most suspicious`, () => keepFocus(() => suspects(false, true))));
  if (again) await load();
  about.textContent = (worth.length ? `${worth.length} labels, of them ${number(expected)} expected to be wrong.` : "None: no clear sign of wrong labels.") + ` ${bank.doubted} rows were checked.`;
}
// A row by one field a column; what is not said is left empty.
function base64(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}
async function typed(form) {
  const row = {}, files = {};
  for (const field of form.querySelectorAll("[data-column]")) {
    const name = field.dataset.column, kind = bank.columns[name];
    if (field.type === "file") { if (field.files.length) files[name] = await base64(field.files[0]); }
    else if (field.value.trim()) {
      const wrong = (what) => new Error(`${name}: expected ${what}, got ${field.value.slice(0, 60)}`);
      if (kind === "number" && !Number.isFinite(Number(field.value))) throw wrong("a number");
      try { row[name] = kind === "number" ? Number(field.value) : kind === "set" || kind === "vector" ? JSON.parse(field.value) : field.value; }
      catch { throw wrong("a list as [1, 2]"); }
    }
  }
  return { row: Object.keys(row).length ? JSON.stringify(row) : "", files };
}
function rowForm() {
  const form = make("form", "", "fields"), columns = Object.entries(bank.columns);
  if (bank.id !== null && !(bank.id in bank.columns)) columns.push([bank.id, "id"]);
  for (const [name, kind] of columns) {
    const line = make("label", name + (kind === "id" ? " (to add it)" : "")), field = make(["text", "set", "vector"].includes(kind) ? "textarea" : "input");
    if (kind === "image" || kind === "audio") { field.type = "file"; field.accept = kind + "/*"; }
    field.dataset.column = name;
    line.append(field);
    form.append(line);
  }
  const line = make("label", bank.target + " (to add it)"), input = make("input");
  input.id = "new-label";
  line.append(input);
  form.append(line, make("button", "Predict it", "strong"), button("Add it", async () => {
    const done = await change("add", { ...(await typed(form)), label: input.value }, "the row is added");
    await openRow(String(done.id));
  }));
  form.addEventListener("submit", (event) => { event.preventDefault(); attempt(async () => { const { row, files } = await typed(form); await search(row, files); }); });
  fill("new", make("h2", "Try a row"), form);
  form.querySelector("[data-column]").focus();
}
async function search(query, files = {}, again = false) {
  if (!again) without.clear();
  const one = await ask("search", { query, files, without: [...without] });
  if (one.id !== undefined) return openRow(String(one.id));
  fill("list", make("h2", "Similarity search"), ...one.hits.map((hit) => entry(hit, [number(hit.label), "score " + number(hit.score)])));
  if (!one.behind) return $("list").focus();
  show({ query, files }, () => search(query, files, true));
  fill("detail", make("h2", "This row"), prediction(one), behind(one, open.show));
  $("detail").focus();
}
function close() { open = null; fill("detail"); }
let changes = 0; // under way in this tab: what they change, nobody else did
async function change(what, body, text) {
  changes += 1;
  try {
    const done = await ask(what, body);
    if (what === "forget" || what === "add_query") close();
    await keepFocus(async () => { try { if (open !== null) await open.show(); } catch { close(); } });
    say(text);
    await load();
    return done;
  } finally { changes -= 1; }
}
async function load() {
  bank = await ask("map");
  $("name").textContent = `${bank.name}: ${bank.rows} rows`;
  $("undo").setAttribute("aria-disabled", bank.undo === 0);
  $("show-table").hidden = bank.table === null;
  $("show-table").textContent = bank.table === null ? "" : "Rows of " + bank.table.name;
  recolor();
  if (!$("rows").hidden) filterRows();
}
async function follow() {
  try {
    const now = await ask("version");
    if (now.version !== bank.version && changes === 0) {
      await load();
      await keepFocus(async () => { try { if (open !== null) await open.show(); } catch { close(); } });
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
  $("show-suspects").addEventListener("click", () => attempt(() => suspects()));
  $("show-table").addEventListener("click", () => attempt(() => tableRows()));
  $("show-add").addEventListener("click", rowForm);
  $("show-rows").addEventListener("click", () => { $("rows").hidden = !$("rows").hidden; if ($("rows").hidden) { filtered = null; draw(); } else { filterRows(); $("f-words").focus(); } });
  $("filter").addEventListener("input", filterRows);
  $("filter").addEventListener("submit", (event) => event.preventDefault());
  $("undo").addEventListener("click", () => attempt(() => change("undo", {}, "taken back")));
  $("export").addEventListener("click", () => attempt(async () => {
    const { csv } = await ask("changed"), link = make("a");
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    link.download = "changes.csv";
    link.click();
  }));
  await suspects(bank.doubted === 0);
  if (bank.table !== null) await tableRows("0", false);
  setTimeout(follow, 2000);
}));
