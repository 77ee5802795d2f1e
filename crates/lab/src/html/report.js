const runs = JSON.parse(document.getElementById("figures").textContent);
barPlot(chapter("What was written, for each block that the host wrote", "Under 1: blocks were not written at all."),
  runs.map((run) => ({ name: run.policy, parts: run.host_written ? run.medium.map((cause) => ({ name: cause.name, value: cause.blocks / run.host_written })) : [] })),
  { x: "blocks written to the medium for one of the host's" });
if (runs.some((run) => run.life && run.life.years !== null)) {
  barPlot(chapter("Years until the flash is worn out", "If blocks wear evenly, at what the host writes a day."),
    runs.map((run) => ({ name: run.policy, parts: run.life && run.life.years !== null ? [{ name: "years", value: run.life.years }] : [] })),
    { x: "years" });
}
for (const [kind, curve] of [["write", "write_cdf"], ["read", "read_cdf"]]) {
  const lines = runs.filter((run) => run[curve].length > 0).map((run) => ({ name: run.policy, points: run[curve].map(({ ns, share }) => [ns / 1000, share]) }));
  if (lines.length > 0) linePlot(chapter(`How long a ${kind} took`, ZOOM), lines, { x: "microseconds, virtual", y: "share of requests within it", log: true, step: true });
}
if (runs.some((run) => run.life && run.life.erases > 0)) {
  const lines = runs.filter((run) => run.life).map((run) => {
    const classes = run.life.histogram, width = classes.length > 1 ? classes[1][0] - classes[0][0] : 1;
    const points = classes.map(([erases, blocks]) => [erases, blocks / run.life.erase_blocks]);
    return { name: run.policy, points: [...points, [classes[classes.length - 1][0] + width, 0]] };
  });
  linePlot(chapter("How evenly erase blocks wore", ZOOM), lines, { x: "erasures of a block (a class's first)", y: "share of the erase blocks", step: true });
}
barPlot(chapter("RAM for tables", "What a controller needs beside its write buffer."),
  runs.map((run) => ({ name: run.policy, parts: run.memory.filter((part) => part.name !== "write buffer" && part.bytes > 0).map((part) => ({ name: part.name, value: part.bytes / 2 ** 20 })) })),
  { x: "MiB" });
document.documentElement.dataset.drawn = String(document.querySelectorAll("#plots svg[role=img]").length);
