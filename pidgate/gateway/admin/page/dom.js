// Elements, and numbers and times as text. Everything that a client chose becomes a text node, never markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const UNITS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]];

export function lasting(ms) {
  if (ms === null || ms === undefined) return "";
  for (const [unit, name] of UNITS) {
    const value = ms / unit;
    if (value >= 1) return `${value >= 10 || name === "s" ? Math.floor(value) : Math.floor(value * 10) / 10} ${name}`;
  }
  return ms > 0 ? "1 s" : "0 s";
}

export function number(value, digits = 0) {
  if (value === null || value === undefined) return "";
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (bytes >= unit) return `${(bytes / unit).toFixed(1)} ${name}`;
  }
  return `${Math.round(bytes)} B`;
}

export function utc(wallMs) {
  return new Date(wallMs).toISOString().slice(11, 19);
}

// The gateway's clock, whatever this machine's says.
let aheadMs = 0;

export function setClock(wallMs) {
  aheadMs = wallMs - Date.now();
}

export function now() {
  return Date.now() + aheadMs;
}

// A time that goes on between two draws: "since" counts up, "left" counts down.
export function running(kind, wallMs, limitMs = null) {
  if (wallMs === null || wallMs === undefined) return h("span", { class: "none" }, "-");
  const element = h("time", { [`data-${kind}`]: wallMs, "data-limit": limitMs, title: `${utc(wallMs)} UTC` });
  tick(element);
  return element;
}

export function tick(element) {
  const { since, left, limit } = element.dataset;
  const ms = since !== undefined ? now() - Number(since) : Number(left) - now();
  element.textContent = left !== undefined && ms <= 0 ? "now" : lasting(Math.max(0, ms));
  if (limit !== undefined) element.classList.toggle("bad", since !== undefined ? ms >= Number(limit) : ms <= Number(limit));
}

setInterval(() => document.querySelectorAll("time[data-since], time[data-left]").forEach(tick), 1_000);

const SVG = "http://www.w3.org/2000/svg";

// Bars of the last hour, a minute each, oldest first.
export function bars(minutes, { width = 120, height = 18, title = "" } = {}) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 60 ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  svg.setAttribute("class", "bars");
  const most = Math.max(1, ...minutes);
  const total = minutes.reduce((sum, count) => sum + count, 0);
  const label = document.createElementNS(SVG, "title");
  label.textContent = `${title || "New ids by minute"}: ${number(total)} in 60 minutes, at most ${number(most)} in one`;
  svg.append(label);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", minutes.map((count, minute) => {
    const tall = count ? Math.max(1, (count / most) * (height - 1)) : 0.4;
    return `M${minute + 0.1} ${height}v${-tall}h.8V${height}z`;
  }).join(""));
  svg.append(path);
  return svg;
}
