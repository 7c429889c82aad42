// Renders the formulas that pymdownx.arithmatex has marked, with the copy of KaTeX in this folder.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const marked = element.textContent.trim(); // \( ... \) or \[ ... \]
    katex.render(marked.slice(2, -2), element, { displayMode: marked.startsWith("\\["), throwOnError: false });
  }
});
