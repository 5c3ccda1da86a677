// The page: which view is open (the hash), its live draws, the session, and the keyboard.

import { act, ACTIONS, toast, useSession } from "./actions.js";
import { h, setClock, utc } from "./dom.js";
import * as views from "./views.js";
import { whatIf } from "./whatif.js";

const RETRY_MS = 3_000;
const USER_SORTS = ["", "user", "new", "tokens", "waiting", "refused", "bytes"];
const CONNECTION_SORTS = ["", "user", "bytes", "throttle", "open", "idle", "ids"];
const KEYS = {
  first: "/ filter   s sort   j k move   enter open   o observe all   g gateways   ? help",
  user: "r raise   f refill   l release   b block   o observe   e enforce   g grace   x file   esc back",
  around: "/ filter   s sort   j k move   enter open   esc back",
};

const $ = (id) => document.getElementById(id);
const main = $("view");
let route = null;
let source = null;
let latest = null;
let session = null;

// ---- routes --------------------------------------------------------------------------------------------

function routeOf(hash) {
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  const view = parameters.has("user") ? "user" : parameters.has("around") ? "around" : "first";
  return { view, user: parameters.get("user") || "", find: parameters.get("find") || "", sort: parameters.get("sort") || "" };
}

function hashOf({ view, user, find, sort }) {
  const parameters = new URLSearchParams();
  if (view === "user") parameters.set("user", user);
  if (view === "around") parameters.set("around", "1");
  if (find) parameters.set("find", find);
  if (sort) parameters.set("sort", sort);
  return `#${parameters}`;
}

function go(changed) {
  location.hash = hashOf({ ...route, ...changed });
}

function opened() {
  const before = route;
  route = routeOf(location.hash);
  document.querySelectorAll("nav a").forEach((link) => {
    if (link.dataset.view === route.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  document.title = route.view === "user" ? `${route.user} - pidgate` : "pidgate";
  $("keys").textContent = KEYS[route.view];
  if (before === null || before.view !== route.view || before.user !== route.user) {
    latest = null;
    const find = h("input", {
      id: "find", type: "search", placeholder: "Filter", value: route.find, "aria-label": "Filter", autocomplete: "off",
      oninput: (event) => go({ find: event.target.value.trim() }),
    });
    main.replaceChildren(...(route.view === "user" ? [] : [find]), h("div", { id: "body" }, h("p", { class: "empty" }, "Reading the gateway.")),
      ...(route.view === "user" ? [whatIf(route.user, () => latest)] : []));
  }
  if (session?.may_read) listen();
}

// ---- live ----------------------------------------------------------------------------------------------

function listen() {
  source?.close();
  const { view, user, find, sort } = route;
  source = new EventSource(`v1/live?${new URLSearchParams({ view, user, find, sort })}`);
  source.onmessage = (event) => {
    latest = JSON.parse(event.data);
    setClock(latest.head.wall_ms);
    draw();
  };
  source.onerror = () => {
    lost();
    if (source.readyState === EventSource.CLOSED) {
      setTimeout(begin, RETRY_MS);
    }
  };
}

async function lost() {
  const since = latest ? `, what you see is of ${utc(latest.head.wall_ms)} UTC` : "";
  let why = "the gateway does not answer";
  try {
    const { view, user, find, sort } = route;
    const answer = await fetch(`v1/present?${new URLSearchParams({ view, user, find, sort })}`);
    if (answer.ok) return;
    const told = await answer.json();
    why = told.error || why;
  } catch { /* it does not answer */ }
  $("link").textContent = `Not live: ${why}${since}`;
  $("link").className = "bad";
}

function draw() {
  const { head } = latest;
  $("name").textContent = head.cluster ? `pidgate ${head.cluster}` : "pidgate";
  $("name").title = `${head.gateway}, pidgate ${head.version}`;
  $("facts").replaceChildren(...views.facts(head), ...(route.view === "first" ? [switchAll()] : []));
  $("link").className = "";
  $("link").textContent = `${utc(head.wall_ms)} UTC`;
  const body = $("body");
  if (!body) return;
  const focused = document.activeElement?.closest?.("tr[data-key]");
  const place = focused ? [focused.closest("table").id, focused.dataset.key] : null;
  const scrolled = [...body.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  if (latest.row) Object.assign(latest.row, { changes: latest.changes });
  body.replaceChildren(...views[route.view](latest, route).filter(Boolean));
  body.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
  if (place) {
    document.querySelector(`#${place[0]} tr[data-key="${CSS.escape(place[1])}"]`)?.focus({ preventScroll: true });
  }
}

function switchAll() {
  const action = latest.head.mode.source === "run_time" ? ACTIONS.fileAll : ACTIONS.observeAll;
  return h("button", { type: "button", class: "small", onclick: () => act(action, latest.head.mode) }, action.label);
}

// ---- the session ---------------------------------------------------------------------------------------

async function begin() {
  try {
    session = await (await fetch("v1/session")).json();
    if (session.error) throw new Error(session.error);
  } catch (problem) {
    $("link").textContent = `Not live: ${problem.message}`;
    $("link").className = "bad";
    setTimeout(begin, RETRY_MS);
    return;
  }
  useSession(session, signIn);
  const sign = $("sign");
  sign.hidden = !session.has_session && (session.may_act || !session.is_writable);
  sign.textContent = session.has_session ? "Sign out" : "Sign in to act";
  sign.onclick = session.has_session ? signOut : signIn;
  if (session.may_read) listen();
  else signIn();
}

function signIn() {
  const dialog = $("dialog");
  if (dialog.open) return;
  const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true });
  const error = h("p", { class: "bad", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const answer = await fetch("v1/session", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: token.value }),
    }).catch(() => null);
    token.value = "";
    if (answer?.ok) {
      dialog.close();
      begin();
      return;
    }
    const told = answer ? await answer.json().catch(() => ({})) : { error: "The gateway does not answer." };
    error.textContent = told.error || "Not accepted.";
  };
  dialog.replaceChildren(h("form", { onsubmit: submit },
    h("h2", { id: "dialog-title" }, "Sign in"),
    h("p", { class: "detail" }, session.why_not),
    h("label", {}, "Token", token), error,
    h("p", { class: "buttons" }, h("button", { type: "submit" }, "Sign in"),
      session.may_read ? h("button", { type: "button", onclick: () => dialog.close() }, "Cancel") : "")));
  dialog.showModal();
}

async function signOut() {
  await fetch("v1/session", { method: "DELETE", headers: { "Content-Type": "application/json" } }).catch(() => null);
  source?.close();
  begin();
}

// ---- the keyboard --------------------------------------------------------------------------------------

function move(by) {
  const rows = [...document.querySelectorAll("tr[data-open]")];
  const at = rows.indexOf(document.activeElement);
  rows[Math.min(rows.length - 1, Math.max(0, at + by))]?.focus();
}

function sorted() {
  const sorts = route.view === "around" ? CONNECTION_SORTS : USER_SORTS;
  go({ sort: sorts[(sorts.indexOf(route.sort) + 1) % sorts.length] });
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
  if (event.target instanceof HTMLInputElement) {
    if (event.key === "Escape" || event.key === "Enter") event.target.blur();
    return;
  }
  const { key } = event;
  if (key === "Escape" && route.view !== "first") go({ view: "first", user: "", find: "", sort: "" });
  else if (key === "?") toast(KEYS[route.view]);
  else if (key === "j" || key === "ArrowDown") move(1);
  else if (key === "k" || key === "ArrowUp") move(-1);
  else if (key === "Enter" && event.target.dataset?.open) go({ view: "user", user: event.target.dataset.open, find: "", sort: "" });
  else if (key === "/" && $("find")) $("find").focus();
  else if (key === "s" && route.view !== "user") sorted();
  else if (key === "g" && route.view === "first") go({ view: "around", sort: "" });
  else if (key === "o" && route.view === "first") act(ACTIONS.observeAll, {});
  else if (route.view === "user" && latest) {
    if (key === "l") {
      const wait = latest.waits.rows.find((one) => one.producer_id !== null);
      if (wait) act(ACTIONS.release, wait);
      else toast("No id of this user waits.");
    } else {
      const action = Object.entries(ACTIONS).find(([name, { key: own }]) => own === key && !["observeAll", "fileAll", "release"].includes(name));
      if (!action) return;
      act(action[1], latest.row);
    }
  } else return;
  event.preventDefault();
}

document.addEventListener("keydown", pressed);
document.addEventListener("click", (event) => {
  const row = event.target.closest?.("tr[data-open]");
  if (row && !event.target.closest("a, button") && !String(getSelection())) go({ view: "user", user: row.dataset.open, find: "", sort: "" });
});
addEventListener("hashchange", opened);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else if (session?.may_read) listen();
});
opened();
begin();
