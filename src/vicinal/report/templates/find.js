"use strict";
const box = document.getElementById("find"), count = document.getElementById("count");
const rows = [...document.querySelectorAll(".rows tbody tr")];
const texts = rows.map((row) => row.textContent.toLowerCase());
const show = () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, place) => {
    row.hidden = !words.every((word) => texts[place].includes(word));
    shown += row.hidden ? 0 : 1;
  });
  count.textContent = words.length ? `${shown} of ${rows.length}` : "";
};
box.parentElement.hidden = false;
box.addEventListener("input", show);
