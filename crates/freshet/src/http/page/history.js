// What a node's statuses were in the last minutes, as series of numbers.

/** So many seconds are kept. */
const KEPT_S = 300;
/** Times of statements are those of so many seconds, so that seldom ones are seen. */
const OVER_S = 5;
const LAG_STAGES = [["receive", "receive_lag"], ["persist", "persist_lag"], ["replay", "replay_lag"],
  ["visible", "visible_lag"]];

class Past {
  constructor() {
    this.samples = [];
  }

  clear() {
    this.samples = [];
  }

  /** A status came at this time, in seconds of a clock that never goes back. */
  add(at, status) {
    const before = this.samples[this.samples.length - 1];
    const past = this.samples.find((sample) => sample.at >= at - OVER_S - 0.5) || before;
    const sample = { at, status: kept(status), time: new Date() };
    sample.kinds = kinds(sample.status, past && past.status, past ? at - past.at : 0);
    sample.values = values(sample, before, status);
    // Older ones are needed for their numbers alone.
    this.samples.forEach((old) => { if (old.at < at - 2 * OVER_S) old.status = null; });
    this.samples.push(sample);
    this.samples = this.samples.filter((old) => old.at >= at - KEPT_S);
  }

  last() {
    return this.samples[this.samples.length - 1];
  }

  /** The names of the series of a curve, in the order in which they came up. */
  names(curve) {
    const names = new Set();
    for (const { values } of this.samples) for (const name of Object.keys(values[curve] || {})) names.add(name);
    return [...names];
  }

  /** The points of a series: seconds before the last one, and the value or null. */
  points(curve, name) {
    const last = this.last();
    return this.samples.map(({ at, values }) => {
      const value = (values[curve] || {})[name];
      return [at - last.at, value === undefined ? null : value];
    });
  }
}

/** What rates are made of. */
function kept(status) {
  const { pid, log_bytes, received, transactions, statements } = status;
  return { pid, log_bytes, received, transactions, statements };
}

/** How fast something has grown between two samples, each second. */
function rate(now, before, of) {
  if (!before || !before.status || now.status.pid !== before.status.pid) return null;
  const [a, b] = [of(now.status), of(before.status)].map(number);
  return a === null || b === null || a < b || now.at <= before.at ? null : (a - b) / (now.at - before.at);
}

const rolledBack = (status) => {
  const causes = status.transactions && status.transactions.rolled_back;
  return causes ? Object.values(causes).reduce((sum, count) => sum + count, 0) : null;
};

function values(now, before, status) {
  const log = rate(now, before, (it) => it.log_bytes ?? it.received);
  const all = {
    throughput: {
      commits: rate(now, before, (it) => it.transactions && it.transactions.committed),
      "rolled back": rate(now, before, rolledBack),
    },
    latency: {}, log: { log: log === null ? null : log / 1e6 }, lag: {}, freshness: {},
  };
  for (const kind of now.kinds) {
    if (kind.p50 !== null) {
      all.latency[kind.name + " p50"] = kind.p50;
      all.latency[kind.name + " p99"] = kind.p99;
    }
  }
  lags(status, all);
  return all;
}

/** A primary's standbys, or a standby by itself. */
function lags(status, all) {
  for (const standby of array(status.standbys)) {
    const name = short(standby.node);
    all.lag[name + " ack"] = number(standby.ack_lag_bytes);
    all.lag[name + " visible"] = number(standby.visible_lag_bytes);
    all.freshness[name + " ack"] = seconds(standby.ack_lag);
  }
  for (const { node, lag } of array(status.members && status.members.nodes)) {
    if (lag && node !== status.node && status.role === "primary") {
      all.freshness[short(node) + " persistent"] = seconds(lag.time);
    }
  }
  if (status.role === "standby" || status.role === "mirror") {
    for (const [name, key] of LAG_STAGES) {
      if (status[key]) {
        all.lag[name] = number(status[key].bytes);
        all.freshness[name] = seconds(status[key].time);
      }
    }
    all.freshness["age of what readers see"] = seconds(status.age);
  }
}

/** Of each kind of statement: how many a second since `before`, and how long they took. */
function kinds(now, before, took) {
  const statements = now.statements;
  if (!statements || !statements.kinds) return [];
  const bounds = array(statements.bounds_us);
  return Object.entries(statements.kinds).map(([name, of]) => {
    const old = before && before.pid === now.pid && before.statements && before.statements.kinds[name];
    const counts = old ? grown(array(of.buckets), array(old.buckets)) : null;
    const some = counts && took > 0 ? counts.reduce((sum, count) => sum + count, 0) : null;
    return {
      name, count: number(of.count), mean: of.count > 0 ? of.time_us / 1e6 / of.count : null,
      rate: some === null ? null : some / took,
      p50: counts && quantile(0.5, counts, bounds), p99: counts && quantile(0.99, counts, bounds),
    };
  });
}

/** A node's id as people write it: its first digits. */
const short = (node) => text(node).slice(0, 6);
