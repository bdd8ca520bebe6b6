// Which nodes the page can ask, and which one it shows.

/** A node has this long to answer, in milliseconds. */
const PATIENCE_MS = 2000;
/** After this many attempts without an answer the page looks at other nodes. */
const LOST_AFTER = 2;
/** Where the node that is shown does not lead, others are asked after this many answers. */
const LOOK_EVERY = 3;

/**
 * The base of a node's HTTP port as people write it: a port, a host and a port, a URL, or a path
 * behind the proxy of this page.
 */
function base(written) {
  const named = written.trim().replace(/\/+$/, "");
  const full = /^\d+$/.test(named) ? "http://127.0.0.1:" + named
    : named.startsWith("/") || /^https?:\/\//.test(named) ? named : "http://" + named;
  const url = new URL(full, location.origin);
  const isNear = url.protocol === "http:" && ["127.0.0.1", "localhost"].includes(url.hostname);
  if (url.origin !== location.origin && !isNear) {
    throw new Error("only ports of this machine are asked (127.0.0.1 or localhost): make a tunnel to others");
  }
  return url.origin + url.pathname.replace(/\/+$/, "");
}

class Follower {
  constructor() {
    this.nodes = [];
    this.current = location.origin;
    this.cluster = null;
    this.failures = 0;
    this.since = null;
    this.answers = 0;
    this.follows = true;
    /** What each was when it answered last. */
    this.roles = new Map();
    this.add(this.current);
    for (const written of decodeURIComponent(location.hash.slice(1)).split(",").filter(Boolean)) {
      try {
        this.add(base(written));
      } catch (wrong) {
        put(byId("refused"), `${written}: ${wrong.message}`);
      }
    }
  }

  add(node) {
    if (!this.nodes.includes(node)) this.nodes.push(node);
  }

  /** Notes the nodes in the page's address, so that a bookmark has them. */
  note() {
    const others = this.nodes.filter((node) => node !== location.origin).map((node) => node.replace("http://", ""));
    history.replaceState(null, "", others.length ? "#" + others.join(",") : location.pathname);
  }

  async ask(node) {
    const ends = new AbortController();
    const timer = setTimeout(() => ends.abort(), PATIENCE_MS);
    try {
      const answer = await fetch(node + "/page.json", { signal: ends.signal, cache: "no-store", credentials: "omit" });
      if (!answer.ok) throw new Error((await answer.text()).slice(0, 300));
      const status = await answer.json();
      if (!status || typeof status !== "object") throw new Error("its answer is no status");
      const isOther = this.cluster && status.cluster && status.cluster !== this.cluster;
      if (isOther) throw new Error("it is of another cluster");
      this.roles.set(node, status.role);
      return { node, status };
    } catch (cause) {
      this.roles.set(node, null);
      throw cause;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Those of the other nodes that answer. */
  async others() {
    const asked = this.nodes.filter((node) => node !== this.current).map((node) => this.ask(node));
    return (await Promise.allSettled(asked)).filter((it) => it.status === "fulfilled").map((it) => it.value);
  }

  /** The next status to show, and from where; throws when no node answers. */
  async next() {
    try {
      const own = await this.ask(this.current);
      this.cluster = this.cluster || own.status.cluster || null;
      this.failures = 0;
      this.since = null;
      this.answers += 1;
      const looks = this.follows && own.status.role !== "primary" && this.answers % LOOK_EVERY === 0;
      return looks ? this.choose(own, await this.others()) : own;
    } catch (cause) {
      this.failures += 1;
      this.since = this.since || Date.now();
      if (this.failures < LOST_AFTER || !this.follows) throw cause;
      const chosen = this.choose(null, await this.others());
      if (!chosen) throw cause;
      return chosen;
    }
  }

  /** The primary of the latest term; without one the node that is shown, or any. */
  choose(own, others) {
    const primaries = others.filter(({ status }) => status.role === "primary");
    primaries.sort((a, b) => (number(b.status.term) ?? 0) - (number(a.status.term) ?? 0));
    const isLater = (it) => !own || (number(it.status.term) ?? 0) >= (number(own.status.term) ?? 0);
    const chosen = primaries.find(isLater) || own || others[0];
    if (chosen) this.show(chosen.node);
    return chosen;
  }

  show(node) {
    if (this.current === node) return;
    this.current = node;
    this.failures = 0;
    this.since = null;
  }
}
