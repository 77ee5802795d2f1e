const runs = JSON.parse(document.getElementById("figures").textContent);
const TAIL = "The scale of the shares widens towards the slowest requests.";
barPlot(chapter("What was written, for each block that the host wrote", "Under 1: blocks were not written at all."),
  runs.map((run) => ({ name: run.policy, parts: run.host_written ? run.medium.map((cause) => ({ name: cause.name, value: cause.blocks / run.host_written })) : [] })),
  { x: "blocks written to the medium for one of the host's" });
if (runs.some((run) => run.life && run.life.years !== null)) {
  barPlot(chapter("Years until the flash is worn out", "If blocks wear evenly, at what the host writes a day."),
    runs.map((run) => ({ name: run.policy, parts: run.life && run.life.years !== null ? [{ name: "years", value: run.life.years }] : [] })),
    { x: "years" });
}
// The value of each step of a run, from the step's begin on; what has none is left out.
function course(run, x, value) {
  const points = [];
  run.steps.forEach((step, i) => {
    const before = i > 0 ? run.steps[i - 1] : { host_written: 0, medium_written: 0, seconds: 0 }, y = value(step, before);
    if (y !== null) points.push([x(before), y]);
  });
  if (points.length > 0) points.push([x(run.steps[run.steps.length - 1]), points[points.length - 1][1]]);
  return { name: run.policy, points };
}
function coursePlot(title, options, x, value) {
  const lines = runs.map((run) => course(run, x, value)).filter((line) => line.points.length > 2);
  if (lines.length > 0) linePlot(chapter(title, ZOOM), lines, { ...options, step: true });
}
// The slowest of so many requests is beyond all others: the scale has no place for all of them.
function tail(points, count) { return points.map(({ ns, share }) => [ns / 1000, Math.min(share, 1 - 1 / count)]); }
for (const [kind, curve] of [["write", "write_cdf"], ["read", "read_cdf"]]) {
  const lines = runs.filter((run) => run[curve].length > 0).map((run) => ({ name: run.policy, points: tail(run[curve], run[`${kind}s`].count) }));
  if (lines.length > 0) linePlot(chapter(`How long a ${kind} took`, `${TAIL} ${ZOOM}`), lines, { x: "microseconds, virtual", y: "share of requests within it", log: true, step: true, tail: true });
}
coursePlot("Write amplification in the course of the run", { x: "GiB that the host wrote", y: "blocks written for one of the host's" },
  (step) => step.host_written / 2 ** 18, (step, before) => (step.medium_written - before.medium_written) / (step.host_written - before.host_written));
coursePlot("How long writes took in the course of the run", { x: "seconds, virtual", y: "microseconds, mean" },
  (step) => step.seconds, (step) => step.write_mean_ns === null ? null : step.write_mean_ns / 1000);
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
