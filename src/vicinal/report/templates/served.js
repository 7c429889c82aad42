"use strict";
const $ = (id) => document.getElementById(id);
const token = location.hash.slice(1);

// What all pages of a server do: ask it, make elements, and say what went wrong.
async function ask(what, body = {}) {
  const headers = { "Content-Type": "application/json", ...(token && { "X-Token": token, Authorization: "Bearer " + token }) };
  const answer = await fetch("api/" + what, { method: "POST", headers, body: JSON.stringify(body) });
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
