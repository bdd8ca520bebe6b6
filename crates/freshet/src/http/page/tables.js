// What a status has beside curves, as tables and lists. All that comes from a node is shown as text.

const byId = (id) => document.getElementById(id);

/** Fills a table's body with rows of cells; what is there already is used again. */
function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, place) => {
    const row = body.rows[place] || body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach((cell, column) => {
      let shown = row.cells[column];
      if (!shown) {
        shown = element(column === 0 ? "th" : "td");
        if (column === 0) shown.scope = "row";
        row.append(shown);
      }
      put(shown, cell);
    });
  });
}

/** Fills a list with items of text. */
function list(of, items, className) {
  while (of.children.length > items.length) of.lastElementChild.remove();
  items.forEach((item, place) => {
    const shown = of.children[place] || of.appendChild(element("li"));
    put(shown, item);
    if (className) shown.className = className(place);
  });
}

function showVerdict(status) {
  const verdict = status.verdict || {};
  const known = ["ok", "degraded", "blocked"].includes(verdict.state);
  const findings = array(verdict.findings);
  put(byId("state"), known ? verdict.state : "not known");
  byId("state").className = "state " + (known ? verdict.state : "");
  put(byId("summary"), findings.length ? "" : "everything is as configured");
  list(byId("findings"), findings.map((it) => `${text(it.why)} — do: ${text(it.do)}`),
    (place) => (["degraded", "blocked"].includes(findings[place].state) ? findings[place].state : ""));
}

/** The primary first, and below each node those that follow it. */
function showTopology(status) {
  const nodes = array(status.members && status.members.nodes);
  const { node, role, address } = status;
  const all = nodes.length ? nodes : [{ node, role, address, connected: true }];
  const ids = new Set(all.map(({ node }) => node));
  const primary = all.find(({ role }) => role === "primary");
  const above = (it) => (ids.has(it.follows) && it.follows !== it.node ? it.follows
    : primary && it !== primary ? primary.node : null);
  const shown = new Set();
  const branch = (of, into) => {
    for (const it of all.filter((it) => above(it) === of && !shown.has(it))) {
      shown.add(it);
      const item = element("li");
      item.append(card(it, status));
      const below = element("ul");
      branch(it.node, below);
      if (below.children.length) item.append(below);
      into.append(item);
    }
  };
  const tree = element("ul");
  branch(null, tree);
  // Nodes that follow each other in a circle, as far as is known.
  for (const it of all.filter((it) => !shown.has(it))) {
    const item = element("li");
    item.append(card(it, status));
    tree.append(item);
  }
  const topology = byId("topology");
  tree.id = topology.id;
  tree.className = topology.className;
  if (!tree.isEqualNode(topology)) topology.replaceChildren(...tree.childNodes);
  put(byId("promise"), promise(status));
}

/** What commits promise, and in which term. */
function promise(status) {
  const members = status.members || {};
  const safety = status.safety || members.safety;
  const standing = status.standing ? status.standing.standing : members.standing;
  const age = number(status.members_age_s);
  const known = age === null ? "Other nodes are not known yet." : `Other nodes: as of ${as.time(age)} ago.`;
  const left = members.left_out ? ` ${members.left_out} more nodes are left out.` : "";
  return `Safety ${text(safety)}, standing ${text(standing)}, term ${text(status.term)}. ${known}${left}`;
}

function card(it, status) {
  const counts = it.in_sync === true && it.vote === true;
  const away = it.connected === false;
  const state = it.role === "primary" || (it.connected === true && (counts || it.role === "archive")) ? "ok"
    : away ? "blocked" : "degraded";
  const made = element("div", undefined, "node " + state);
  const itself = it.node === status.node ? " (asked)" : "";
  const title = element("strong", `${text(it.role)} ${short(it.node)}${itself}`);
  const facts = [it.address ? text(it.address) : "address not known"];
  if (it.role !== "primary") {
    const since = seconds(it.connected_or_away_for);
    const lasts = since === null ? "" : " for " + as.time(Math.round(since));
    facts.push(away ? "away" + lasts : it.connected === true ? "connected" + lasts : "not known whether it is here");
    if (it.in_sync !== null && it.in_sync !== undefined) facts.push(it.in_sync ? "in sync" : "not in sync");
    if (it.lag) facts.push("behind by " + as.bytes(number(it.lag.bytes)));
  }
  if (it.vote === false) facts.push("no vote" + (it.no_vote ? ": " + text(it.no_vote) : ""));
  if (it.version) facts.push("Freshet " + text(it.version));
  made.append(title, element("div", facts.join(" · "), "quiet"));
  return made;
}

function showStandbys(status) {
  const standbys = array(status.standbys);
  const isPrimary = status.role === "primary" || standbys.length > 0;
  const head = isPrimary ? ["standby", "ship", "ack", "visible", "in sync"] : ["stage", "bytes", "time"];
  while (byId("standbys-head").cells.length > head.length) byId("standbys-head").deleteCell(-1);
  head.forEach((name, place) => {
    let cell = byId("standbys-head").cells[place];
    if (!cell) {
      cell = element("th");
      cell.scope = "col";
      byId("standbys-head").append(cell);
    }
    put(cell, name);
  });
  const bytes = (value) => as.bytes(number(value));
  fill(byId("standbys"), isPrimary
    ? standbys.map((it) => [`${short(it.node)}${it.connected === true ? "" : " (away)"}`, bytes(it.ship_lag_bytes),
      `${bytes(it.ack_lag_bytes)}, ${as.time(seconds(it.ack_lag))}`, bytes(it.visible_lag_bytes),
      it.synchronous === false ? "asynchronous" : it.in_sync === true ? "yes" : "no"])
    : LAG_STAGES.filter(([, key]) => status[key]).map(([name, key]) => [name, bytes(status[key].bytes),
      as.time(seconds(status[key].time))]));
}

function showSessions(status) {
  const { sessions, transactions } = status;
  if (!sessions || !transactions) return fill(byId("sessions"), [["SQL is not served here", ""]]);
  const causes = Object.entries(transactions.rolled_back || {}).filter(([, count]) => count > 0);
  const rows = [["sessions", sessions.now], ["that run a statement", sessions.active],
    ["that wait for a lock", sessions.waiting], ["idle in a transaction", sessions.idle_in_transaction],
    ["deadlocks since the start", transactions.deadlocks], ["committed since the start", transactions.committed],
    ...causes.map(([cause, count]) => ["rolled back: " + cause, count])];
  return fill(byId("sessions"), rows.map(([name, count]) => [name, as.count(number(count))]));
}

function showMemory(status) {
  const memory = status.memory || {};
  const owners = Object.entries(memory.owners || {}).sort(([, a], [, b]) => b - a);
  const used = number(memory.used);
  const limit = number(memory.limit);
  const full = memory.full === true ? "; FULL: statements that add rows are refused" : "";
  put(byId("memory-sum"), `${as.bytes(used)} of ${limit === null ? "no limit" : as.bytes(limit)}, `
    + `${as.bytes(number(memory.kept_for_snapshots))} kept for open snapshots, `
    + `${as.bytes(number(status.resident_bytes))} resident${full}`);
  fill(byId("memory"), owners.map(([owner, bytes]) => [owner, as.bytes(number(bytes)),
    used > 0 ? ((100 * bytes) / used).toFixed(1) + " %" : "–"]));
}

function showStatements(kinds) {
  fill(byId("statements"), kinds.filter(({ count }) => count > 0).map((it) => [it.name, as.rate(it.rate),
    as.time(it.p50), as.time(it.p99), as.count(it.count), as.time(it.mean)]));
}

/** So many events are kept. */
const EVENTS = 100;

class Events {
  add(what) {
    const item = element("li");
    const now = new Date();
    const time = element("time", now.toLocaleTimeString());
    time.dateTime = now.toISOString();
    item.append(time, " ", what);
    byId("events").prepend(item);
    while (byId("events").children.length > EVENTS) byId("events").lastElementChild.remove();
  }

  /** What has changed between two statuses. */
  compare(before, now) {
    if (!before || before.node !== now.node) {
      this.add(`Shows node ${short(now.node)}: ${text(now.role)} in term ${text(now.term)}`);
      return;
    }
    const id = short(now.node);
    const changed = (name, of) => {
      const [a, b] = [of(before), of(now)];
      if (text(a) !== text(b)) this.add(`${id}: ${name} ${text(b)}, was ${text(a)}`);
    };
    if (before.pid !== now.pid || (seconds(now.uptime) ?? 0) < (seconds(before.uptime) ?? 0)) {
      this.add(`${id} was started again`);
    }
    changed("role", (it) => it.role);
    changed("term", (it) => it.term);
    changed("standing", (it) => it.standing && it.standing.standing);
    changed("link", (it) => it.link && it.link.link);
    changed("checkpoints", (it) => it.checkpoint && it.checkpoint.installed);
    changed("deadlocks", (it) => it.transactions && it.transactions.deadlocks);
    this.compareStandbys(before, now);
    const findings = (it) => array(it.verdict && it.verdict.findings);
    // Of the same finding, seconds differ.
    const same = ({ why }) => text(why).replace(/\d[\d.,]*/g, "#");
    const [old, found] = [new Set(findings(before).map(same)), findings(now)];
    found.filter((it) => !old.has(same(it))).forEach(({ why }) => this.add(text(why)));
    if (old.size && !found.length) this.add("Everything is as configured again");
  }

  compareStandbys(before, now) {
    const was = new Map(array(before.standbys).map((it) => [it.node, it]));
    for (const it of array(now.standbys)) {
      const old = was.get(it.node);
      if (!old) this.add(`Standby ${short(it.node)} has come`);
      else if (old.connected !== it.connected) {
        this.add(`Standby ${short(it.node)} is ${it.connected === true ? "connected again" : "away"}`);
      } else if (old.in_sync !== it.in_sync) {
        this.add(`Standby ${short(it.node)} is ${it.in_sync === true ? "in sync" : "not in sync"}`);
      }
    }
  }
}
