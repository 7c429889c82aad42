"use strict";
const colors = ["#2b83a3", "#cf5f28", "#5c9a54", "#a7569b", "#a88424", "#4f7bd0", "#c2566b", "#6f8f8a", "#8f74c9", "#8d6e55"];
const view = { zoom: 1, x: 0, y: 0 };
const layer = document.createElement("canvas"); // the points; what is chosen is drawn over them
let bank = null, filtered = null, open = null, without = new Set(), pair = null, range = [0, 1];
const DOUBTED = "Labels worth checking";
let doubted = null; // the list of these, and how to draw it again
let inks = null, box = null, marked = -1; // colors of the rows, the selected area of the map, and the row that the table points at
const can = (what) => token !== "" && bank.can.includes(what); // whether this page may change something
// What is open: {name} of a row of the bank, {place} of the table, or {query, files} that was typed; show() draws it again.

// Four digits, and those before the point of a large number: a label of 62795 is not shown as 62800.
function number(value) { return typeof value !== "number" ? String(value ?? "") : Math.abs(value) >= 1e4 ? Math.round(value).toLocaleString("en-US") : String(Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4))); }
function percent(share) { return (Math.abs(share) < 1e-3 && share ? (100 * share).toPrecision(1) : (100 * share).toFixed(1)) + " %"; }
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
  box.append(said, cells(one.cells, who), row);
  return box;
}

// The map.
const GRAY = "#9999994d", ramp = [];
function shade(by, value) {
  if (value === null) return GRAY;
  if (by === "labels" && bank.classes) return colors[Math.min(value, 9)];
  const share = Math.max(0, Math.min(1, (value - range[0]) / (range[1] - range[0] || 1)));
  const ends = share < 0.5 ? [[43, 131, 163], [190, 184, 165]] : [[190, 184, 165], [207, 95, 40]];
  const step = Math.round(60 * share), at = share < 0.5 ? 2 * share : 2 * share - 1;
  return ramp[step] ??= `rgb(${ends[0].map((one, k) => Math.round(one + (ends[1][k] - one) * at)).join(" ")})`;
}
// A color as a pixel: its bytes are red, green, blue and opacity.
const known = new Map();
function ink(css) {
  if (!known.has(css)) {
    const parts = css[0] === "#" ? css.slice(1).match(/../g).map((one) => parseInt(one, 16)) : css.match(/\d+/g).map(Number);
    known.set(css, new Uint32Array(Uint8ClampedArray.of(...parts.slice(0, 3), parts[3] ?? 255).buffer)[0]);
  }
  return known.get(css);
}
function recolor() {
  const by = $("color").value;
  const values = Float64Array.from(by === "age" ? bank.labels.keys() : bank[by].filter((one) => one !== null)).sort();
  range = [values[Math.floor(0.02 * values.length)] ?? 0, values[Math.floor(0.98 * (values.length - 1))] ?? 1];
  $("legend").textContent = "";
  if (by === "labels" && bank.classes)
    bank.classes.slice(0, 10).forEach((name, place) => {
      const part = make("span"), dot = make("span", "● ");
      dot.style.color = colors[place];
      part.style.display = "inline-block";
      part.append(dot, name + "\u00a0 ");
      $("legend").append(part, " ");
    });
  else $("legend").textContent = by === "age" ? "blue: first rows, red: last" : `blue ${number(range[0])} to red ${number(range[1])}` +
    (by !== "labels" && bank.checked.length < bank.rows ? `, of ${bank.checked.length} rows` : "");
  inks = Uint32Array.from(by === "age" ? bank.labels.keys() : bank[by], (value) => ink(shade(by, value)));
  histogram();
  draw();
}
// A bar for each class, or for each part of the numbers: all of its rows, and those that the filters leave. It filters.
function histogram() {
  const by = $("color").value, whole = by !== "age" && bank[by].every((one) => one === null || Number.isInteger(one));
  const named = by === "labels" && bank.classes, count = by === "age" ? 0 : named ? Math.min(bank.classes.length, 24) : 24;
  const wide = whole ? Math.max(1, Math.ceil((range[1] - range[0] + 1) / count)) : (range[1] - range[0]) / count || 1;
  const edges = Array.from({ length: count + 1 }, (_, k) => (named ? k : Number((range[0] - (whole ? 0.5 : 0) + k * wide).toPrecision(whole ? 15 : 5))));
  const all = new Array(count).fill(0), left = new Array(count).fill(0);
  for (let at = 0; count && at < bank.ids.length; at++) {
    if (bank[by][at] === null) continue;
    const value = bank[by][at], near = named ? value : Math.floor((value - edges[0]) / wide);
    const k = named ? value : Math.max(0, Math.min(count - 1, near + (value > edges[near + 1]) - (value < edges[near])));
    if (k < count) { all[k] += 1; left[k] += !filtered || filtered[at]; }
  }
  const most = Math.max(...all, 1);
  fill("bars", ...all.map((rows, k) => {
    const about = named ? bank.classes[k] : k === 0 ? `up to ${edges[1]}` : k === count - 1 ? `from ${edges[k]}` : `${edges[k]} to ${edges[k + 1]}`;
    const bar = button("", () => narrow(by, named ? { is: bank.classes[k] } : { from: k ? edges[k] : "", to: k < count - 1 ? edges[k + 1] : "" }));
    bar.title = `${about}: ${left[k]} of ${rows} rows`;
    bar.setAttribute("aria-label", bar.title);
    for (const [kind, height] of [["all", rows], ["left", left[k]]]) {
      const part = make("i", "", kind);
      part.style.height = height ? Math.max(2, (100 * height) / most) + "%" : "0";
      part.style.background = kind === "left" ? shade(by, named ? k : (edges[k] + edges[k + 1]) / 2) : "";
      bar.append(part);
    }
    return bar;
  }));
}
function sideOf(c = $("map")) { return Math.min(c.width, c.height) * 0.47 * view.zoom; }
function place(at) {
  const c = $("map"), side = sideOf(c), other = bank.queries[at - bank.ids.length];
  const x = other ? other.point[0] : bank.points[2 * at], y = other ? other.point[1] : bank.points[2 * at + 1];
  return [c.width / 2 + (x - view.x) * side, c.height / 2 - (y - view.y) * side];
}
function pointAt(x, y) { // of the map, at a place of the page's canvas
  const c = $("map"), scale = devicePixelRatio || 1, side = sideOf(c);
  return [view.x + (x * scale - c.width / 2) / side, view.y - (y * scale - c.height / 2) / side];
}
function draw() {
  const c = $("map"), pen = layer.getContext("2d"), scale = devicePixelRatio || 1, rows = bank.ids.length;
  layer.width = c.width = c.clientWidth * scale;
  layer.height = c.height = c.clientHeight * scale;
  const size = Math.round((rows > 5000 ? 2.4 : 5) * scale), wide = layer.width, high = layer.height, half = size >> 1, side = sideOf();
  // 1e5 rectangles take a second; their pixels take some milliseconds
  const image = pen.createImageData(wide, high), pixels = new Uint32Array(image.data.buffer), gray = ink(GRAY);
  for (const shown of filtered ? [0, 1] : [1])
    for (let at = 0; at < rows; at++) {
      if (filtered && filtered[at] !== shown) continue;
      const x = Math.round(wide / 2 + (bank.points[2 * at] - view.x) * side) - half, y = Math.round(high / 2 - (bank.points[2 * at + 1] - view.y) * side) - half;
      if (x < -size || y < -size || x > wide || y > high) continue;
      for (let row = Math.max(0, y); row < Math.min(high, y + size); row++) pixels.fill(shown ? inks[at] : gray, row * wide + Math.max(0, x), row * wide + Math.max(0, Math.min(wide, x + size)));
    }
  pen.putImageData(image, 0, 0);
  pen.lineWidth = 1.5 * scale;
  pen.strokeStyle = getComputedStyle(document.body).color;
  for (let at = rows; at < rows + bank.queries.length; at++) { const [x, y] = place(at); pen.strokeRect(x - 3 * scale, y - 3 * scale, 6 * scale, 6 * scale); }
  overlay();
}
function overlay() {
  const c = $("map"), pen = c.getContext("2d"), scale = devicePixelRatio || 1, rows = bank.ids.length;
  pen.clearRect(0, 0, c.width, c.height);
  pen.drawImage(layer, 0, 0);
  pen.strokeStyle = getComputedStyle(document.body).color;
  const chosen = open === null ? -1 : open.name !== undefined ? bank.at.get(open.name) ?? -1
    : open.place !== undefined ? rows + bank.queries.findIndex((one) => String(one.place) === open.place) : -1;
  pen.lineWidth = 2 * scale;
  for (const [at, size] of [[chosen, 9], [marked, 6]]) if (at >= 0) { const [x, y] = place(at); pen.beginPath(); pen.arc(x, y, size * scale, 0, 7); pen.stroke(); }
  if (box) {
    const side = sideOf(c);
    pen.strokeRect(c.width / 2 + (box[0] - view.x) * side, c.height / 2 - (box[3] - view.y) * side, (box[2] - box[0]) * side, (box[3] - box[1]) * side);
  }
  if (document.activeElement === c && c.matches(":focus-visible"))
    for (const [x, y] of [[12, 1], [1, 12]]) pen.strokeRect(c.width / 2 - x * scale, c.height / 2 - y * scale, 2 * x * scale, 2 * y * scale);
}
function nearest(x0, y0, within = 14) {
  const [x, y] = pointAt(x0, y0), rows = bank.ids.length, flat = bank.points;
  let best = -1, least = ((within * (devicePixelRatio || 1)) / sideOf()) ** 2;
  for (let at = 0; at < rows + bank.queries.length; at++) {
    const [a, b] = at < rows ? [flat[2 * at], flat[2 * at + 1]] : bank.queries[at - rows].point, far = (a - x) ** 2 + (b - y) ** 2;
    if (far < least) { least = far; best = at; }
  }
  return best;
}
function label(at) { return bank.classes ? bank.classes[bank.labels[at]] : number(bank.labels[at]); }
function hint(at) {
  if (at < 0) return;
  const other = bank.queries[at - bank.ids.length];
  $("hint").textContent = other ? `${other.title} of ${bank.table.name}, not in the bank`
    : `row ${bank.ids[at]} · ${bank.target} ${label(at)}` + (bank.doubt[at] === null ? "" : ` · suspicion ${number(bank.doubt[at])}`);
}
function openPoint(at) {
  if (at < 0) return;
  const other = bank.queries[at - bank.ids.length];
  return other ? openQuery(String(other.place)) : openRow(String(bank.ids[at]));
}
function move(x, y, zoom = 1) { view.x += x / view.zoom; view.y += y / view.zoom; view.zoom = Math.max(0.5, Math.min(400, view.zoom * zoom)); draw(); }
function selectArea(a, b) { box = a && [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[0], b[0]), Math.max(a[1], b[1])]; }
function listen() {
  const c = $("map"), middle = () => nearest(c.clientWidth / 2, c.clientHeight / 2, Infinity);
  const selects = (on) => $("select").setAttribute("aria-pressed", on);
  let from = null, moved = false, corner = null;
  c.addEventListener("pointerdown", (event) => {
    from = [event.clientX, event.clientY];
    moved = false;
    corner = event.shiftKey || $("select").ariaPressed === "true" ? pointAt(event.offsetX, event.offsetY) : null;
    c.setPointerCapture(event.pointerId);
  });
  c.addEventListener("pointerup", (event) => {
    from = null;
    if (corner && moved) { selects(false); attempt(showRows); }
    else if (!moved) attempt(() => openPoint(nearest(event.offsetX, event.offsetY)));
  });
  $("select").addEventListener("click", () => selects($("select").ariaPressed !== "true"));
  c.addEventListener("pointermove", (event) => {
    if (from !== null && corner) { moved = true; selectArea(corner, pointAt(event.offsetX, event.offsetY)); overlay(); return; }
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
    if (event.key === "s") { selectArea(pointAt(0, 0), pointAt(c.clientWidth, c.clientHeight)); attempt(showRows); }
    if (event.key === "Escape" && box) { box = null; attempt(filterRows); }
  });
  for (const event of ["focus", "blur"]) c.addEventListener(event, overlay);
  addEventListener("resize", draw);
}

// A row.
function prediction(one) {
  const box = make("div", "", "two");
  const part = (name, value, kind) => { const div = make("div"); div.append(make("small", name, "muted"), make("div", value, "big " + kind)); box.append(div); };
  part("predicted" + (one.id === undefined ? "" : " without itself"), number(one.prediction) + (one.chance === null ? "" : ` (${Math.round(100 * one.chance)} %)`), "is-prediction");
  if (one.label !== undefined && one.label !== "") part(bank.target, number(one.label), "is-truth");
  const at = bank.at.get(String(one.id));
  for (const [name, value] of [["error, held out", bank.error[at]], ["suspicion", bank.doubt[at]], ["P(wrong)", bank.chance[at] && Math.round(bank.chance[at]) + " %"]])
    if (value) part(name, number(value), "");
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
    box.append(entry(row, [row.adjusted === undefined ? number(row.label) : `${number(row.label)} → ${number(row.adjusted)}`, ...(row.adjusted === undefined ? [] : [most(row.adjustments)]), percent(row.weight)], [button("Leave out " + row.id, () => keepFocus(() => { without.add(String(row.id)); return again(); }))]));
  if (one.trend) box.append(make("p", `Trend by columns${bank.scale ? ", on that scale" : ""}: ${number(one.trend.value)} (${most(one.trend.columns)}), ${percent(one.trend.weight)}`, "muted"));
  if (one.others.rows) box.append(make("p", `${one.others.rows} other rows: ${percent(one.others.weight)}`, "muted"));
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
  const before = document.activeElement, part = before.closest("#detail, #list, #rows"), name = before.id || before.textContent;
  await work();
  if (part && !before.isConnected)
    ([...part.querySelectorAll("button, input, select")].find((one) => (one.id || one.textContent) === name) || part).focus();
}
async function openQuery(place, focus = true) {
  show({ place }, () => openQuery(place, false));
  const one = await ask("query", { place, without: [...without] }), box = $("detail");
  box.replaceChildren(make("h2", `${one.title} of ${bank.table.name}`), prediction(one),
    labelForm(one.label || one.prediction, "Add it with this label", async (label) => { const done = await change("add_query", { place, label }, `${one.title} is in the bank now`); await openRow(String(done.id)); }),
    cells(one.cells, { place }), behind(one, () => openQuery(place, false)), mostLike(one.near));
  draw();
  if (focus) box.focus();
}
async function openRow(name, focus = true) {
  show({ name }, () => openRow(name, false));
  const one = await ask("row", { name, without: [...without] }), box = $("detail");
  box.replaceChildren(make("h2", "Row " + one.id), prediction(one));
  const form = can("relabel") && labelForm(one.label, "Correct the label", (label) => change("relabel", { name, label }, `row ${name} is ${label} now`));
  const tools = make("div", "", "tools");
  if (can("forget"))
    tools.append(button("Forget this row", () => {
      if (confirm("Forget row " + name + "? No file will hold it." + (can("undo") ? " Undo works only until this page's server ends." : ""))) return change("forget", { name }, `row ${name} is forgotten`);
    }));
  tools.append(
    button("Nearest of another label", async () => { const { other } = await ask("nearest_other", { name }); if (other) await compare(name, String(other.id)); else say("no row of another label is near"); }),
    button(pair === null || pair === name ? "Compare with the next row I open" : `Compare with ${pair}`, () => { if (pair === null || pair === name) { pair = name; say(`open another row to compare it with ${name}`); } else { const other = pair; pair = null; return compare(name, other); } }),
  );
  box.append(...(form ? [form] : []), cells(one.cells, { name }), tools, behind(one, () => openRow(name, false)), mostLike(one.near));
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
  fill("list", make("h2", "Rows of " + bank.table.name), make("p", about, "muted"), ...rows.map((one) => entry(one, [`predicted ${number(one.said)}`, ...(one.label ? [`label ${one.label}`] : [])])));
  if (last && left.some((one) => one.place > last.place)) $("list").append(button("More rows", () => tableRows(String(last.place + 1))));
  if (focus) $("list").focus();
}
// The table of rows: 50 at a time, sorted by a column of its head. The map grays out what the filters hide.
const SHOWN = 50, MEASURES = [["labels", "label"], ["error", "error"], ["doubt", "suspicion"], ["chance", "wrong, %"]];
let sort = ["error", -1], listed = [], first = 0, turn = 0;
// One control for each measure and column: from and to for numbers, a choice for categories, words for texts.
function control(key, title, kind, values = []) {
  const line = make(kind === "number" ? "fieldset" : "label", kind === "number" ? "" : title);
  if (kind === "number") line.append(make("legend", title));
  for (const how of kind === "number" ? ["from", "to"] : kind === "category" ? ["is"] : ["has"]) {
    const input = make(how === "is" ? "select" : "input");
    if (how === "is") input.append(new Option("any", ""), ...values.map((one) => new Option(one)));
    else { input.placeholder = how === "has" ? "contains" : how; if (how !== "has") { input.type = "number"; input.step = "any"; } }
    input.setAttribute("aria-label", `${title} ${input.placeholder ?? ""}`.trim());
    Object.assign(input.dataset, { key, how });
    line.append(input);
  }
  return line;
}
async function showRows(by = null) {
  if (by) sort = [by, -1];
  $("rows").hidden = false;
  $("show-rows").setAttribute("aria-expanded", true);
  if (!$("f-fields").childElementCount) {
    const columns = await ask("columns"), measure = ([key, title]) => control(key, key === "labels" ? bank.target : title, key === "labels" && bank.classes ? "category" : "number", bank.classes || []);
    $("f-fields").parentElement.open = innerWidth >= 900;
    fill("f-fields", control("words", "id or label", "text"), ...MEASURES.map(measure), ...Object.entries(columns).map(([name, values]) => control("column " + name, name, bank.columns[name], values)));
  }
  return filterRows();
}
async function narrow(key, how) {
  await showRows();
  for (const input of $("filter").querySelectorAll(`[data-key="${key}"]`)) input.value = how[input.dataset.how] ?? "";
  await filterRows();
}
function meets(value, how) {
  return value !== null && (how.from === undefined || value >= how.from) && (how.to === undefined || value <= how.to) &&
    (how.is === undefined || value === how.is) && (how.has === undefined || value.includes(how.has));
}
// The places of all rows in the order of the table; rows without a value come last.
function order() {
  const [key, way] = sort, values = bank[key];
  if (key === "id") return way < 0 ? bank.labels.map((_, at) => at) : bank.labels.map((_, at) => bank.labels.length - 1 - at);
  return (bank.orders ??= {})[sort] ??= [...bank.labels.keys()].sort((a, b) => (values[a] === null) - (values[b] === null) || way * (values[a] - values[b]) || a - b);
}
async function filterRows() {
  const mine = ++turn, columns = {}, own = {}, input = [...$("filter").querySelectorAll("[data-key]")].filter((one) => one.value !== "");
  for (const { dataset: { key, how }, value, type } of input) {
    const of = key.startsWith("column ") ? (columns[key.slice(7)] ??= {}) : (own[key] ??= {});
    of[how] = type === "number" ? Number(value) : key === "words" ? value.toLowerCase() : value;
  }
  const passed = Object.keys(columns).length ? await ask("filter", { columns }) : null;
  if (mine !== turn) return; // typed on meanwhile
  const some = new Uint8Array(bank.ids.length), value = { words: (at) => bank.words[at], labels: (at) => (bank.classes ? label(at) : bank.labels[at]) };
  bank.words ??= bank.ids.map((id, at) => `${id} ${label(at)}`.toLowerCase());
  if (passed) for (const at of passed) some[at] = 1; else some.fill(1);
  for (const [key, how] of Object.entries(own))
    for (let at = 0; at < some.length; at++) if (some[at] && !meets((value[key] ?? ((one) => bank[key][one]))(at), how)) some[at] = 0;
  if (box) for (let at = 0; at < some.length; at++) {
    const x = bank.points[2 * at], y = bank.points[2 * at + 1];
    if (x < box[0] || y < box[1] || x > box[2] || y > box[3]) some[at] = 0;
  }
  listed = order().filter((at) => some[at]);
  filtered = listed.length < some.length ? some : null;
  first = 0;
  histogram();
  draw();
  return listRows();
}
async function listRows() {
  const mine = turn, start = first, shown = listed.slice(start, start + SHOWN), head = make("tr");
  $("f-count").textContent = `${shown.length ? `${start + 1} to ${start + shown.length} of ` : ""}${listed.length} rows` + (box ? ", in the selected area" : "");
  $("f-back").setAttribute("aria-disabled", start === 0);
  $("f-on").setAttribute("aria-disabled", start + SHOWN >= listed.length);
  for (const [key, title] of [["id", "id"], ...MEASURES]) {
    const cell = make("th"), name = key === "labels" ? bank.target : title;
    cell.append(button(name, () => keepFocus(() => { sort = [key, sort[0] === key ? -sort[1] : -1]; return filterRows(); })));
    if (sort[0] === key) cell.setAttribute("aria-sort", sort[1] < 0 ? "descending" : "ascending");
    head.append(cell);
  }
  const lines = shown.map((at) => {
    const line = make("tr"), id = make("td"), own = make("td", "", "row-cells"), mark = (on) => () => { marked = on ? at : -1; overlay(); };
    id.append(button(String(bank.ids[at]), () => openRow(String(bank.ids[at]))));
    line.append(id, make("td", label(at)), ...["error", "doubt", "chance"].map((key) => make("td", bank[key][at] === null ? "–" : number(bank[key][at]))), own);
    for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]]) line.addEventListener(event, mark(on));
    return line;
  });
  $("f-table").replaceChildren(head, ...lines);
  const rows = shown.length ? await ask("rows", { names: shown.map((at) => String(bank.ids[at])) }) : [];
  if (mine === turn && start === first) rows.forEach((row, k) => lines[k].lastChild.append(cells(row, { name: String(bank.ids[shown[k]]) })));
}
// Labels that are more probably wrong than right; the others that look most suspicious stand behind a button.
async function suspects(again = true) {
  if (again) fill("list", make("h2", DOUBTED), make("p", "Checking the labels …", "muted"));
  const rows = await ask("suspects");
  if (again) await load(); // with them the map knows its doubts
  listSuspects(rows, false);
}
// By the labels of now: what was corrected or forgotten since the check is no suspect.
function listSuspects(checked, all) {
  const head = make("h2", DOUBTED), place = (one) => bank.at.get(String(one.id));
  const rows = checked.filter((one) => place(one) !== undefined), worth = rows.filter((one) => bank.chance[place(one)] >= 50), listed = all ? rows : worth;
  const likely = bank.chance.filter((percent) => percent >= 50), expected = likely.reduce((sum, percent) => sum + percent / 100, 0);
  const sign = rows.some((one) => one.chance);
  const found = likely.length ? `${likely.length} labels, of them ${number(Number(expected.toPrecision(2)))} expected to be wrong.` : sign ? "None." : "None: no clear sign of wrong labels.";
  const doubt = (at) => (sign ? `P(wrong) ${Math.round(bank.chance[at])} %` : `suspicion ${number(bank.doubt[at])}`);
  fill("list", head, make("p", `${found} ${bank.checked.length} rows of the bank were checked.`, "muted"), ...listed.map((one) => entry(one, [`${bank.target} ${label(place(one))}`, `predicted ${number(one.said)}`, doubt(place(one))])));
  if (!all && worth.length < rows.length) $("list").append(button(`Show the ${rows.length} most suspicious`, () => keepFocus(async () => listSuspects(checked, true))));
  doubted = { head, draw: async () => listSuspects(checked, all) };
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
  if (can("add") && bank.id !== null && !(bank.id in bank.columns)) columns.push([bank.id, "id"]);
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
  if (can("add")) form.append(line);
  form.append(make("button", "Predict it", "strong"));
  if (can("add"))
    form.append(button("Add it", async () => {
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
// The map first, as the open row shows its error by the new label.
async function afresh() {
  await load();
  await keepFocus(async () => { try { if (open !== null) await open.show(); } catch { close(); } });
  if (doubted?.head.isConnected) await keepFocus(doubted.draw);
}
let changes = 0; // under way in this tab: what they change, nobody else did
async function change(what, body, text) {
  changes += 1;
  try {
    const done = await ask(what, body);
    if (what === "forget" || what === "add_query") close();
    await afresh();
    say(text);
    return done;
  } finally { changes -= 1; }
}
async function load() {
  const now = await ask("map"), places = now.checked;
  for (const name of ["doubt", "error", "chance"]) {
    const values = now[name];
    now[name] = new Array(now.rows).fill(null);
    places.forEach((at, k) => { now[name][at] = name === "chance" ? Number((100 * values[k]).toFixed(2)) : values[k]; });
  }
  now.at = new Map(now.ids.map((id, at) => [String(id), at]));
  bank = now;
  $("name").textContent = `${bank.name}: ${bank.rows} rows`;
  $("undo").setAttribute("aria-disabled", bank.undo === 0);
  $("undo").hidden = $("export").hidden = !can("undo");
  $("show-table").hidden = bank.table === null;
  $("show-table").textContent = bank.table === null ? "" : "Rows of " + bank.table.name;
  recolor();
  if (!$("rows").hidden) await filterRows();
}
async function follow() {
  try {
    const now = await ask("version");
    if (now.version !== bank.version && changes === 0) {
      await afresh();
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
  const rowsAndFocus = (by) => attempt(async () => { await showRows(by); $("rows").focus(); });
  $("show-errors").addEventListener("click", () => rowsAndFocus("error"));
  $("show-rows").addEventListener("click", () => {
    if ($("rows").hidden) return rowsAndFocus();
    $("rows").hidden = true;
    $("show-rows").setAttribute("aria-expanded", false);
    filtered = box = null;
    recolor();
  });
  const page = (step) => () => { if (first + step >= 0 && first + step < listed.length) { first += step; attempt(listRows); } };
  $("f-back").addEventListener("click", page(-SHOWN));
  $("f-on").addEventListener("click", page(SHOWN));
  $("f-clear").addEventListener("click", () => { $("filter").reset(); box = null; attempt(filterRows); });
  $("filter").addEventListener("input", () => attempt(filterRows));
  $("filter").addEventListener("submit", (event) => event.preventDefault());
  $("undo").addEventListener("click", () => attempt(() => change("undo", {}, "taken back")));
  $("export").addEventListener("click", () => attempt(async () => {
    const { csv } = await ask("changed"), link = make("a");
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    link.download = "changes.csv";
    link.click();
  }));
  await suspects(bank.checked.length === 0);
  if (bank.table !== null) await tableRows("0", false);
  setTimeout(follow, 2000);
}));
