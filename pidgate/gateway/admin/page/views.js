// The three views. Each takes a draw (pidgate/gateway/present/present.py) and returns its elements.

import { bars, h, lasting, number, running, size, utc } from "./dom.js";
import { act, ACTIONS } from "./actions.js";

const LONG_WAIT_MS = 60_000;
const GIVES_UP_SOON_MS = 90_000;

export function userLink(user, name) {
  return h("a", { href: `#user=${encodeURIComponent(user)}` }, name);
}

function table(id, columns, rows, { empty, more = 0, label }) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const heads = columns.map(({ name, sort, wide, end, current }) =>
    h("th", { scope: "col", class: classes({ wide, end }), "aria-sort": current ? "descending" : null },
      sort ? h("a", { href: sort }, name) : name));
  return h("div", { class: "scroll" },
    h("table", { id, "aria-label": label },
      h("thead", {}, h("tr", {}, heads)),
      h("tbody", {}, rows)),
    more > 0 ? h("p", { class: "more" }, `${number(more)} more: narrow them with the filter`) : null);
}

function classes(named) {
  return Object.entries(named).filter(([, is]) => is).map(([name]) => name).join(" ") || null;
}

function cell(columns, at, ...children) {
  const { wide, end, name } = columns[at];
  return h("td", { class: classes({ wide, end }), "data-name": name }, ...children);
}

function row(columns, key, cells, { open = null, bad = false } = {}) {
  return h("tr", { "data-key": key, tabindex: open ? 0 : null, "data-open": open, class: classes({ bad }) },
    cells.map((children, at) => cell(columns, at, ...[children].flat())));
}

// ---- alerts and waits ----------------------------------------------------------------------------------

export function alerts(found) {
  if (!found.length) return null;
  return h("ul", { id: "alerts", "aria-label": "What needs attention" }, found.map(({ loses, text, user }) =>
    h("li", { class: loses ? "bad" : "warn" }, loses ? h("strong", {}, "At risk: ") : null,
      user ? h("a", { href: `#user=${encodeURIComponent(user)}` }, text) : text)));
}

export function waits({ rows, total }, { withUser = true } = {}) {
  const columns = [
    ...(withUser ? [{ name: "User" }] : []),
    { name: "Client" },
    { name: "Why it waits" },
    { name: "Since", end: true },
    { name: "Until", end: true },
    { name: "Gives up", end: true },
  ];
  const drawn = rows.map((wait) => {
    const action = wait.producer_id === null || wait.why === "order" ? null : h("button", {
      type: "button", class: "small", onclick: () => act(ACTIONS.release, wait),
    }, `Release ${wait.producer_id}`);
    const cells = [
      ...(withUser ? [wait.user ? userLink(wait.user, wait.name) : wait.name] : []),
      [h("span", { class: "strong" }, wait.client_id || "(no client id)"), ` at ${wait.address}`,
        h("span", { class: "detail" }, [wait.library, wait.node_id === null ? "" : `broker ${wait.node_id}`,
          wait.connection_id === null ? "not connected now" : ""].filter(Boolean).join(", "))],
      [wait.says, wait.place === null ? "" : wait.place === 0 ? "; it is next" : `; ${wait.place} before it in line`,
        wait.lifts.length ? h("span", { class: "detail" }, h("code", {}, wait.lifts[0])) : null, action],
      running("since", wait.since_wall_ms, LONG_WAIT_MS),
      running("left", wait.until_wall_ms),
      running("left", wait.gives_up_wall_ms, GIVES_UP_SOON_MS),
    ];
    const key = `${wait.user}/${wait.client_id}/${wait.producer_id}/${wait.connection_id}`;
    return row(columns, key, cells, { open: withUser && wait.user ? wait.user : null });
  });
  return table("waits", columns, drawn, { empty: "Nobody waits.", more: total - rows.length, label: "Who waits now" });
}

// ---- the first view ------------------------------------------------------------------------------------

const USER_SORTS = { new: "New/1h", tokens: "Tokens", waiting: "Wait", refused: "Refused/1h", bytes: "Bytes" };

function hash(parameters) {
  const text = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return `#${text}`;
}

export function quota(user, windowMs = null) {
  const letter = user.exempt ? "exempt" : user.mode === "enforce" ? "enforced" : "observed";
  const rate = user.rate === null ? "no limit" : user.rate === 0 ? "blocked" : number(user.rate, 3);
  const per = windowMs === null || !user.rate ? "" : ` new ids per ${lasting(windowMs)}`;
  return [rate, per, " ", h("span", { class: `mode ${letter}` }, letter), user.is_run_time ? h("span", { title: "set at run time" }, " *") : ""];
}

export function users(found, route) {
  const columns = [
    { name: "User", sort: hash({ find: route.find, sort: "user" }), current: route.sort === "user" },
    ...["new"].map((sort) => ({ name: USER_SORTS[sort], end: true, sort: hash({ find: route.find, sort }), current: route.sort === sort })),
    { name: "Quota", end: true },
    ...["tokens", "waiting", "refused"].map((sort) => ({
      name: USER_SORTS[sort], end: true, wide: sort !== "waiting", sort: hash({ find: route.find, sort }), current: route.sort === sort,
    })),
    { name: "60 min", wide: true },
    { name: "Bytes", end: true, wide: true, sort: hash({ find: route.find, sort: "bytes" }), current: route.sort === "bytes" },
  ];
  const rows = found.rows.map((user) => row(columns, user.user, [
    userLink(user.user, user.name),
    number(user.new_1h),
    quota(user),
    user.tokens === null ? h("span", { class: "none" }, "-") : tokens(user),
    user.waiting ? [h("strong", {}, number(user.waiting)), ` for ${lasting(user.oldest_waiting_ms)}`] : h("span", { class: "none" }, "-"),
    user.refused_1h ? number(user.refused_1h) : user.would_refuse ? h("span", { title: "observed: would have been refused since the start" }, `(${number(user.would_refuse)})`) : h("span", { class: "none" }, "-"),
    user.minutes.length ? bars(user.minutes) : h("span", { class: "none" }, "-"),
    size(user.bytes_in + user.bytes_out),
  ], { open: user.user, bad: user.waiting > 0 }));
  return table("users", columns, rows, {
    empty: route.find ? "No user of this name." : "No user has sent anything yet.",
    more: found.matching - found.rows.length,
    label: "Users",
  });
}

function tokens(user) {
  const soon = user.tokens < 0 && user.next_token_ms ? ` next ${lasting(user.next_token_ms)}` : "";
  return h("span", { class: user.tokens < 0 ? "bad" : null }, `${number(user.tokens, 1)}${soon}`);
}

export function first(draw, route) {
  if (draw.head.is_unused) return [alerts(draw.alerts), unused(draw.head)];
  return [
    alerts(draw.alerts),
    h("section", {}, h("h2", {}, `Who waits now (${number(draw.waits.total)})`), waits(draw.waits)),
    h("section", {}, h("h2", {}, `Users (${number(draw.users.matching)})`), users(draw.users, route)),
  ];
}

function unused(head) {
  return h("section", {},
    h("h2", {}, "No client has connected yet"),
    h("p", {}, "Set bootstrap.servers of a client to this gateway: ", head.listeners.map((one) => [h("code", {}, one), " "]).flat()),
    h("p", {}, "Then look here again, or try it: ", h("code", {}, `pidgate load --bootstrap-servers ${head.listeners[0]} --topic TOPIC`)));
}

export function facts(head) {
  const items = [
    [`${number(head.gateways)} ${head.gateways === 1 ? "gateway" : "gateways"}`, !head.is_ready],
    [`brokers ${head.brokers_up}/${head.brokers}`, head.brokers_up < head.brokers],
    [head.mode.value === "enforce" ? "ENFORCE" : "OBSERVE", false],
  ];
  if (head.waiting !== null) items.push([`${number(head.waiting)} waiting`, false]);
  if (head.oldest_wait_ms !== null) items.push([`oldest wait ${lasting(head.oldest_wait_ms)}`, head.oldest_wait_ms >= LONG_WAIT_MS]);
  items.push([`${number(head.connections)} connections`, false]);
  if (head.states) items.push(states(head.states));
  if (head.new_per_s !== null) items.push([`${number(head.new_per_s, 1)} new ids/s`, false], [`${number(head.refused_1h)} refused/1h`, false]);
  if (head.id_blocks) items.push([head.id_blocks.says, false]);
  return items.map(([text, bad]) => h("span", { class: classes({ fact: true, bad }) }, text));
}

function states(it) {
  const of = it.capacity === null ? "" : ` of ${number(it.capacity)}`;
  const growth = it.per_hour > 0 ? `, +${number(it.per_hour)}/h` : "";
  return [`broker ${it.node_id}: ~${number(it.count)}${of} producer states${growth}`, it.enforced.length > 0];
}

// ---- one user ------------------------------------------------------------------------------------------

export function user(draw) {
  const { row: it } = draw;
  const buttons = ["raise", "refill", "block", "observe", "enforce", "grace", "reset"].map((name) =>
    h("button", { type: "button", "data-action": name, title: `Key: ${ACTIONS[name].key}`, onclick: () => act(ACTIONS[name], it) },
      h("u", {}, ACTIONS[name].key), ` ${ACTIONS[name].label}`));
  return [
    h("section", {},
      h("h2", {}, it.name, ": ", quota(it, draw.head.window_ms)),
      h("p", { class: "buttons" }, buttons),
      h("ul", { id: "lines" }, draw.lines.map((line) => h("li", {}, line)))),
    h("section", {}, h("h2", {}, `New ids by minute (${number(it.new_1h)} in 60 min)`),
      it.minutes.length ? bars(it.minutes, { width: "100%", height: 48 }) : h("p", { class: "empty" }, "None in the last hour.")),
    h("section", {}, h("h2", {}, `Waits now (${number(draw.waits.total)})`), waits(draw.waits, { withUser: false })),
    patterns(draw.patterns),
    changes(draw.changes),
    h("section", {}, h("h2", {}, `Connections (${number(draw.connections.matching)})`), connections(draw.connections, {})),
  ];
}

function patterns(found) {
  if (!found.length) return null;
  return h("section", {}, h("h2", {}, "What it does (last hour, as pidgate who says)"), h("ul", { id: "patterns" }, found.map((one) =>
    h("li", {}, h("span", { class: "strong" }, `${one.kind.replaceAll("_", " ")}: `), one.text, h("span", { class: "detail" }, one.remedy)))));
}

function changes(found) {
  if (!found.length) return null;
  return h("section", {}, h("h2", {}, "Set at run time"), h("ul", {}, found.map((one) => h("li", {},
    `${one.setting} ${one.action === "set" ? one.value : one.action} by ${one.set_by || "somebody"} at ${utc(one.set_wall_ms)} UTC through ${one.set_through}`,
    one.until_wall_ms === null ? "" : [", ends in ", running("left", one.until_wall_ms)],
    one.note ? `: ${one.note}` : ""))));
}

// ---- gateways, brokers, limits, connections ------------------------------------------------------------

const CONNECTION_SORTS = { user: "User", bytes: "Bytes/s", throttle: "Throttle left", open: "Open for", idle: "Idle for", ids: "Ids" };

export function connections(found, route) {
  const sorted = (sort, more = {}) => ({
    name: CONNECTION_SORTS[sort], sort: route.view ? hash({ around: "1", find: route.find, sort }) : null, current: route.sort === sort, ...more,
  });
  const columns = [
    sorted("user"), { name: "Client" }, { name: "Broker", end: true, wide: true }, { name: "State", wide: true },
    sorted("bytes", { end: true }), sorted("throttle", { end: true }), sorted("open", { end: true, wide: true }),
    sorted("idle", { end: true, wide: true }), sorted("ids", { end: true, wide: true }),
  ];
  const rows = found.rows.map((one) => row(columns, one.connection_id, [
    userLink(one.user, one.name),
    [one.client_id || "(no client id)", h("span", { class: "detail" }, `${one.address} ${one.library}`)],
    one.node_id === null ? "-" : one.node_id,
    [one.state, one.why ? h("span", { class: "detail" }, one.why.replaceAll("_", " ")) : null],
    size(one.bytes_per_s) || "-",
    one.throttle_ms ? lasting(one.throttle_ms) : "-",
    lasting(one.open_ms),
    lasting(one.idle_ms),
    number(one.ids),
  ], { open: route.view ? one.user : null }));
  return table("connections", columns, rows, {
    empty: route.find ? "No connection of this user, client id or address." : "No connection.",
    more: found.matching - found.rows.length,
    label: "Connections",
  });
}

function level(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "bytes") return size(value);
  return unit === "ms" ? lasting(value) : number(value, 1);
}

function limits(found) {
  const columns = [
    { name: "Limit" }, { name: "Now", end: true }, { name: "Most", end: true, wide: true }, { name: "Limit is", end: true },
    { name: "Last hit", end: true }, { name: "Hits", end: true, wide: true }, { name: "Beyond it", wide: true },
  ];
  const rows = found.map((one) => row(columns, one.name, [
    [one.name, one.whose ? h("span", { class: "detail" }, one.whose) : null],
    [level(one.now, one.unit), one.now !== null && one.limit ? h("meter", { min: 0, max: one.limit, high: one.limit * 0.8, value: one.now, title: "of the limit" }) : null],
    level(one.most, one.unit),
    one.limit === null ? "none" : level(one.limit, one.unit),
    one.last_hit_wall_ms === null ? h("span", { class: "none" }, "never") : [running("since", one.last_hit_wall_ms), " ago"],
    number(one.hits),
    one.beyond,
  ]));
  return table("limits", columns, rows, { empty: "", label: "Limits" });
}

export function around(draw, route) {
  const gateways = draw.gateways.map((one) => h("li", {}, h("span", { class: "strong" }, one.gateway),
    one.is_own ? ` this one, ${one.version}, ${draw.head.is_ready ? "ready" : draw.head.not_ready}` : ` heard of ${lasting(one.heard_ms)} ago, by the events topic`));
  const brokers = draw.brokers.map((one) => h("li", { class: one.is_up === false ? "bad" : null }, h("span", { class: "strong" }, `${one.node_id}`),
    ` ${one.address}, ${one.is_up === null ? "not asked yet" : one.is_up ? "answers" : "does not answer"}, ${number(one.connections)} connections, ${number(one.in_flight)} requests in flight`));
  return [
    h("section", {}, h("h2", {}, `Gateways (${number(gateways.length)})`), h("ul", { id: "gateways" }, gateways)),
    h("section", {}, h("h2", {}, `Brokers (${number(brokers.length)})`), brokers.length ? h("ul", { id: "brokers" }, brokers) : h("p", { class: "empty" }, "No broker is known yet.")),
    h("section", {}, h("h2", {}, "Limits"), limits(draw.limits)),
    h("section", {}, h("h2", {}, `Connections (${number(draw.connections.matching)} of ${number(draw.connections.total)})`), connections(draw.connections, route)),
  ];
}
