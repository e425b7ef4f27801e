// Light script: pages work without it. It keeps the parts marked `data-live` up to date and remembers the theme.
"use strict";

(() => {
  const root = document.documentElement;
  try {
    const saved = localStorage.getItem("theme");
    if (saved === "dark" || saved === "light") root.dataset.theme = saved;
  } catch { /* a browser may forbid storage */ }

  document.getElementById("theme")?.addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* the same */ }
  });

  // A form with `data-confirm` asks first.
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });

  // Ask for this page again and take over what is marked, unless somebody is typing or has selected text in it.
  const REFRESH_MS = 3000;
  const isBusy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")
    || (!getSelection().isCollapsed && part.contains(getSelection().anchorNode));

  async function refresh() {
    if (document.hidden) return;
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    if (response.redirected) { location.href = response.url; return; }
    if (!response.ok) throw new Error(response.statusText);
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = part.id && fresh.getElementById(part.id);
      if (!other || isBusy(part) || part.innerHTML === other.innerHTML) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      part.replaceChildren(...other.childNodes);
      if (focused) part.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
    }
    document.body.classList.remove("stale");
  }

  async function keepFresh() {
    for (;;) {
      await new Promise((resume) => setTimeout(resume, REFRESH_MS));
      try { await refresh(); } catch { document.body.classList.add("stale"); }
    }
  }
  if (document.querySelector("[data-live]")) keepFresh();
})();
