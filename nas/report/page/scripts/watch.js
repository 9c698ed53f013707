// A page that `nas watch --web` serves takes itself anew when its run has changed; a file never does.

/** Ask again and again whether the run has changed. What is looked at is in the address, and stays. */
function watch() {
  const { stamp, pause } = document.documentElement.dataset;
  if (!stamp) return;
  const said = html("p", { class: "watched", role: "status" }, "watched");
  document.querySelector("header.top").append(said);
  if (history.state?.top) scrollTo({ top: history.state.top, behavior: "instant" });
  history.replaceState(null, "");
  let isHeld = false;
  addEventListener("pointerdown", () => (isHeld = true));
  addEventListener("pointerup", () => (isHeld = false));
  const isBusy = () => isHeld || document.activeElement?.matches("input[type=search]") || !getSelection().isCollapsed;

  async function look() {
    const answer = await ask(stamp);
    if (answer === 200 && !isBusy()) {
      history.replaceState({ top: scrollY }, "");
      location.reload();
      return;
    }
    said.textContent = { 200: "newer results come when you let go", 304: "watched" }[answer] ?? "no longer watched: its server is gone";
    setTimeout(look, 1000 * pause);
  }
  setTimeout(look, 1000 * pause);
}

/** The status of an answer: 304 while the stamp is right, 200 when there is another; 0 of none. */
async function ask(stamp) {
  const headers = { "If-None-Match": `"${stamp}"` };
  try {
    return (await fetch(location.pathname, { method: "HEAD", headers })).status;
  } catch {
    return 0;
  }
}
