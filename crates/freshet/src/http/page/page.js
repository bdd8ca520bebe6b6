// Polls, and shows what comes, while the page can be seen.

/** So often, in milliseconds. */
const EVERY_MS = 1000;

class Page {
  constructor() {
    this.follower = new Follower();
    this.past = new Past();
    this.events = new Events();
    this.curves = CURVES.map((kind) => new Curve(kind));
    byId("curves").append(...this.curves.map(({ figure }) => figure));
    for (const curve of this.curves) curve.details.addEventListener("toggle", () => this.draw());
    this.before = null;
    this.lost = false;
    this.timer = null;
    this.isAsking = false;
    document.addEventListener("visibilitychange", () => this.wake());
    byId("follow").addEventListener("change", (event) => { this.follower.follows = event.target.checked; });
    byId("add").addEventListener("submit", (event) => this.add(event));
    this.showNodes();
    this.wake();
  }

  /** Polls at once, unless the page is hidden. */
  wake() {
    clearTimeout(this.timer);
    if (!document.hidden && !this.isAsking) this.poll();
  }

  async poll() {
    this.isAsking = true;
    const due = performance.now() + EVERY_MS;
    try {
      const { status } = await this.follower.next();
      this.show(status);
    } catch (cause) {
      this.showLost(cause);
    }
    this.showNodes();
    this.isAsking = false;
    if (!document.hidden) this.timer = setTimeout(() => this.poll(), Math.max(due - performance.now(), 50));
  }

  show(status) {
    if (this.before && (this.before.node !== status.node || this.before.role !== status.role)) this.past.clear();
    if (this.lost) this.events.add("A node answers again");
    this.lost = false;
    put(byId("lost"), "");
    document.querySelector("main").classList.remove("stale");
    this.events.compare(this.before, status);
    this.before = status;
    this.past.add(performance.now() / 1000, status);
    const asked = this.follower.current.replace("http://", "");
    put(byId("who"), `${text(status.role)} ${short(status.node)} at ${asked}, term ${text(status.term)}, cluster `
      + `${short(status.cluster)}, Freshet ${text(status.version)}, up ${as.time(seconds(status.uptime))}`);
    const state = text(status.verdict && status.verdict.state);
    if (document.title !== `${state}: ${text(status.role)} – Freshet`) {
      document.title = `${state}: ${text(status.role)} – Freshet`;
    }
    showVerdict(status);
    showTopology(status);
    showStandbys(status);
    showSessions(status);
    showMemory(status);
    showStatements(this.past.last().kinds);
    this.draw();
  }

  draw() {
    if (this.past.last()) this.curves.forEach((curve) => curve.show(this.past));
  }

  /** The node does not answer: what it has shown last stays, as such. */
  showLost(cause) {
    if (this.follower.failures < LOST_AFTER) return;
    if (!this.lost) this.events.add(`${this.follower.current} does not answer: ${text(cause && cause.message)}`);
    this.lost = true;
    const since = new Date(this.follower.since).toLocaleTimeString();
    put(byId("lost"), `Lost: ${this.follower.current} has not answered since ${since}`
      + `${this.follower.nodes.length > 1 ? ", and no other node does" : ""}. What stands below is old.`);
    document.title = "LOST – Freshet";
    document.querySelector("main").classList.add("stale");
  }

  showNodes() {
    const { nodes, current, roles } = this.follower;
    const shown = byId("nodes");
    while (shown.children.length > nodes.length) shown.lastElementChild.remove();
    nodes.forEach((node, place) => {
      let item = shown.children[place];
      if (!item) {
        item = element("li");
        const button = element("button", "Show");
        button.type = "button";
        button.addEventListener("click", () => this.choose(node));
        item.append(element("span"), " ", button);
        shown.append(item);
      }
      const is = roles.get(node);
      put(item.firstChild, `${node}: ${is === null ? "does not answer" : is || "not asked yet"}`
        + `${node === current ? ", shown" : ""}`);
      item.lastChild.setAttribute("aria-label", "Show " + node);
      item.lastChild.disabled = node === current;
    });
  }

  /** The user wants to see this node, whether it leads or not. */
  choose(node) {
    byId("follow").checked = false;
    this.follower.follows = false;
    this.follower.show(node);
    this.wake();
  }

  add(event) {
    event.preventDefault();
    try {
      this.follower.add(base(byId("address").value));
      this.follower.note();
      byId("address").value = "";
      put(byId("refused"), "");
    } catch (wrong) {
      put(byId("refused"), wrong.message);
    }
    this.showNodes();
  }
}

new Page();
