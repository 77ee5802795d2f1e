// Asks for the state again and again, and draws it.

const EVERY_MS = 5000;
const SHOWN_SECONDS = 600;
const body = document.body;
const seen = new Map();
let state = null;

for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) {
  addEventListener(kind, (event) => { body.dataset.error = String(event.message || event.reason || event.blockedURI || kind); });
}

function drive(it) {
  return html("section", { class: "drive" },
    html("h2", {}, it.name), html("p", { class: "headline" }, it.headline), html("p", { class: "because" }, it.because));
}

function figure(name, value, unit) {
  return html("div", {}, html("dt", {}, name), html("dd", {}, html("div", { class: "value" }, value), html("div", { class: "unit" }, unit)));
}

function figures(it) {
  const { clients_written: wrote, medium_written: got, space, flushes } = it;
  const nothing = "nothing written yet";
  const less = wrote - got;
  return html("dl", { class: "figures" },
    figure(less < 0 ? "Written in excess" : "Not written to the drive", wrote ? percent(Math.abs(less) / wrote) : "–",
      wrote ? `${bytes(Math.abs(less))} ${less < 0 ? "more than" : "of"} ${bytes(wrote)}` : nothing),
    figure("Write amplification", wrote ? (got / wrote).toFixed(2) : "–",
      wrote ? "bytes to the drive for each byte that programs wrote" : nothing),
    figure("Space in use", space.capacity ? percent(space.used / space.capacity) : "–",
      `${bytes(space.used)} of ${bytes(space.capacity)}, for ${bytes(space.mapped)} of data`),
    figure("Half of all fsyncs wait", flushes.count ? micros(flushes.half) : "–",
      flushes.count ? `or less; 99 of 100: ${micros(flushes.most)}; the longest: ${micros(flushes.longest)}` : "no fsync yet"));
}

function plot(name, about, draw) {
  const it = html("figure", {}, html("figcaption", {}, name, html("small", {}, about)));
  // Drawn at the width that it has, so that its letters are as large as all others.
  it.draw = () => it.append(draw(Math.max(240, it.clientWidth)));
  return it;
}

function nothing(words) {
  return () => html("p", { class: "nothing" }, words);
}

function plots(it, points) {
  const written = [
    { name: "programs wrote", bytes: it.clients_written, peer: true },
    { name: "the drive got", bytes: it.medium_written },
    ...it.causes.map(({ name, bytes }) => ({ name, bytes, part: true })),
  ];
  const spared = it.spared.map(({ name, bytes }) => ({ name, bytes, peer: true }));
  const begun = points.length ? points[points.length - 1].at - points[0].from : 0;
  const shown = [60, 300, SHOWN_SECONDS].find((seconds) => begun <= seconds) || SHOWN_SECONDS;
  return html("div", { class: "plots" },
    html("div", {},
      plot("Written", "since it was opened; what the drive got, by cause", (width) => bars(width, written, "Bytes written, by cause")),
      plot("Not written", "what the drive did not get, because it",
        spared.length ? (width) => bars(width, spared, "Bytes that were not written") : nothing("Nothing yet."))),
    html("div", {},
      plot("How long an fsync waits", `share of all ${it.flushes.count.toLocaleString("en")} since it was opened`,
        it.flushes.count && it.flushes.histogram ? (width) => histogram(width, it.flushes) : nothing("No fsync yet.")),
      plot("Now", "bytes written a second, since this page is open", (width) => rates(width, points, shown))));
}

function events(all) {
  if (!all.length) return html("p", { class: "nothing" }, "Nothing went wrong.");
  const newest = [...all].sort((a, b) => b.last_at_s - a.last_at_s);
  const line = ({ message, count, last_at_s }) => html("li", {},
    html("time", {}, `${new Date(1000 * last_at_s).toLocaleString()}${count > 1 ? `, ${count} times` : ""}`), message);
  return html("ul", { class: "events" }, ...newest.map(line));
}

function volume(it) {
  const well = it.health === "OK";
  const doing = well ? `OK, opened ${span(it.counted.uptime_seconds)} ago` : `${it.health}: ${it.findings.join("; ")}`;
  return html("section", { class: "volume" },
    html("h2", {}, it.name), html("p", { class: well ? "health" : "health trouble" }, doing),
    it.counted && figures(it.counted), it.counted && plots(it.counted, seen.get(it.uuid) || []),
    it.counted && html("div", { class: "lately" }, html("h3", {}, "Recent events"), events(it.counted.events || [])));
}

// Rates are differences between two answers.
function remember(seconds) {
  for (const { uuid, counted } of state.volumes) {
    if (!counted) continue;
    const points = seen.get(uuid) || [];
    const { clients_written: clients, medium_written: medium } = counted;
    const before = points.last;
    if (before && seconds > before.at && clients >= before.clients && medium >= before.medium) {
      const time = seconds - before.at;
      points.push({ from: before.at, at: seconds, clients: (clients - before.clients) / time, medium: (medium - before.medium) / time });
    }
    points.last = { at: seconds, clients, medium };
    while (points.length && points[0].at < seconds - SHOWN_SECONDS) points.shift();
    seen.set(uuid, points);
  }
}

function draw() {
  if (!state) return;
  const drives = state.drives.map(drive);
  if (!drives.length) drives.push(html("p", { class: "headline" }, "No volume is served now."));
  document.getElementById("drives").replaceChildren(...drives);
  document.getElementById("volumes").replaceChildren(...state.volumes.map(volume));
  for (const it of document.querySelectorAll("figure")) it.draw();
}

function tell(words, isTrouble) {
  const place = document.getElementById("state");
  place.textContent = words;
  place.className = isTrouble ? "trouble" : "";
  body.classList.toggle("stale", isTrouble);
}

async function ask() {
  try {
    const answer = await fetch("state.json");
    if (!answer.ok) throw new Error(await answer.text());
    state = await answer.json();
    remember(performance.now() / 1000);
    draw();
    tell(`as of ${new Date().toLocaleTimeString()}`, false);
    body.dataset.drawn ||= Math.round(performance.now());
    body.dataset.wide = document.documentElement.scrollWidth - innerWidth;
  } catch (error) {
    tell(`no answer: ${error.message}`, true);
  }
  setTimeout(ask, EVERY_MS);
}

let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
ask();
