// Follows a topic or shows a search: takes rows, drawn and escaped by the server, from a stream of events.
"use strict";

(() => {
  const rows = document.getElementById("rows");
  if (!rows) return;
  const state = document.getElementById("state");
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  const number = (value) => Math.round(value).toLocaleString("en");

  if (rows.dataset.stream === "follow") follow(); else search();

  function follow() {
    const limit = Number(rows.dataset.limit);
    const pause = document.getElementById("pause");
    const counts = document.getElementById("counts");
    let shown = 0, skipped = 0, held = [], stream, away = "";

    function show(html) {
      const piece = document.createElement("tbody");
      piece.innerHTML = html;
      for (const row of piece.querySelectorAll("tr")) { row.classList.add("fresh"); rows.prepend(row); }
      while (rows.children.length > limit) rows.lastElementChild.remove();
    }
    function count() {
      counts.textContent = `${number(shown)} shown` + (skipped ? `, ${number(skipped)} left out because they came too fast` : "") + ".";
    }
    const isPaused = () => pause.getAttribute("aria-pressed") === "true";
    const tell = () => say(away || (isPaused() ? "paused; what comes is kept, the last 200" : "live"));
    function open() {
      stream = new EventSource(location.href);
      stream.addEventListener("open", () => { away = ""; tell(); });
      stream.addEventListener("away", (event) => { away = event.data; tell(); });
      stream.addEventListener("live", () => { away = ""; tell(); });
      stream.addEventListener("rows", (event) => {
        if (isPaused()) held = [...held, event.data].slice(-limit); else show(event.data);
      });
      stream.addEventListener("count", (event) => {
        const news = JSON.parse(event.data);
        shown += news.shown;
        skipped += news.skipped;
        count();
      });
      stream.addEventListener("problem", (event) => { stream.close(); say(event.data); });
      stream.onerror = () => say(stream.readyState === EventSource.CLOSED ? "ended; load the page again" : "connecting again …");
    }
    pause.addEventListener("click", () => {
      pause.setAttribute("aria-pressed", String(!isPaused()));
      pause.textContent = isPaused() ? "Resume" : "Pause";
      tell();
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

    function tell(how) {
      bar.max = Math.max(latest.total, 1);
      bar.value = latest.scanned;
      return `${how}: ${number(latest.matches)} found in ${number(latest.scanned)} of ${number(latest.total)} messages, ${number(latest.messages_per_s)}/s`;
    }
    // What changes all the time is for the eye; a screen reader is told the end.
    function end(how) {
      stream.close();
      stop.disabled = true;
      state.textContent = "";
      outcome.textContent = tell(how);
    }
    stream.addEventListener("rows", (event) => rows.insertAdjacentHTML("beforeend", event.data));
    stream.addEventListener("progress", (event) => { latest = JSON.parse(event.data); say(tell("searching")); });
    stream.addEventListener("end", (event) => {
      latest = JSON.parse(event.data);
      end(latest.is_complete ? "done" : "enough found");
    });
    stream.addEventListener("problem", (event) => { end("failed"); outcome.textContent += `. ${event.data}`; });
    stream.onerror = () => end("broken off");
    stop.addEventListener("click", () => end("stopped"));
    addEventListener("pagehide", () => stream.close());
  }
})();
