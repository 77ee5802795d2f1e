"use strict";
// Plots over two axes.
const ZOOM = "Drag over the plot to zoom, double-click to see all of it, click a name to hide its line. " +
  "With the keyboard: arrows read the values, + and - zoom, 0 shows all of it.";
// Values that the arrow keys stop at on their way over a plot, at most.
const STOPS = 60;
const COLOURS = ["#1b6ca8", "#c8553d", "#2a9d5c", "#8f63c0", "#c79a00", "#7a7a7a", "#12a5a5", "#d0408b", "#e6760d", "#7d9f2b", "#5a7bd8", "#a0522d", "#2f4b7c", "#ff6f91", "#00b894", "#6d4c41"];
// What tells the second and the third sixteen lines apart from the first.
const DASHES = [["none", "solid"], ["7 3", "dashed"], ["2 3", "dotted"]];
// The most nines that a tail axis has room for: 99.999%.
const NINES = 5;
const LEFT = 62, RIGHT = 16, TOP = 14, BOTTOM = 46;
// A letter of a label, in pixels, as wide as they are in any font.
const LETTER = 7;

function element(name, attributes, parent, text) {
  const svg = ["svg", "g", "path", "rect", "text", "line", "circle", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 0.01)) return value.toExponential(1).replace("e+", "e");
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return value.toFixed(size >= 10 ? 1 : 2);
}

// How many nines a share has: 1 for 90%, 2 for 99%. On this scale the few slowest requests have as much room as the others.
function nines(share) { return Math.min(NINES, Math.max(0, -Math.log10(Math.max(1 - share, 1e-12)))); }

// A share in percent, with as many digits as tell it from 100%.
function percent(share) {
  const digits = share < 1 ? Math.max(0, Math.ceil(-Math.log10(1 - share) - 1e-6) - 2) : 0;
  return `${(share * 100).toFixed(digits)}%`;
}

function steps(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const all = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9 && all.length < 30; at++) all.push(at * step);
  return all;
}

// As wide as there is room, so that a letter is as large on a telephone; drawn again when that changes.
function widthOf(holder) { return Math.max(300, Math.min(1100, Math.floor(holder.clientWidth) || 1100)); }

function drawnToFit(holder, draw) {
  let width = widthOf(holder);
  draw();
  new ResizeObserver(() => { if (widthOf(holder) !== width) { width = widthOf(holder); draw(); } }).observe(holder);
}

// A name as lines that fit: a policy's is parted at its commas.
function wrapped(name, width) {
  const most = Math.max(8, Math.floor(width / LETTER)), lines = [""];
  for (const piece of name.match(/[^,]*,?/g).filter((piece) => piece)) {
    for (let rest = piece; rest; rest = rest.slice(most)) {
      const next = rest.slice(0, most);
      if (lines[lines.length - 1] && lines[lines.length - 1].length + next.length > most) lines.push("");
      lines[lines.length - 1] += next;
    }
  }
  return lines;
}

function frame(section, caption) {
  const figure = element("figure", {}, section);
  const legend = element("div", { class: "legend" }, figure);
  const holder = element("div", {}, figure);
  const tip = element("div", { class: "tip", hidden: "" }, figure);
  if (caption) element("figcaption", {}, figure, caption);
  return { figure, legend, holder, tip };
}

function colour(i) { return COLOURS[i % COLOURS.length]; }
function dash(i) { return DASHES[Math.floor(i / COLOURS.length) % DASHES.length]; }

function legendOf(parts, names, hidden, redraw) {
  names.forEach((name, i) => {
    const button = element("button", { type: "button", "aria-pressed": "true" }, parts.legend);
    element("i", { style: `border-top:5px ${dash(i)[1]} ${colour(i)}` }, button);
    button.append(name);
    button.addEventListener("click", () => {
      const off = hidden.has(name);
      if (off) hidden.delete(name); else hidden.add(name);
      button.setAttribute("aria-pressed", String(off));
      redraw();
    });
  });
}

function show(parts, event, lines) {
  const box = parts.figure.getBoundingClientRect();
  parts.tip.textContent = lines.join("\n");
  parts.tip.hidden = lines.length === 0;
  parts.tip.style.left = 0;
  const x = event.clientX - box.left;
  const wide = parts.tip.offsetWidth, left = x > box.width * 0.6 ? x - wide - 14 : x + 14;
  parts.tip.style.left = `${Math.max(0, Math.min(left, box.width - wide))}px`;
  parts.tip.style.top = `${event.clientY - box.top + 10}px`;
}

function chapter(title, hint) {
  const section = element("section", {}, document.getElementById("plots"));
  element("h2", {}, section, title);
  if (hint) element("p", { class: "hint" }, section, hint);
  return section;
}

// lines: [{ name, points: [[x, y]] }], by x; options: { x, y, log, step, tail, caption }. With step a value holds until the
// next; with tail the values are shares, and the axis counts their nines.
function linePlot(section, lines, options) {
  const HEIGHT = 420, hidden = new Set(), parts = frame(section, options.caption);
  const scale = (x) => (options.log ? Math.log10(Math.max(x, 1e-9)) : x);
  const back = (x) => (options.log ? 10 ** x : x);
  const rise = options.tail ? nines : (y) => y;
  const label = options.tail ? (height) => percent(1 - 10 ** -height) : short;
  const said = options.tail ? percent : short;
  let zoom = null, cursor = null;
  const whole = () => {
    const xs = [], ys = [0];
    for (const line of lines) if (!hidden.has(line.name)) for (const [x, y] of line.points) { xs.push(scale(x)); ys.push(rise(y)); }
    let [x0, x1] = [xs.reduce((a, b) => Math.min(a, b), Infinity), xs.reduce((a, b) => Math.max(a, b), -Infinity)];
    if (!(x0 < x1)) [x0, x1] = Number.isFinite(x0) ? [x0 - 0.5, x0 + 0.5] : [0, 1];
    const y1 = ys.reduce((a, b) => Math.max(a, b), 0) * 1.02 || 1;
    return { x0, x1, y0: 0, y1 };
  };
  const range = () => zoom ?? whole();
  const seen = () => lines.filter((line) => !hidden.has(line.name) && line.points.length > 0);
  // Where there are values, in sight.
  const stops = () => {
    const { x0, x1 } = range(), all = seen().flatMap((line) => line.points.map(([x]) => scale(x)));
    return [...new Set(all)].filter((x) => x >= x0 && x <= x1).sort((a, b) => a - b);
  };
  const valueAt = (points, x) => {
    let low = 0, high = points.length;
    while (low < high) { const middle = (low + high) >> 1; if (scale(points[middle][0]) <= x) low = middle + 1; else high = middle; }
    if (options.step) return low > 0 ? points[low - 1][1] : 0;
    return low > 0 && scale(points[low - 1][0]) === x ? points[low - 1][1] : null;
  };
  const tell = (place, x) => show(parts, place, [`${options.x}: ${short(back(x))}`, ...seen().map((line) => {
    const value = valueAt(line.points, x);
    return `${line.name}: ${value === null ? "-" : said(value)}`;
  })]);
  function draw() {
    const WIDTH = widthOf(parts.holder), r = range(), w = WIDTH - LEFT - RIGHT, h = HEIGHT - TOP - BOTTOM;
    const px = (x) => LEFT + ((x - r.x0) / (r.x1 - r.x0)) * w, py = (y) => TOP + ((r.y1 - y) / (r.y1 - r.y0)) * h;
    parts.holder.replaceChildren();
    const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": options.y }, parts.holder);
    for (const x of steps(r.x0, r.x1, Math.max(2, Math.floor(w / 100)))) {
      element("line", { class: "grid", x1: px(x), x2: px(x), y1: TOP, y2: HEIGHT - BOTTOM }, svg);
      element("text", { x: px(x), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, svg, short(back(x)));
    }
    for (const y of steps(r.y0, r.y1, 6)) {
      element("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: py(y), y2: py(y) }, svg);
      element("text", { x: LEFT - 6, y: py(y) + 4, "text-anchor": "end" }, svg, label(y));
    }
    element("text", { x: LEFT + w / 2, y: HEIGHT - 8, "text-anchor": "middle" }, svg, options.x);
    element("text", { x: 14, y: TOP + h / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${TOP + h / 2})` }, svg, options.y);
    const inside = element("svg", { x: LEFT, y: TOP, width: w, height: h, viewBox: `${LEFT} ${TOP} ${w} ${h}` }, svg);
    lines.forEach((line, i) => {
      if (hidden.has(line.name)) return;
      let path = "";
      for (const [x, y] of line.points) {
        const [ax, ay] = [px(scale(x)).toFixed(1), py(rise(y)).toFixed(1)];
        path += path === "" ? `M${ax} ${ay}` : options.step ? `H${ax}V${ay}` : `L${ax} ${ay}`;
      }
      element("path", { d: path || "M0 0", fill: "none", stroke: colour(i), "stroke-width": 1.8, "stroke-dasharray": dash(i)[0], "data-name": line.name }, inside);
      if (options.step || line.points.length >= STOPS) return;
      for (const [x, y] of line.points) element("circle", { cx: px(scale(x)), cy: py(rise(y)), r: 3, fill: colour(i) }, inside);
    });
    const band = element("rect", { class: "band", y: TOP, height: h, width: 0 }, svg);
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      return { x: ((event.clientX - box.left) / box.width) * WIDTH, y: ((event.clientY - box.top) / box.height) * HEIGHT };
    };
    const toValue = (x) => r.x0 + ((Math.min(Math.max(x, LEFT), LEFT + w) - LEFT) / w) * (r.x1 - r.x0);
    const toHeight = (y) => r.y1 - ((Math.min(Math.max(y, TOP), TOP + h) - TOP) / h) * (r.y1 - r.y0);
    let from = null;
    svg.addEventListener("pointerdown", (event) => { from = at(event); });
    svg.addEventListener("pointermove", (event) => {
      const now = at(event);
      if (from) {
        band.setAttribute("x", Math.min(from.x, now.x)); band.setAttribute("width", Math.abs(from.x - now.x));
        band.setAttribute("y", Math.min(from.y, now.y)); band.setAttribute("height", Math.abs(from.y - now.y));
      }
      const x = toValue(now.x), away = (stop) => Math.abs(stop - x);
      const near = options.step ? x : stops().reduce((a, b) => (away(b) < away(a) ? b : a), Infinity);
      if (Number.isFinite(near)) tell(event, near);
    });
    svg.addEventListener("pointerleave", () => { parts.tip.hidden = true; });
    svg.addEventListener("pointerup", (event) => {
      const start = from, now = at(event);
      from = null; band.setAttribute("width", 0);
      if (!start || Math.abs(start.x - now.x) < 8 || Math.abs(start.y - now.y) < 8) return;
      const xs = [toValue(start.x), toValue(now.x)].sort((a, b) => a - b);
      const ys = [toHeight(start.y), toHeight(now.y)].sort((a, b) => a - b);
      zoom = { x0: xs[0], x1: xs[1], y0: ys[0], y1: ys[1] };
      draw();
    });
    svg.addEventListener("dblclick", () => { zoom = null; draw(); });
    if (cursor !== null && cursor >= r.x0 && cursor <= r.x1) {
      const box = svg.getBoundingClientRect();
      element("line", { class: "cursor", x1: px(cursor), x2: px(cursor), y1: TOP, y2: HEIGHT - BOTTOM }, svg);
      tell({ clientX: box.left + (px(cursor) / WIDTH) * box.width, clientY: box.top + box.height / 3 }, cursor);
    }
    parts.figure.dataset.range = [back(r.x0), back(r.x1), r.y0, r.y1].join(" ");
  }
  const move = (by) => {
    const all = stops(), at = all.findIndex((x) => x >= (cursor ?? -Infinity)), last = all.length - 1;
    if (all.length === 0) return;
    const next = cursor === null ? 0 : (at < 0 ? last : at) + by * Math.ceil(all.length / STOPS);
    cursor = all[Math.min(Math.max(next, 0), last)];
  };
  const zoomBy = (factor) => {
    const r = range(), all = whole(), middle = cursor ?? (r.x0 + r.x1) / 2, half = ((r.x1 - r.x0) / 2) * factor;
    const [x0, x1] = [Math.max(middle - half, all.x0), Math.min(middle + half, all.x1)];
    zoom = x0 <= all.x0 && x1 >= all.x1 ? null : { ...r, x0, x1 };
  };
  const leave = () => { cursor = null; parts.tip.hidden = true; };
  const keys = {
    ArrowLeft: () => move(-1), ArrowRight: () => move(1),
    "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2),
    0: () => { zoom = null; }, Escape: () => { zoom = null; leave(); },
  };
  for (const [name, value] of Object.entries({ class: "plot", tabindex: 0, role: "group", "aria-label": `${options.y}: plot` })) parts.holder.setAttribute(name, value);
  parts.tip.setAttribute("aria-live", "polite");
  parts.holder.addEventListener("keydown", (event) => {
    if (!Object.hasOwn(keys, event.key) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
    draw();
  });
  parts.holder.addEventListener("blur", () => { leave(); draw(); });
  legendOf(parts, lines.map((line) => line.name), hidden, draw);
  drawnToFit(parts.holder, draw);
}

// rows: [{ name, parts: [{ name, value }] }]; each row is one bar of stacked parts under its name, which is never cut.
function barPlot(section, rows, options) {
  const names = [...new Set(rows.flatMap((row) => row.parts.map((part) => part.name)))];
  const hidden = new Set(), parts = frame(section, options.caption);
  const line = 15, bar = 18, left = 8, figures = 12 * LETTER;
  function draw() {
    const sums = rows.map((row) => row.parts.reduce((sum, part) => sum + (hidden.has(part.name) ? 0 : part.value), 0));
    const WIDTH = widthOf(parts.holder), w = WIDTH - left - figures, most = Math.max(...sums, 1e-12);
    const labels = rows.map((row) => wrapped(row.name, WIDTH - 2 * left));
    const height = TOP + labels.reduce((sum, lines) => sum + lines.length * line + bar + 8, 0) + BOTTOM;
    parts.holder.replaceChildren();
    const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": options.x }, parts.holder);
    for (const x of steps(0, most, Math.max(2, Math.floor(w / 100)))) {
      const at = left + (x / most) * w;
      element("line", { class: "grid", x1: at, x2: at, y1: TOP, y2: height - BOTTOM }, svg);
      element("text", { x: at, y: height - BOTTOM + 16, "text-anchor": "middle" }, svg, short(x));
    }
    element("text", { x: WIDTH / 2, y: height - 8, "text-anchor": "middle" }, svg, options.x);
    let y = TOP;
    rows.forEach((row, i) => {
      let x = left;
      for (const text of labels[i]) element("text", { x: left, y: (y += line) - 3 }, svg, text);
      for (const part of row.parts) {
        if (hidden.has(part.name) || part.value <= 0) continue;
        const long = (part.value / most) * w;
        const fill = colour(names.indexOf(part.name));
        const piece = element("rect", { x, y, width: Math.max(long, 0.5), height: bar, fill }, svg);
        piece.addEventListener("pointermove", (event) => show(parts, event, [row.name, `${part.name}: ${short(part.value)}`, `all: ${short(sums[i])}`]));
        piece.addEventListener("pointerleave", () => { parts.tip.hidden = true; });
        x += long;
      }
      element("text", { x: x + 5, y: y + 14 }, svg, row.parts.length ? (row.says ?? short(sums[i])) : "-");
      y += bar + 8;
    });
  }
  if (names.length > 1) legendOf(parts, names, hidden, draw);
  drawnToFit(parts.holder, draw);
}
