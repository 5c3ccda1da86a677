// What other rates would have refused of a user. Beside the live draws, which would take the focus from its field.

import { h, lasting, number } from "./dom.js";

const FACTORS = [0.5, 1, 2, 5];
const SOME = [10, 100, 1_000];

function ratesOf(text, row) {
  const typed = text.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (typed.length) return typed;
  return row?.rate ? FACTORS.map((factor) => Math.round(row.rate * factor * 1_000) / 1_000) : SOME;
}

function result(told) {
  const heads = ["Quota", "Refused ids", "Lost ids", "Lost requests", "Lost records", "Longest wait", "States per broker"];
  return [
    h("p", {}, `${told.recorded}.`, told.not_enough ? h("strong", { class: "bad" }, ` ${told.not_enough}.`) : null),
    h("div", { class: "scroll" }, h("table", { id: "what-if-rows", "aria-label": "What if" },
      h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col", class: "end" }, name)))),
      h("tbody", {}, told.rows.map((one) => h("tr", {}, [
        number(one.rate, 3), number(one.refused_ids), number(one.lost_ids), number(one.lost_requests), number(one.lost_records),
        one.longest_wait_ms ? lasting(one.longest_wait_ms) : "-", number(one.states_per_broker),
      ].map((text, at) => h("td", { class: "end", "data-name": heads[at] }, text))))))),
    h("p", { class: "detail" }, "Refused: at first. Lost: ids whose clients give up after 120 s, with their requests and records. States: ids times partitions, three replicas each."),
  ];
}

// `latest` returns the newest draw of the user.
export function whatIf(user, latest) {
  const field = h("input", { name: "rates", placeholder: "half, same, twice, five times", autocomplete: "off", inputmode: "decimal" });
  const shown = h("div", { id: "what-if-result", role: "status" });
  const button = h("button", { type: "submit" }, "Replay the last day");
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    shown.replaceChildren("Replaying, for 10 s at most.");
    try {
      const body = JSON.stringify({ user, rates: ratesOf(field.value, latest()?.row) });
      const answer = await fetch("v1/what-if", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      const told = await answer.json();
      shown.replaceChildren(...(answer.ok ? result(told) : [h("p", { class: "bad" }, told.error)]));
    } catch {
      shown.replaceChildren(h("p", { class: "bad" }, "The gateway does not answer."));
    }
    button.disabled = false;
  };
  return h("section", { id: "what-if" }, h("h2", {}, "If its quota were"),
    h("form", { onsubmit: submit, class: "buttons" }, h("label", {}, "New ids per window ", field), button), shown);
}
