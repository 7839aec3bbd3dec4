"use strict";
// The parts of a study's report: each draws itself from the record, and again when a design is chosen.
const record = JSON.parse(document.getElementById("record").textContent);
const columns = record.columns, titles = Object.keys(columns), rows = columns.design.map((_, row) => row);
const COLOURS = { good: "#1f6feb", fair: "#9a6700", poor: "#cf222e", refused: "#66717e", none: "#66717e" };
let chosen = null, sorted = { title: "design", down: false };

const byId = (name) => document.getElementById(name);
const shown = (value) => typeof value !== "number" ? value ?? "" :
  value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5) ? value.toExponential(3) : String(Number(value.toPrecision(5)));
const colour = (row) => row === chosen ? "#d9480f" : COLOURS[record.grades[row]] ?? "#1f6feb";

function drawn(parent, kind, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function choose(row) {
  chosen = chosen === row ? null : row;
  table(); response(); parallel(); pictures();
}

function onto(values, low, high) {  // a scale from numbers to places; logarithmic where they span more than a decade evenly
  const finite = values.filter((value) => value !== null);
  let least = Math.min(...finite), most = Math.max(...finite);
  const logarithmic = least > 0 && most / least > 12;
  const f = logarithmic ? Math.log10 : (value) => value;
  if (least === most) { const pad = Math.abs(least) * 0.05 || 1; least -= pad; most += pad; }
  const scale = (value) => low + (high - low) * (f(value) - f(least)) / (f(most) - f(least));
  scale.ticks = [];
  if (logarithmic) {
    for (let power = Math.ceil(Math.log10(least)); power <= Math.log10(most); power++) scale.ticks.push(10 ** power);
    if (scale.ticks.length < 2) scale.ticks = [least, Math.sqrt(least * most), most];
  } else {
    const rough = (most - least) / 4, unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= rough);
    for (let at = Math.ceil(least / step) * step; at <= most + step * 1e-9; at += step) scale.ticks.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  }
  return scale;
}

function table() {
  const place = byId("table");
  place.replaceChildren();
  const head = place.createTHead().insertRow(), body = place.createTBody();
  for (const title of titles) {
    const cell = document.createElement("th");
    cell.textContent = title + (sorted.title === title ? (sorted.down ? " ▼" : " ▲") : "");
    cell.tabIndex = 0;
    cell.setAttribute("aria-sort", sorted.title !== title ? "none" : sorted.down ? "descending" : "ascending");
    cell.onclick = () => { sorted = { title, down: sorted.title === title && !sorted.down }; table(); };
    cell.onkeydown = (event) => { if (event.key === "Enter") cell.onclick(); };
    head.appendChild(cell);
  }
  const key = columns[sorted.title], empty = (value) => value === null || value === "";
  const order = [...rows].sort((one, other) => {
    if (empty(key[one]) || empty(key[other])) return empty(key[one]) - empty(key[other]);
    return (key[one] < key[other] ? -1 : key[one] > key[other] ? 1 : 0) * (sorted.down ? -1 : 1);
  });
  for (const row of order) {
    const line = body.insertRow();
    line.className = row === chosen ? "chosen" : "";
    line.onclick = () => choose(row);
    for (const title of titles) {
      const cell = line.insertCell();
      cell.textContent = shown(columns[title][row]);
      if (title.endsWith("reason")) cell.className = "text";
    }
  }
}

function response() {
  const svg = byId("response"), quantity = byId("quantity").value, variable = byId("variable").value;
  svg.replaceChildren();
  const known = rows.filter((row) => columns[quantity]?.[row] != null);
  if (!known.length) { drawn(svg, "text", { x: 20, y: 30 }, "No design has numbers."); return; }
  const error = (row) => Math.abs(columns[quantity + " error"]?.[row] ?? 0), value = (row) => columns[quantity][row];
  const theirs = (row) => columns[quantity + " solver"]?.[row] ?? null;
  const x = onto(known.map((row) => columns[variable][row]), 70, 585);
  const positive = known.every((row) => value(row) > 0);
  const ends = known.flatMap((row) => [value(row) + error(row), positive ? Math.max(value(row) - error(row), value(row) / 10) : value(row) - error(row), theirs(row)]);
  const y = onto(ends, 320, 12);
  axes(svg, x, y, variable, quantity);
  // Designs that are alike in all other variables lie on one curve.
  const curves = new Map();
  for (const row of known) {
    const key = record.variables.filter((name) => name !== variable).map((name) => columns[name][row]).join();
    curves.set(key, [...(curves.get(key) ?? []), row]);
  }
  const low = (row) => Math.min(y(positive ? Math.max(value(row) - error(row), value(row) / 10) : value(row) - error(row)), 320);
  for (const curve of curves.values()) {
    if (curve.length < 3) continue;
    curve.sort((one, other) => columns[variable][one] - columns[variable][other]);
    const at = (row, place) => `${x(columns[variable][row]).toFixed(1)},${place.toFixed(1)}`;
    const band = [...curve.map((row) => at(row, y(value(row) + error(row)))), ...[...curve].reverse().map((row) => at(row, low(row)))];
    drawn(svg, "polygon", { points: band.join(" "), fill: "#1f6feb", opacity: 0.13 });
    drawn(svg, "polyline", { points: curve.map((row) => at(row, y(value(row)))).join(" "), fill: "none", stroke: "#1f6feb", opacity: 0.6 });
  }
  const single = [...curves.values()].every((curve) => curve.length < 3);
  for (const row of [...known.filter((row) => row !== chosen), ...known.filter((row) => row === chosen)]) {
    const place = x(columns[variable][row]);
    if (single || row === chosen) drawn(svg, "line", { x1: place, x2: place, y1: low(row), y2: y(value(row) + error(row)), stroke: colour(row), opacity: 0.5 });
    const dot = drawn(svg, "circle", { cx: place, cy: y(value(row)), r: row === chosen ? 6 : 3.5, fill: colour(row), style: "cursor:pointer" });
    drawn(dot, "title", {}, `design ${columns.design[row]}: ${shown(value(row))} ± ${shown(error(row))} (${record.grades[row]})`);
    dot.onclick = () => choose(row);
    if (theirs(row) !== null) drawn(svg, "path", { d: `M${place - 5} ${y(theirs(row))}h10m-5-5v10`, stroke: "#000", "stroke-width": 1.6 });
  }
  if (known.some((row) => theirs(row) !== null)) drawn(svg, "text", { x: 585, y: 24, "text-anchor": "end" }, "+ your solver");
}

function axes(svg, x, y, across, upwards) {
  for (const tick of y.ticks) {
    drawn(svg, "line", { x1: 70, x2: 585, y1: y(tick), y2: y(tick), stroke: "#e6e9ed" });
    drawn(svg, "text", { x: 64, y: y(tick) + 4, "text-anchor": "end" }, shown(tick));
  }
  for (const tick of x.ticks) {
    drawn(svg, "line", { x1: x(tick), x2: x(tick), y1: 12, y2: 320, stroke: "#e6e9ed" });
    drawn(svg, "text", { x: x(tick), y: 336, "text-anchor": "middle" }, shown(tick));
  }
  drawn(svg, "text", { x: 330, y: 354, "text-anchor": "middle" }, across);
  drawn(svg, "text", { transform: "translate(9 166) rotate(-90)", "text-anchor": "middle" }, upwards);
}

function parallel() {
  const svg = byId("parallel"), names = [...record.variables, ...record.quantities];
  svg.replaceChildren();
  const known = rows.filter((row) => names.every((name) => columns[name][row] !== null));
  if (!known.length || names.length < 2) return;
  const place = (index) => 45 + 510 * index / (names.length - 1);
  const scales = names.map((name) => onto(known.map((row) => columns[name][row]), 320, 40));
  const last = names.length - 1, warm = onto(known.map((row) => columns[names[last]][row]), 0, 1);
  for (const row of [...known.filter((row) => row !== chosen), ...known.filter((row) => row === chosen)]) {
    const points = names.map((name, index) => `${place(index).toFixed(1)},${scales[index](columns[name][row]).toFixed(1)}`).join(" ");
    const share = warm(columns[names[last]][row]), mine = row === chosen;
    const line = drawn(svg, "polyline", { points, fill: "none", stroke: mine ? "#d9480f" : `hsl(${230 - 190 * share} 70% 45%)`,
      "stroke-width": mine ? 3 : 1.2, opacity: chosen === null ? Math.max(0.15, Math.min(0.8, 60 / known.length)) : mine ? 1 : 0.12, style: "cursor:pointer" });
    line.onclick = () => choose(row);
    drawn(line, "title", {}, `design ${columns.design[row]}`);
  }
  names.forEach((name, index) => {
    const at = place(index), values = known.map((row) => columns[name][row]);
    drawn(svg, "line", { x1: at, x2: at, y1: 40, y2: 320, stroke: "#1d2733" });
    drawn(svg, "text", { x: at, y: 32, "text-anchor": "middle" }, shown(Math.max(...values)));
    drawn(svg, "text", { x: at, y: 334, "text-anchor": "middle" }, shown(Math.min(...values)));
    const words = drawn(svg, "text", { x: at, y: 352 + 15 * (index % 2), "text-anchor": index === 0 ? "start" : index === last ? "end" : "middle" }, name.length > 34 ? name.slice(0, 33) + "…" : name);
    if (index === 0) words.setAttribute("x", 4);
    if (index === last) words.setAttribute("x", 596);
  });
}

function pictures() {
  const place = byId("pictures");
  place.replaceChildren();
  record.pictures.forEach((picture, row) => {
    if (!picture) return;
    const figure = document.createElement("figure"), image = document.createElement("img"), words = document.createElement("figcaption");
    image.src = "data:image/png;base64," + picture;
    image.loading = "lazy";
    words.textContent = `${columns.design[row]}: ` + record.variables.map((name) => `${name} ${shown(columns[name][row])}`).join(", ");
    image.alt = "Design " + words.textContent;
    figure.className = row === chosen ? "chosen" : "";
    figure.onclick = () => choose(row);
    figure.append(image, words);
    place.appendChild(figure);
  });
  byId("gallery").hidden = !place.children.length;
}

for (const [name, entries] of [["quantity", record.quantities], ["variable", record.variables]]) {
  for (const entry of entries) byId(name).add(new Option(entry, entry));
  byId(name).onchange = response;
}
table(); response(); parallel(); pictures();
