// A page that `nas watch --web` serves reloads when its run has changed. A file does not.

/** Check regularly whether the run has changed. The address keeps the state over a reload. */
function watch() {
  const { token, pause } = document.documentElement.dataset;
  if (!token) return;
  const said = html("p", { class: "watched", role: "status" }, "watched");
  document.querySelector("header.top").append(said);
  if (history.state?.top) scrollTo({ top: history.state.top, behavior: "instant" });
  history.replaceState(null, "");
  let isHeld = false;
  addEventListener("pointerdown", () => (isHeld = true));
  addEventListener("pointerup", () => (isHeld = false));
  const isBusy = () => isHeld || document.activeElement?.matches("input[type=search]") || !getSelection().isCollapsed;

  async function look() {
    // 304 while the run is unchanged, 200 when it has changed.
    const question = fetch(location.pathname, { method: "HEAD", headers: { "If-None-Match": `"${token}"` } });
    const { status } = await question.catch(() => ({ status: 0 }));
    if (status === 200 && !isBusy()) {
      history.replaceState({ top: scrollY }, "");
      location.reload();
      return;
    }
    said.textContent = { 200: "newer results appear when you stop typing or selecting", 304: "watched" }[status] ?? "no longer watched: the server has ended";
    setTimeout(look, 1000 * pause);
  }
  setTimeout(look, 1000 * pause);
}
