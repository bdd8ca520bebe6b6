// Numbers out of a status, and as people read them.

/** A time of the status, in seconds; null where it is not known. */
const seconds = (time) => (time && typeof time === "object" ? time.secs + time.nanos / 1e9 : null);

const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);

const array = (value) => (Array.isArray(value) ? value : []);

/** Text of whatever came: statuses may be of another version, or of something that is no node. */
const text = (value) => (value === null || value === undefined ? "–" : String(value));

/** A few digits, and no more than are known. */
function digits(value) {
  const size = Math.abs(value);
  return size === 0 ? "0" : size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function scaled(value, base, units) {
  let place = 0;
  while (place + 1 < units.length && Math.abs(value) >= base) {
    value /= base;
    place += 1;
  }
  return (place === 0 ? String(Math.round(value)) : digits(value)) + " " + units[place];
}

const as = {
  count: (value) => (value === null ? "–" : Math.round(value).toLocaleString("en")),
  rate: (value) => (value === null ? "–" : (value >= 100 ? as.count(value) : digits(value)) + "/s"),
  bytes: (value) => (value === null ? "–" : scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"])),
  perSecond: (value) => (value === null ? "–" : digits(value) + " MB/s"),
  time: (value) => {
    if (value === null) return "–";
    if (value < 1e-3) return Math.round(value * 1e6) + " µs";
    if (value < 1) return digits(value * 1e3) + " ms";
    const places = Number.isInteger(value) || value >= 10 ? String(Math.round(value)) : digits(value);
    return value < 120 ? places + " s" : value < 7200 ? Math.round(value / 60) + " min"
      : Math.round(value / 3600) + " h";
  },
};

/** By how much each number has grown; null if it is another process's, or was reset. */
function grown(now, before) {
  if (now.length !== before.length) return null;
  const more = now.map((value, place) => value - before[place]);
  return more.some((value) => !(value >= 0)) ? null : more;
}

/**
 * The time that this share of statements did not exceed, in seconds, from how many were in each
 * bucket. Within a bucket they are taken as evenly spread; null where there was none.
 */
function quantile(share, counts, bounds) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let below = 0;
  for (let place = 0; place < counts.length; place += 1) {
    if (below + counts[place] >= share * total) {
      const from = place === 0 ? 0 : bounds[place - 1];
      const to = place < bounds.length ? bounds[place] : bounds[bounds.length - 1];
      return (from + ((to - from) * (share * total - below)) / counts[place]) / 1e6;
    }
    below += counts[place];
  }
  return null;
}
