// The page's own script: shows the values of a chart below the pointer and one user's page at a time, filters the table
// of users, and saves tables as CSV. Without it everything is still there to read.
"use strict";
(() => {
  // Values of charts

  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.hidden = true;
  for (const chart of document.querySelectorAll(".chart")) {
    const plot = chart.querySelector(".plot");
    const { start, step, steps } = chart.dataset;
    const [names, values] = [JSON.parse(chart.dataset.names), JSON.parse(chart.dataset.values)];
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const at = Math.min(steps - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * steps)));
      const time = new Date(Number(start) + at * step).toISOString().slice(0, 16).replace("T", " ");
      const lines = names.map((name, n) => [name, values[n][at]]).filter(([, value]) => value || names.length === 1);
      tip.textContent = [`${time} UTC`, ...lines.map(([name, value]) => `${name}: ${value.toLocaleString("en")}`)].join("\n");
      tip.hidden = false;
      tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${event.clientY + 14}px`;
    });
    plot.addEventListener("pointerleave", () => (tip.hidden = true));
  }

  // One user's page, or the report

  const report = document.getElementById("report");
  const picker = document.getElementById("picker");
  const users = [...document.querySelectorAll("section.user")];

  function show() {
    const wanted = location.hash.slice(1);
    const user = users.find((one) => one.id === wanted);
    for (const one of users) one.hidden = one !== user;
    report.hidden = Boolean(user);
    if (picker) picker.value = user ? wanted : "";
    const place = user || document.getElementById(wanted);
    if (place) place.scrollIntoView();
    for (const link of document.querySelectorAll("nav a"))
      link.toggleAttribute("aria-current", !user && link.hash === location.hash);
  }
  addEventListener("hashchange", show);
  if (picker) picker.addEventListener("change", () => (location.hash = picker.value || "findings"));
  show();

  // The table of users

  const search = document.getElementById("search");
  if (search) {
    const rows = [...document.querySelectorAll("#all-users tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
    const hits = document.getElementById("hits");
    const find = () => {
      const wanted = search.value.trim().toLowerCase();
      let found = 0;
      for (const [row, text] of rows) {
        row.hidden = !text.includes(wanted);
        found += row.hidden ? 0 : 1;
      }
      hits.textContent = `${found.toLocaleString("en")} of ${rows.length.toLocaleString("en")} users`;
    };
    search.addEventListener("input", find);
    find();
  }

  // Tables as CSV

  function cell(one) {
    let text = one.textContent.trim().replace(/\s+/g, " ");
    if (/^-?[\d,]+(\.\d+)?$/.test(text)) text = text.replaceAll(",", "");
    // A program for tables would run it as a formula.
    else if (/^[=+\-@]./.test(text)) text = `'${text}`;
    return `"${text.replaceAll('"', '""')}"`;
  }

  for (const region of document.querySelectorAll(".table")) {
    const button = document.createElement("button");
    button.textContent = "CSV";
    button.className = "csv";
    button.title = `Save as CSV: ${region.getAttribute("aria-label")}`;
    button.addEventListener("click", () => {
      const rows = [...region.querySelectorAll("tr")].filter((row) => !row.hidden);
      const text = rows.map((row) => [...row.cells].map(cell).join(",")).join("\r\n");
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([`${text}\r\n`], { type: "text/csv" }));
      link.download = `${region.getAttribute("aria-label").toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
    region.before(button);
  }
})();
