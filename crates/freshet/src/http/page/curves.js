// Curves: each a drawing, a key with the latest values, and a table of the same numbers.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 100;
/** The rows of a curve's table are so many seconds apart. */
const ROW_S = 15;

const CURVES = [
  { id: "throughput", title: "Transactions", as: as.rate },
  { id: "latency", title: "Time of statements (logarithmic)", as: as.time, logarithmic: true },
  { id: "log", title: "Log", as: as.perSecond },
  { id: "lag", title: "Lag by standby and stage", as: as.bytes },
  { id: "freshness", title: "Freshness: behind for", as: as.time },
];

/** An element with this text, if any. */
function element(name, content, className) {
  const made = document.createElement(name);
  if (content !== undefined) made.textContent = content;
  if (className) made.className = className;
  return made;
}

function drawn(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** Changes a text only where it is another one, so that who has marked it keeps that. */
function put(element, content) {
  if (element.textContent !== content) element.textContent = content;
}

class Curve {
  constructor(kind) {
    this.kind = kind;
    this.figure = element("figure");
    this.figure.id = "curve-" + kind.id;
    const caption = element("figcaption", kind.title);
    caption.id = "caption-" + kind.id;
    this.svg = drawn("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
      role: "img", "aria-labelledby": caption.id, "aria-describedby": "key-" + kind.id });
    this.most = element("span");
    const axis = element("div", undefined, "axis");
    axis.append(element("span", "5 min ago"), this.most, element("span", "now"));
    this.key = element("ul", undefined, "key");
    this.key.id = "key-" + kind.id;
    this.details = element("details");
    this.scroll = element("div", undefined, "scroll");
    this.scroll.tabIndex = 0;
    this.scroll.setAttribute("role", "region");
    this.scroll.setAttribute("aria-label", kind.title + ", as a table");
    this.details.append(element("summary", "As a table"), this.scroll);
    this.figure.append(caption, this.svg, axis, this.key, this.details);
    this.shown = null;
  }

  show(history) {
    const names = history.names(this.kind.id).slice(0, 8);
    const series = names.map((name) => ({ name, points: history.points(this.kind.id, name) }));
    const known = series.flatMap(({ points }) => points.map(([, value]) => value)).filter((value) => value !== null);
    const most = Math.max(...known, 0);
    const least = this.kind.logarithmic ? Math.min(...known.filter((value) => value > 0), most) : 0;
    put(this.most, known.length ? "highest " + this.kind.as(most) : "nothing yet");
    this.draw(series, this.scale(least, most));
    this.label(series);
    if (this.details.open) this.tabulate(series);
  }

  /** Where a value is, from above. */
  scale(least, most) {
    if (!this.kind.logarithmic) return (value) => HEIGHT - 2 - (value / (most || 1)) * (HEIGHT - 6);
    const [low, high] = [Math.log(least / 2 || 1e-6), Math.log(most || 1)];
    return (value) => HEIGHT - 2 - ((Math.log(Math.max(value, 1e-9)) - low) / (high - low || 1)) * (HEIGHT - 6);
  }

  draw(series, y) {
    while (this.svg.childNodes.length > series.length) this.svg.lastChild.remove();
    series.forEach(({ points }, place) => {
      const path = this.svg.childNodes[place] || this.svg.appendChild(drawn("path", { class: "s" + (place % 8) }));
      let line = "";
      let isDown = false;
      for (const [ago, value] of points) {
        if (value !== null) {
          line += (isDown ? "L" : "M") + (WIDTH * (1 + ago / KEPT_S)).toFixed(1) + " " + y(value).toFixed(1);
        }
        isDown = value !== null;
      }
      path.setAttribute("d", line);
    });
  }

  label(series) {
    while (this.key.childNodes.length > series.length) this.key.lastChild.remove();
    series.forEach(({ name, points }, place) => {
      let item = this.key.childNodes[place];
      if (!item) {
        item = element("li");
        const sign = drawn("svg", { viewBox: "0 0 26 10", "aria-hidden": "true", class: "curve-sign" });
        sign.append(drawn("path", { d: "M0 5H26", class: "s" + (place % 8), "stroke-width": "3" }));
        item.append(sign, " ", element("span"));
        this.key.append(item);
      }
      const [, value] = points[points.length - 1] || [0, null];
      put(item.lastChild, name + " " + this.kind.as(value));
    });
  }

  tabulate(series) {
    const table = element("table");
    const head = element("tr");
    head.append(element("th", "seconds ago"), ...series.map(({ name }) => element("th", name)));
    head.childNodes.forEach((cell) => cell.setAttribute("scope", "col"));
    table.append(element("thead"), element("tbody"));
    table.tHead.append(head);
    for (let ago = 0; ago < KEPT_S; ago += ROW_S) {
      const within = series.map(({ points }) => points.filter(([at]) => -at >= ago && -at < ago + ROW_S));
      if (!within.some((points) => points.length)) continue;
      const row = element("tr");
      row.append(element("th", String(ago)));
      row.firstChild.setAttribute("scope", "row");
      for (const points of within) row.append(element("td", this.kind.as(mean(points))));
      table.tBodies[0].append(row);
    }
    this.scroll.replaceChildren(table);
  }
}

/** The mean of what is known of these points. */
function mean(points) {
  const known = points.map(([, value]) => value).filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}
