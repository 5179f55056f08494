// Hides what does not hold every word that was typed. The page is whole without it.
(() => {
  const box = document.getElementById("search");
  const rows = [...document.querySelectorAll("[data-words]")];
  const texts = rows.map((row) => row.dataset.words.toLowerCase());
  const show = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, n) => { row.hidden = !words.every((word) => texts[n].includes(word)); });
    for (const part of [".service", "section"]) {
      for (const block of document.querySelectorAll(part)) {
        block.hidden = !block.querySelector("[data-words]:not([hidden])");
      }
    }
    document.getElementById("none").hidden = rows.some((row) => !row.hidden);
  };
  box.closest("label").hidden = false;
  box.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== box) { event.preventDefault(); box.focus(); }
    if (event.key === "Escape") { box.value = ""; show(); }
  });
  show();
})();
