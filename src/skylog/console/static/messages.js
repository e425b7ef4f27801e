// Follows a topic or shows a search. Rows come from an event stream, rendered and escaped by the server.
"use strict";

(() => {
  const rows = document.getElementById("rows");
  if (!rows) return;
  const state = document.getElementById("state");
  const setState = (text) => { if (state.textContent !== text) state.textContent = text; };
  const number = (value) => Math.round(value).toLocaleString("en");

  if (rows.dataset.stream === "follow") follow(); else search();

  function follow() {
    const limit = Number(rows.dataset.limit);
    const pause = document.getElementById("pause");
    const counts = document.getElementById("counts");
    let shown = 0, skipped = 0, held = [], stream, problem = "";

    function show(html) {
      const piece = document.createElement("tbody");
      piece.innerHTML = html;
      for (const row of piece.querySelectorAll("tr")) { row.classList.add("fresh"); rows.prepend(row); }
      while (rows.children.length > limit) rows.lastElementChild.remove();
    }
    function count() {
      counts.textContent = `${number(shown)} shown` + (skipped ? `, ${number(skipped)} skipped because of the rate limit` : "") + ".";
    }
    const isPaused = () => pause.getAttribute("aria-pressed") === "true";
    const updateState = () => setState(problem || (isPaused() ? "paused; keeps the last 200 new messages" : "live"));
    function open() {
      stream = new EventSource(location.href);
      stream.addEventListener("open", () => { problem = ""; updateState(); });
      stream.addEventListener("unreachable", (event) => { problem = event.data; updateState(); });
      stream.addEventListener("live", () => { problem = ""; updateState(); });
      stream.addEventListener("rows", (event) => {
        if (isPaused()) held = [...held, event.data].slice(-limit); else show(event.data);
      });
      stream.addEventListener("count", (event) => {
        const counted = JSON.parse(event.data);
        shown += counted.shown;
        skipped += counted.skipped;
        count();
      });
      stream.addEventListener("problem", (event) => { stream.close(); setState(event.data); });
      stream.onerror = () => setState(stream.readyState === EventSource.CLOSED ? "ended; reload the page" : "reconnecting …");
    }
    pause.addEventListener("click", () => {
      pause.setAttribute("aria-pressed", String(!isPaused()));
      pause.textContent = isPaused() ? "Resume" : "Pause";
      updateState();
      if (!isPaused()) { held.forEach(show); held = []; }
    });
    addEventListener("pagehide", () => stream.close());
    open();
  }

  function search() {
    const bar = document.getElementById("progress");
    const stop = document.getElementById("stop");
    const outcome = document.getElementById("outcome");
    const stream = new EventSource(location.href);
    let latest = { scanned: 0, total: Number(bar.max), matches: 0, elapsed_s: 0, messages_per_s: 0, is_complete: false };

    function describe(how) {
      bar.max = Math.max(latest.total, 1);
      bar.value = latest.scanned;
      return `${how}: ${number(latest.matches)} found in ${number(latest.scanned)} of ${number(latest.total)} messages, ${number(latest.messages_per_s)}/s`;
    }
    // Screen readers announce only the outcome, not every update.
    function end(how) {
      stream.close();
      stop.disabled = true;
      state.textContent = "";
      outcome.textContent = describe(how);
    }
    stream.addEventListener("rows", (event) => rows.insertAdjacentHTML("beforeend", event.data));
    stream.addEventListener("progress", (event) => { latest = JSON.parse(event.data); setState(describe("searching")); });
    stream.addEventListener("end", (event) => {
      latest = JSON.parse(event.data);
      end(latest.is_complete ? "done" : "limit reached");
    });
    stream.addEventListener("problem", (event) => { end("failed"); outcome.textContent += `. ${event.data}`; });
    stream.onerror = () => end("interrupted");
    stop.addEventListener("click", () => end("stopped"));
    addEventListener("pagehide", () => stream.close());
  }
})();
