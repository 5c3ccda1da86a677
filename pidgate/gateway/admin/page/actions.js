// Actions: each is checked first, which shows its command, what it does and when; then it is done, and can be undone.

import { h } from "./dom.js";

const state = { session: { may_act: false, is_writable: false, why_not: "" }, askToSignIn: null };

export function useSession(session, askToSignIn) {
  Object.assign(state, { session, askToSignIn });
}

const FOR = { name: "for", label: "For how long", value: "2h" };
const NOTE = { name: "note", label: "Note, for your colleagues", value: "" };

function change(user, fields, values) {
  const lasts = values.for ? { for: values.for } : {};
  return { changes: [{ user, note: values.note || "", ...fields, ...lasts }] };
}

export const ACTIONS = {
  raise: {
    key: "r", label: "Raise", path: "v1/quotas/changes",
    title: (it) => `Raise the quota of ${it.name}`,
    fields: (it) => [{ name: "rate", label: "New ids per window", value: String(Math.max(10, 10 * (it.rate || 0))) }, FOR, NOTE],
    body: (it, values) => change(it.user, { setting: "producer_ids_rate", action: "set", value: Number(values.rate) }, values),
  },
  block: {
    key: "b", label: "Block new ids", path: "v1/quotas/changes",
    title: (it) => `Refuse every new producer id of ${it.name}`,
    fields: () => [FOR, NOTE],
    body: (it, values) => change(it.user, { setting: "producer_ids_rate", action: "set", value: 0 }, values),
  },
  observe: {
    key: "o", label: "Observe only", path: "v1/quotas/changes",
    title: (it) => `Refuse nothing of ${it.name}`,
    fields: () => [FOR, NOTE],
    body: (it, values) => change(it.user, { setting: "mode", action: "set", value: "observe" }, values),
  },
  enforce: {
    key: "e", label: "Enforce", path: "v1/quotas/changes",
    title: (it) => `Enforce the quota of ${it.name}`,
    fields: () => [{ ...FOR, value: "", label: "For how long (empty: for good)" }, NOTE],
    body: (it, values) => change(it.user, { setting: "mode", action: "set", value: "enforce" }, values),
  },
  grace: {
    key: "g", label: "Grace", path: "v1/quotas/changes",
    title: (it) => `Admit new ids of ${it.name} uncharged, up to ten times its rate`,
    fields: () => [{ ...FOR, value: "1h" }, NOTE],
    body: (it, values) => change(it.user, { setting: "grace", action: "set", value: 10 }, values),
  },
  refill: {
    key: "f", label: "Refill", path: "v1/commands",
    title: (it) => `Fill the bucket of ${it.name}`,
    fields: () => [],
    body: (it) => ({ deed: "refill", user: it.user }),
  },
  release: {
    key: "l", label: "Release", path: "v1/commands",
    title: (it) => `Admit producer id ${it.producer_id} of ${it.name}`,
    fields: () => [],
    body: (it) => ({ deed: "release", user: it.user, producer_id: it.producer_id }),
  },
  reset: {
    key: "x", label: "Back to the file", path: "v1/quotas/changes",
    title: (it) => `Let the file hold again for ${it.name}`,
    fields: () => [],
    body: (it) => ({
      changes: it.changes.map(({ setting, user, temporary }) => ({ setting, user, temporary, action: "reset" })),
    }),
    cannot: (it) => it.changes.length ? "" : "Nothing of this user was set at run time: the file holds.",
  },
  observeAll: {
    key: "o", label: "Observe ALL", path: "v1/quotas/changes",
    title: () => "Refuse nothing of any user: the emergency switch",
    fields: () => [{ ...FOR, value: "" , label: "For how long (empty: until it is undone)" }, NOTE],
    body: (_it, values) => change(null, { setting: "mode", action: "set", value: "observe" }, values),
  },
  fileAll: {
    key: "o", label: "End observe ALL", path: "v1/quotas/changes",
    title: () => "Let the modes of the file hold again for every user",
    fields: () => [],
    body: (mode) => ({ changes: [{ setting: "mode", user: null, action: "reset", temporary: mode.until_wall_ms !== null }] }),
  },
};

async function post(path, body) {
  let answer;
  try {
    answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new Error("The gateway does not answer.");
  }
  const told = await answer.json().catch(() => ({ error: `The gateway answers ${answer.status}.` }));
  if (!answer.ok) throw new Error([told.error, ...(told.problems || [])].filter(Boolean).join(": "));
  return told;
}

export function act(action, it) {
  const dialog = document.getElementById("dialog");
  if (dialog.open) return;
  if (!state.session.may_act) {
    showRefusal(dialog, action.title(it));
    return;
  }
  const why = action.cannot ? action.cannot(it) : "";
  if (why) {
    toast(why);
    return;
  }
  const fields = action.fields(it);
  const inputs = Object.fromEntries(fields.map((field) => [field.name, h("input", { name: field.name, value: field.value, autocomplete: "off" })]));
  const values = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
  const command = h("code", { id: "command" });
  const says = h("ul", { id: "says" });
  const error = h("p", { class: "bad", role: "alert" });
  const doIt = h("button", { type: "submit", id: "do", disabled: true }, "Do it");

  let asked = 0;
  async function check() {
    const number = ++asked;
    doIt.disabled = true;
    try {
      const told = await post(action.path, { ...action.body(it, values()), only_check: true });
      if (number !== asked) return;
      command.textContent = told.command;
      const acts = `Acts on ${told.gateways} ${told.gateways === 1 ? "gateway" : "gateways"}.`;
      says.replaceChildren(...[...told.says, acts].map((line) => h("li", {}, line)));
      error.textContent = "";
      doIt.disabled = false;
    } catch (problem) {
      if (number !== asked) return;
      command.textContent = "";
      says.replaceChildren();
      error.textContent = problem.message;
    }
  }

  async function submit(event) {
    event.preventDefault();
    if (doIt.disabled) return;
    doIt.disabled = true;
    try {
      const told = await post(action.path, action.body(it, values()));
      dialog.close();
      const kept = told.kept === "topic" ? "every gateway has it" : "only this gateway has it";
      toast(`Done: ${told.command} (${kept})`, told.undo ? () => undo(told.undo) : null);
    } catch (problem) {
      error.textContent = problem.message;
      doIt.disabled = false;
    }
  }

  dialog.replaceChildren(h("form", { onsubmit: submit, oninput: check },
    h("h2", { id: "dialog-title" }, action.title(it)),
    fields.map((field) => h("label", {}, field.label, inputs[field.name])),
    h("p", { class: "detail" }, "The same as"), h("p", {}, command), says, error,
    h("p", { class: "buttons" }, doIt, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  dialog.showModal();
  check();
}

function showRefusal(dialog, title) {
  const { why_not: why, is_writable: writable } = state.session;
  dialog.replaceChildren(
    h("h2", { id: "dialog-title" }, title),
    h("p", { role: "alert" }, why || "Not allowed."),
    h("p", { class: "buttons" },
      writable ? h("button", { type: "button", onclick: () => { dialog.close(); state.askToSignIn(); } }, "Sign in") : null,
      h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
}

async function undo(body) {
  try {
    const told = await post("v1/quotas/changes", body);
    toast(`Undone: ${told.says[0]}`);
  } catch (problem) {
    toast(`Not undone: ${problem.message}`);
  }
}

let hides = 0;

export function toast(text, onUndo = null) {
  const element = document.getElementById("toast");
  element.replaceChildren(h("span", {}, text),
    onUndo ? h("button", { type: "button", id: "undo", onclick: onUndo }, "Undo") : null || "",
    h("button", { type: "button", "aria-label": "Close", onclick: () => { element.hidden = true; } }, "×"));
  element.hidden = false;
  clearTimeout(hides);
  hides = setTimeout(() => { element.hidden = true; }, onUndo ? 60_000 : 15_000);
}
