"use strict";
// Plots as inline SVG, and units. What they are given is data, and becomes text: never markup.

const SVG = "http://www.w3.org/2000/svg";

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
const html = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);
const label = (x, y, words, attributes) => svg("text", { x, y, ...attributes }, words);

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${count.toFixed(unit === 0 ? 0 : count < 9.995 ? 2 : count < 99.95 ? 1 : 0)} ${units[unit]}`;
}

function micros(count) {
  if (count < 1000) return `${Math.round(count)} µs`;
  const [scaled, unit] = count < 1e6 ? [count / 1e3, "ms"] : [count / 1e6, "s"];
  return `${scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)} ${unit}`;
}

function span(seconds) {
  for (const [unit, name] of [[86400, "days"], [3600, "hours"], [60, "minutes"]]) {
    if (seconds >= 2 * unit) return `${Math.round(seconds / unit)} ${name}`;
  }
  return `${Math.round(seconds)} seconds`;
}

function percent(part) {
  const scaled = 100 * part;
  return `${scaled > 0 && scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)} %`;
}

// A row for each: its name, and a bar as long as it is much. Rows are {name, bytes, peer, part}: a part is one of the row above.
function bars(width, rows, about) {
  const most = Math.max(1, ...rows.map((row) => row.bytes));
  const height = 34;
  const plot = svg("svg", { viewBox: `0 0 ${width} ${rows.length * height}`, role: "img", "aria-label": about });
  rows.forEach((row, at) => {
    const y = at * height;
    const length = Math.max(row.bytes > 0 ? 1.5 : 0, (row.bytes / most) * width);
    plot.append(
      label(0, y + 13, row.name, row.part ? { class: "dim" } : {}),
      label(width, y + 13, bytes(row.bytes), { "text-anchor": "end" }),
      svg("rect", { x: 0, y: y + 18, width: length, height: row.part ? 4 : 7, rx: 1.5, class: row.peer ? "peer" : "bar" }),
    );
  });
  return plot;
}

// How many took how long. Steps are {below_micros, count}, each twice as long as the one before; beyond the last there may be more.
function histogram(width, flushes) {
  const steps = [...flushes.histogram];
  const told = steps.reduce((sum, step) => sum + step.count, 0);
  if (flushes.count > told) steps.push({ below_micros: 2 * steps[steps.length - 1].below_micros, count: flushes.count - told });
  let first = steps.findIndex((step) => step.count > 0);
  let last = steps.length - 1;
  while (last > first && steps[last].count === 0) last -= 1;
  // Some room on both sides: a single bar says nothing.
  while (last - first < 7 && (first > 0 || last < steps.length - 1)) {
    if (first > 0) first -= 1;
    if (last < steps.length - 1) last += 1;
  }
  const shown = steps.slice(first, last + 1);
  const [left, right, top, high] = [38, 12, 18, 150];
  const base = top + high;
  const each = (width - left - right) / shown.length;
  const most = Math.max(...shown.map((step) => step.count)) / flushes.count;
  const plot = svg("svg", { viewBox: `0 0 ${width} ${base + 36}`, role: "img", "aria-label": "How long an fsync waits" });
  for (const part of [0, 0.5, 1]) {
    const y = base - part * high;
    plot.append(
      svg("line", { x1: left, x2: width - right, y1: y, y2: y, class: "rule" }),
      label(left - 6, y + 4, percent(part * most), { "text-anchor": "end", class: "dim" }),
    );
  }
  shown.forEach((step, at) => {
    const tall = (step.count / flushes.count / most) * high;
    const words = `${step.count} of ${flushes.count} took less than ${micros(step.below_micros)}, and not less than half of that`;
    plot.append(svg("rect", { x: left + at * each + 1, y: base - tall, width: Math.max(1, each - 2), height: tall, class: "bar" }, svg("title", {}, words)));
  });
  const every = Math.ceil(shown.length / ((width - left - right) / 62));
  for (let at = 0; at <= shown.length; at += every) {
    const end = shown[0].below_micros * 2 ** (at - 1);
    if (left + at * each > width - 24) break;
    plot.append(label(left + at * each, base + 16, first + at === 0 ? "0" : micros(end), { "text-anchor": "middle", class: "dim" }));
  }
  plot.append(label((left + width - right) / 2, base + 33, "time that an fsync waited, each step twice the one before", { "text-anchor": "middle", class: "dim" }));
  const place = (time) => left + Math.min(shown.length, Math.max(0, Math.log2(time / shown[0].below_micros) + 1)) * each;
  for (const [time, name] of [[flushes.half, "half"], [flushes.most, "99 %"]]) {
    if (time <= 0) continue;
    const x = place(time);
    plot.append(
      svg("line", { x1: x, x2: x, y1: top - 3, y2: base, class: "mark" }),
      label(x, top - 7, name, { "text-anchor": "middle" }),
    );
  }
  return plot;
}

// Bytes a second, since the page is open. Points are {from, at, clients, medium}: bytes a second between two seconds.
function rates(width, points, seconds) {
  const [left, right, top, high] = [70, 6, 8, 150];
  const base = top + high;
  const now = points.length ? points[points.length - 1].at : 0;
  // Not less: half of a byte would be told as one, and the axis would say it twice.
  const most = Math.max(1024, ...points.map((point) => Math.max(point.clients, point.medium)));
  const x = (at) => width - right - ((now - at) / seconds) * (width - left - right);
  const y = (rate) => base - (rate / most) * high;
  const plot = svg("svg", { viewBox: `0 0 ${width} ${base + 36}`, role: "img", "aria-label": "Bytes written a second" });
  for (const part of [0, 0.5, 1]) {
    plot.append(
      svg("line", { x1: left, x2: width - right, y1: base - part * high, y2: base - part * high, class: "rule" }),
      label(left - 6, base - part * high + 4, points.length || part === 0 ? `${bytes(part * most)}/s` : "", { "text-anchor": "end", class: "dim" }),
    );
  }
  for (const [kind, style] of [["clients", "peer-trace"], ["medium", "trace"]]) {
    const place = (at, point) => `${Math.max(left, x(at)).toFixed(1)},${y(point[kind]).toFixed(1)}`;
    const line = points.flatMap((point) => [place(point.from, point), place(point.at, point)]);
    plot.append(svg("polyline", { points: line.join(" "), class: style }));
  }
  plot.append(
    label(left, base + 16, seconds === 60 ? "a minute ago" : `${seconds / 60} minutes ago`, { class: "dim" }),
    label(width - right, base + 16, "now", { "text-anchor": "end", class: "dim" }),
    svg("line", { x1: left, x2: left + 18, y1: base + 29, y2: base + 29, class: "peer-trace" }),
    label(left + 23, base + 33, "programs"),
    svg("line", { x1: left + 92, x2: left + 110, y1: base + 29, y2: base + 29, class: "trace" }),
    label(left + 115, base + 33, "drive"),
  );
  return plot;
}
