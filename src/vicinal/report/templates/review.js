"use strict";
let state = null, busy = false;

// One thing at a time: a key that comes while the last one is on its way would label a pair that nobody has seen.
async function act(what, body, text) {
  if (busy) return;
  busy = true;
  try {
    state = await ask(what, body);
    show();
    say(text);
  } finally { busy = false; }
}
const label = (match, text) => () => act("label", { turn: state.turn, place: state.place, match }, text);
async function again() {
  await act("again", {}, "");
  await follow();
}
async function follow() {
  if (state.running === null) return;
  while (state.running !== null) {
    say("matching again: " + state.running);
    await new Promise((proceed) => setTimeout(proceed, 500));
    state = await ask("now");
  }
  show();
  say("");
}
async function finish() {
  await act("finish", {}, "");
  document.body.classList.add("over");
  $("pair").replaceChildren(done("The page has ended. You can close it."));
  $("answers").replaceChildren();
}
function done(title) {
  const box = make("article", "", "card pair");
  box.append(make("h2", title), make("p", `${state.count === 1 ? "1 pair is" : state.count + " pairs are"} labelled. Labels stand in ${state.file}.`));
  box.append(make("p", "To match again with them, say:", "muted"), make("pre", state.command));
  return box;
}
const keys = { m: label(true, "a match"), n: label(false, "no match"), "?": label(null, "skipped"), u: () => act("undo", {}, "taken back") };
function show() {
  $("name").textContent = state.name;
  $("bar").max = state.pairs;
  $("bar").value = state.place;
  $("count").textContent = `${state.place} of ${state.pairs}`;
  const tools = [], key = (letter, text, kind = "") => { const one = button(text, keys[letter], kind); one.prepend(make("kbd", letter)); tools.push(one); };
  if (state.pair === null) $("pair").replaceChildren(done(state.pairs ? "That was the last pair" : "No pair is left to label"));
  else {
    $("pair").innerHTML = state.pair;  // of the report's template, which escapes all cells
    key("m", "match", "strong");
    key("n", "no match", "strong");
    key("?", "skip");
  }
  if (state.place) key("u", "undo");
  if (state.labelled) tools.push(button("Match again", again, state.pair === null ? "strong" : ""));
  tools.push(button("Finish", finish));
  for (const one of tools) one.disabled = state.running !== null;
  $("answers").replaceChildren(...tools);
  $("findings").replaceChildren();
  for (const [title, sentences] of [["What the last labels did", state.effects], ["What the labels say so far", state.findings]])
    if (sentences.length) $("findings").append(make("h3", title), ...sentences.map((one) => make("p", one.replaceAll(" %", "\u00a0%"))));
  // A screen reader reads the next pair; after the last one, Enter matches again.
  $("pair").firstElementChild.tabIndex = -1;
  ((state.pair === null && $("answers").querySelector(".strong")) || $("pair").firstElementChild).focus({ preventScroll: true });
  scrollTo(0, 0);
}
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || state === null) return;
  const pressed = event.key.toLowerCase(), letter = { y: "m", s: "?" }[pressed] ?? pressed;  // yes, no, skip
  const is = [...document.querySelectorAll("#answers button:enabled kbd")].some((one) => one.textContent === letter);
  if (is) { event.preventDefault(); attempt(keys[letter]); }
});
addEventListener("DOMContentLoaded", () => attempt(async () => { await act("now", {}, ""); await follow(); }));
