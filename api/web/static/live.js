// Keeps the page up to date: when the ledger has something new, the page is fetched again and its parts are put in the
// place of the old ones. Without this script the page is the same, and a reload does it.
"use strict";

const LEAST_MS = 1500; // between two fetches
const line = document.getElementById("line");
let shown = Number(document.body.dataset.revision);
let wanted = shown;
let busy = false;

function say(text) {
  if (line && line.textContent !== text) line.textContent = text;
}

function opened(part) {
  return [...part.querySelectorAll("details[open]")].map((one) => one.id);
}

function replace(fresh) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = fresh.getElementById(part.id);
    if (!other || other.outerHTML === part.outerHTML) continue;
    const held = part.contains(document.activeElement) ? document.activeElement.id : "";
    for (const id of opened(part)) {
      const details = fresh.getElementById(id);
      if (details) details.open = true;
    }
    if (other.isEqualNode(part)) continue;
    part.replaceWith(document.importNode(other, true));
    if (held) document.getElementById(held)?.focus({ preventScroll: true });
  }
}

async function refresh() {
  if (busy || wanted === shown) return;
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") {
      location.assign("/login");
      return;
    }
    if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parts = document.querySelectorAll("[data-part]").length;
      if (fresh.querySelectorAll("[data-part]").length !== parts) {
        location.reload(); // there is something now where there was nothing
        return;
      }
      replace(fresh);
      shown = Number(fresh.body.dataset.revision);
      say("live");
    }
  } catch {
    say("not reached; trying again");
  }
  setTimeout(() => {
    busy = false;
    refresh();
  }, LEAST_MS);
}

const events = new EventSource("/v1/events");
events.addEventListener("open", () => say("live"));
events.addEventListener("error", () => say("not reached; trying again"));
events.addEventListener("unavailable", () => say("the ledger cannot be read now"));
events.addEventListener("revision", (event) => {
  wanted = Math.max(wanted, Number(event.lastEventId));
  refresh();
});
addEventListener("pagehide", () => events.close());
