for (const { title, x, lines } of JSON.parse(document.getElementById("figures").textContent)) {
  linePlot(chapter(title, ZOOM), lines, { x, y: title });
}
