// Optional script: pages work without it. Refreshes the elements marked `data-live` and remembers the theme.
"use strict";

(() => {
  const root = document.documentElement;
  try {
    const saved = localStorage.getItem("theme");
    if (saved === "dark" || saved === "light") root.dataset.theme = saved;
  } catch { /* storage may be blocked */ }

  document.getElementById("theme")?.addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* storage may be blocked */ }
  });

  // Times are in UTC, or local if the visitor chooses that. Fields of forms are sent in UTC.
  const zone = document.getElementById("zone");
  let isLocal = false;
  try { isLocal = localStorage.getItem("zone") === "local"; } catch { /* storage may be blocked */ }
  const pad = (number, length = 2) => String(number).padStart(length, "0");
  const local = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
  const inUtc = (date) => date.toISOString().replace("T", " ").slice(0, -1);
  const naive = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?$/;
  function showTimes(part) {
    for (const each of part.querySelectorAll("time")) {
      const date = new Date(each.dateTime);
      const text = (isLocal ? local(date) : inUtc(date)).slice(0, Number(each.dataset.length));
      if (each.textContent !== text) each.textContent = text;
    }
    for (const each of part.querySelectorAll(".zone")) each.textContent = isLocal ? "local time" : "UTC";
  }
  function showZone() {
    zone.setAttribute("aria-pressed", String(isLocal));
    showTimes(document);
  }
  if (zone) {
    zone.hidden = false;
    zone.addEventListener("click", () => {
      isLocal = !isLocal;
      try { localStorage.setItem("zone", isLocal ? "local" : "utc"); } catch { /* storage may be blocked */ }
      showZone();
      for (const field of document.querySelectorAll("[data-time]")) {
        if (!naive.test(field.value)) continue;
        field.value = isLocal ? local(new Date(`${field.value.replace(" ", "T")}Z`)) : inUtc(new Date(field.value));
      }
    });
    showZone();
    if (isLocal) {
      for (const field of document.querySelectorAll("[data-time]")) {
        if (naive.test(field.value)) field.value = local(new Date(`${field.value.replace(" ", "T")}Z`));
      }
      new MutationObserver((changes) => {
        for (const change of changes) for (const node of change.addedNodes) if (node.nodeType === 1) showTimes(node);
      }).observe(document.querySelector("main"), { childList: true, subtree: true });
    }
  }
  document.addEventListener("formdata", (event) => {
    for (const field of isLocal ? event.target.querySelectorAll("[data-time]") : []) {
      if (naive.test(field.value)) event.formData.set(field.name, new Date(field.value).toISOString());
    }
  });

  // A button with `data-copy` copies what is at that address, such as the value of a message, as it is stored.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const label = button.textContent;
    try {
      const response = await fetch(button.dataset.copy);
      if (!response.ok) throw new Error(response.statusText);
      await navigator.clipboard.writeText(await response.text());
      button.textContent = "Copied";
    } catch { button.textContent = "Cannot copy"; }
    setTimeout(() => { button.textContent = label; }, 2000);
  });

  const again = document.getElementById("again");
  if (again && location.hash === "#again") again.open = true;

  // A form with `data-confirm` asks for confirmation.
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });

  // A form with `data-filter` takes effect while the visitor types. The server filters, so that all pages of the list count.
  for (const form of document.querySelectorAll("form[data-filter]")) {
    let timer;
    const apply = () => {
      const fields = [...new FormData(form)].filter(([, value]) => value !== "");
      history.replaceState(null, "", `${form.getAttribute("action")}?${new URLSearchParams(fields)}`);
      refresh().catch(() => setStale("the console does not respond"));
    };
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(apply, 150); });
    form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); apply(); });
  }

  // An input with `data-filter-rows` hides the rows of a table on the page that do not have its text.
  for (const input of document.querySelectorAll("[data-filter-rows]")) {
    input.addEventListener("input", () => {
      const text = input.value.toLowerCase();
      for (const row of document.getElementById(input.dataset.filterRows).rows) row.hidden = !row.textContent.toLowerCase().includes(text);
    });
  }

  // Tables with `data-sortable` are on the page as a whole. They sort here, and again after each update.
  const orders = new Map();
  function arrangeTables() {
    document.querySelectorAll("table[data-sortable]").forEach((table, number) => {
      for (const head of table.tHead.rows[0].cells) {
        if (head.firstElementChild || !head.textContent.trim()) continue;
        const button = document.createElement("button");
        button.type = "button";
        button.className = "sort";
        button.append(...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => {
          const known = orders.get(number), column = head.cellIndex;
          const isDown = known?.column === column ? !known.isDown : head.classList.contains("n");
          orders.set(number, { column, isDown });
          arrangeTables();
        });
      }
      const order = orders.get(number);
      if (!order) return;
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        if (column === order.column) head.ariaSort = order.isDown ? "descending" : "ascending"; else head.removeAttribute("aria-sort");
      });
      const value = (row) => row.cells[order.column].dataset.value ?? row.cells[order.column].textContent.trim();
      const number_ = (text) => Number(text.replaceAll(",", ""));
      const isNumber = (text) => text !== "" && Number.isFinite(number_(text));
      const compare = (a, b) => isNumber(a) && isNumber(b) ? number_(a) - number_(b) : a.localeCompare(b, "en", { numeric: true });
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(value(a), value(b)) * (order.isDown ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  }

  // Load the page again and replace the marked elements, except one in which the visitor types or has selected text.
  const REFRESH_MS = 3000;
  const PATIENCE_MS = 12000;
  let updatedAt = Date.now();
  const isBusy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")
    || (!getSelection().isCollapsed && part.contains(getSelection().anchorNode));

  async function refresh() {
    const asked = location.href;
    const response = await fetch(asked, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(PATIENCE_MS) });
    if (response.redirected) { location.href = response.url; return; }
    if (!response.ok) throw new Error(response.status === 503 ? "the cluster does not respond" : `the console answers ${response.status}`);
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    if (location.href !== asked) return;
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = part.id && fresh.getElementById(part.id);
      part.toggleAttribute("data-paused", Boolean(other) && isBusy(part));
      if (!other || isBusy(part) || part.innerHTML === other.innerHTML) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      part.replaceChildren(...other.childNodes);
      if (focused) part.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
    }
    arrangeTables();
    updatedAt = Date.now();
    document.body.classList.remove("stale");
    notice.hidden = true;
  }

  // What a page shows is out of date when updates fail. It says so, and takes back its verdicts.
  const notice = document.getElementById("stale");
  function setStale(reason) {
    const since = new Date(updatedAt).toISOString().slice(11, 19);
    const text = `No updates since ${since} UTC: ${reason}. This page is out of date.`;
    if (notice.textContent !== text) notice.textContent = text;
    notice.hidden = false;
    document.body.classList.add("stale");
    for (const tag of document.querySelectorAll("[data-verdict]")) {
      tag.textContent = "out of date";
      tag.className = "tag";
      tag.parentElement.className = "unknown";
    }
  }

  async function keepFresh() {
    for (;;) {
      await new Promise((resume) => setTimeout(resume, REFRESH_MS));
      while (document.hidden) await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
      try { await refresh(); } catch (error) { setStale(error.name === "Error" ? error.message : "the console does not respond"); }
    }
  }
  arrangeTables();
  if (document.querySelector("main [data-live]:not(#problem)")) keepFresh();
})();
