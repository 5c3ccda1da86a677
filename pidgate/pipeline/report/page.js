// The page's own script: draws charts when they come into sight, in the colours of day or night; shows one user's
// page at a time; filters the table of users. Without it everything is still there to read, except the charts.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent).charts;
  const night = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");

  // Charts

  // "--series-1" -> the colour that the style gives this name now.
  function coloured(value, style) {
    if (typeof value === "string") return value.startsWith("--") ? style.getPropertyValue(value).trim() : value;
    if (Array.isArray(value)) return value.length && typeof value[0] === "number" ? value : value.map((one) => coloured(one, style));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, textual.has(key) ? one : coloured(one, style)]));
    return value;
  }
  // Names stand in these: one of them might look like a colour's.
  const textual = new Set(["name", "text", "hovertemplate"]);

  function draw(place) {
    const chart = charts[Number(place.dataset.chart)];
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const layout = coloured(chart.layout, style);
    Object.assign(layout, {
      autosize: true,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: 8, t: 8, b: 8 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", itemsizing: "constant" },
      showlegend: chart.data.length > 1,
      hoverlabel: { bgcolor: style.getPropertyValue("--card").trim(), font: { color: ink } },
      hovermode: layout.xaxis && layout.xaxis.type === "date" ? "x unified" : "closest",
      dragmode: false,
    });
    if (narrow.matches && layout.yaxis) layout.yaxis.title = undefined;
    // There the legend has a line for each name, which must not be taken from the plot.
    const names = narrow.matches && chart.data.length > 2 ? chart.data.length : 0;
    place.style.height = `${(chart.layout.height || 300) + 18 * names}px`;
    delete layout.height;
    return Plotly.react(place, coloured(chart.data, style), layout, { displayModeBar: false, responsive: true });
  }

  const insight = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        insight.unobserve(entry.target);
        draw(entry.target).then(() => entry.target.classList.add("drawn"));
      }
    },
    { rootMargin: "400px" },
  );
  for (const place of document.querySelectorAll("[data-chart]")) insight.observe(place);

  function drawAgain() {
    for (const place of document.querySelectorAll(".drawn")) draw(place);
  }
  night.addEventListener("change", drawAgain);
  narrow.addEventListener("change", drawAgain);

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
})();
