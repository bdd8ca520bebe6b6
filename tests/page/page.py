"""What an operator sees of three nodes in a browser: roles, curves, a failover, the loss of all of them; in light and
dark, on a phone, by keyboard. See tests/page/run."""

import argparse
import http.server
import json
import os
import subprocess
import tempfile
import threading
import time
import urllib.request

from browser import PATIENCE, Browser

WIDE, PHONE = (1280, 900), (360, 800)
EVIL = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>"


class Node:
    """A node of its own process, which ends with its standard input."""

    def __init__(self, directory, more):
        places = ["--address", "--listen", "--sql-listen", "--http-listen"]
        flags = [word for place in places for word in (place, "127.0.0.1:0")]
        command = [os.environ["FRESHET"], "serve", "--directory", directory, "--log-buffer-bytes", "4194304", *flags, *more]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=open(directory + ".log", "w", encoding="utf-8"), text=True)
        line = self.process.stdout.readline()
        assert line.startswith("ready "), line
        self.ready = json.loads(line[len("ready "):])
        self.http = "http://" + self.ready["http"]

    def status(self):
        with urllib.request.urlopen(self.http + "/page.json", timeout=PATIENCE) as answer:
            return json.load(answer)

    def kill(self):
        self.process.kill()
        self.process.wait()


def wait(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not come about"
        time.sleep(0.05)


class Load:
    """Statements on a node, one after the other, until they fail or are stopped."""

    def __init__(self, node):
        socket_path = node.ready["sql_socket"]
        place = ["-h", os.path.dirname(socket_path), "-p", socket_path.rsplit(".", 1)[1]]
        command = ["psql", "-Xq", *place, "-U", "freshet", "freshet"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **quiet)
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self):
        try:
            self.process.stdin.write("CREATE TABLE t (id int PRIMARY KEY, v text);\n")
            for number in range(1_000_000):
                self.process.stdin.write(f"INSERT INTO t VALUES ({number}, 'a'); SELECT * FROM t WHERE id = {number};\n")
                if number % 10 == 0:
                    self.process.stdin.write(f"UPDATE t SET v = repeat('b', 500) WHERE id = {number};\n")
                self.process.stdin.flush()
                time.sleep(0.002)
        except (OSError, ValueError):
            pass

    def stop(self):
        self.process.kill()
        self.process.wait()


class Evil(http.server.BaseHTTPRequestHandler):
    """Something on this machine that looks like a node, and whose every text is markup."""

    real = None

    def do_GET(self):
        status = self.real.status()
        for key in ["address", "version"]:
            status[key] = EVIL
        nodes = status["members"]["nodes"]
        for node in nodes:
            node.update({"role": EVIL, "address": EVIL, "no_vote": EVIL, "vote": False})
        status["verdict"] = {"state": EVIL, "findings": [{"why": EVIL, "do": EVIL, "state": EVIL}]}
        status["memory"]["owners"] = {EVIL: 1}
        status["safety"] = {"a": EVIL}
        body = json.dumps(status).encode()
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def shows_the_cluster(browser):
    browser.wait("the verdict", "document.getElementById('state').textContent === 'ok'")
    roles = "[...document.querySelectorAll('#topology strong')].map((it) => it.textContent.split(' ')[0])"
    browser.wait("three nodes", f"{roles}.join() === 'primary,standby,standby'")
    assert "majority" in browser.value("document.getElementById('promise').textContent")
    assert browser.value("document.getElementById('who').textContent").startswith("primary ")
    for curve in ["throughput", "latency", "log", "lag"]:
        drawn = f"[...document.querySelectorAll('#curve-{curve} svg.curve path')].some((it) => /L/.test(it.getAttribute('d')))"
        browser.wait(f"a curve of {curve}", drawn)
    browser.wait("statements", "/insert/.test(document.getElementById('statements').textContent)")
    browser.wait("commits", "/commits [1-9]/.test(document.getElementById('key-throughput').textContent)")
    browser.value("document.querySelector('#curve-throughput details').open = true")
    cells = "document.querySelectorAll('#curve-throughput tbody td').length > 1"
    browser.wait("the curve's numbers", cells)
    browser.value("document.querySelector('#curve-throughput details').open = false")


def is_reached_without_a_mouse(browser):
    names = "['header', 'main', 'footer'].every((it) => document.querySelectorAll(it).length === 1)"
    assert browser.value(names), "landmarks"
    tree = browser.ask("Accessibility.getFullAXTree")["nodes"]
    role = lambda node: node.get("role", {}).get("value")
    for node in tree:
        if role(node) in ("button", "textbox", "checkbox", "link", "image", "region"):
            assert node.get("name", {}).get("value"), f"no name: {node}"
    found = {role(node) for node in tree}
    assert {"banner", "main", "contentinfo", "image", "table", "alert", "checkbox"} <= found, found
    live = browser.value("document.querySelector('#verdict [aria-live=polite] #state') !== null")
    assert live, "the verdict is not read aloud when it changes"
    browser.value("document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        browser.press("Tab", 9)
        reached.add(browser.value("document.activeElement.id || document.activeElement.tagName"))
    assert {"follow", "address", "SUMMARY", "BUTTON", "A"} <= reached, reached


def contrast(browser):
    """The least contrast of a text with what is behind it."""
    return browser.value("""(() => {
      const light = (colour) => {
        const part = (value) => ((value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = colour.match(/[0-9.]+/g).map(Number);
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
      };
      const ground = (of) => {
        const colour = getComputedStyle(of).backgroundColor;
        return colour !== "rgba(0, 0, 0, 0)" || !of.parentElement ? colour : ground(of.parentElement);
      };
      let least = 100;
      for (const of of document.querySelectorAll("h1, h2, p, td, th, li, strong, a, label, figcaption, summary")) {
        if (!of.textContent.trim() || !of.checkVisibility()) continue;
        const [a, b] = [light(getComputedStyle(of).color), light(ground(of))].sort((x, y) => y - x);
        least = Math.min(least, (a + 0.05) / (b + 0.05));
      }
      return least;
    })()""")


def fits_and_has_two_schemes(browser, pictures):
    grounds = []
    for dark in [False, True]:
        for name, size in [("desktop", WIDE), ("phone", PHONE)]:
            browser.look(*size, dark)
            width = browser.value("document.documentElement.scrollWidth")
            assert width <= size[0], f"{width} pixels wide on {size[0]}"
            if pictures:
                browser.value("window.scrollTo(0, 0)")
                browser.picture(os.path.join(pictures, f"page-{name}-{'dark' if dark else 'light'}.png"))
        least = contrast(browser)
        assert least >= 4.5, f"a contrast of {least}"
        grounds.append(browser.value("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1], grounds
    browser.look(*WIDE, False)


def asks_nothing_while_hidden(browser):
    hide = "Object.defineProperty(document, 'hidden', { value: %s, configurable: true }); " \
           "document.dispatchEvent(new Event('visibilitychange'))"
    browser.value(hide % "true")
    # What was under way ends.
    browser.value("new Promise((done) => setTimeout(done, 500))")
    before = browser.requests()
    browser.value("new Promise((done) => setTimeout(done, 3000))")
    assert browser.requests() == before, "it asks although it is hidden"
    browser.value(hide % "false")
    wait("it asks again", lambda: browser.requests() > before)


def shows_texts_as_text(browser, real):
    Evil.real = real
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser.value(f"document.getElementById('address').value = '{server.server_port}'")
    browser.value("document.querySelector('#add button').click()")
    browser.value("document.querySelector('#nodes li:last-child button').click()")
    browser.wait("what it sends", "document.getElementById('topology').textContent.includes('<img src=x')")
    browser.wait("findings", "document.getElementById('findings').textContent.includes('<script>')")
    assert browser.value("document.querySelectorAll('main img, main script').length") == 0
    assert browser.value("window.hit === undefined")
    # Other machines are not asked.
    browser.value("document.getElementById('address').value = 'http://a.example:7480'")
    browser.value("document.querySelector('#add button').click()")
    assert "tunnel" in browser.value("document.getElementById('refused').textContent")
    server.shutdown()
    server.server_close()


def follows_the_primary(browser, nodes):
    browser.value("document.querySelector('#nodes button').click()")
    browser.value("document.getElementById('follow').click()")
    browser.wait("the primary", "document.getElementById('who').textContent.startsWith('primary ')")
    before = browser.value("document.getElementById('who').textContent")
    nodes[0].kill()
    shown = "document.getElementById('who').textContent"
    other = f"{shown}.startsWith('primary ') && !{shown}.includes('{nodes[0].ready['http']}')"
    browser.wait("another primary", other)
    after = browser.value(shown)
    assert after.split()[1] != before.split()[1], (before, after)
    browser.wait("the verdict", "document.getElementById('state').textContent !== 'ok'")
    # It leads from a standby that is shown to the primary, too.
    standby = next(node for node in nodes[1:] if node.status()["role"] == "standby")
    place = f"[...document.querySelectorAll('#nodes li')].find((it) => it.textContent.includes('{standby.ready['http']}'))"
    browser.value(place + ".querySelector('button').click()")
    browser.wait("the standby", f"{shown}.startsWith('standby ')")
    browser.value("document.getElementById('follow').click()")
    browser.wait("the primary again", f"{shown}.startsWith('primary ')")


def knows_when_all_are_lost(browser, nodes):
    for node in nodes:
        node.kill()
    lost = browser.wait("the loss", "document.getElementById('lost').textContent")
    assert "Lost: " in lost and "What stands below is old" in lost, lost
    assert browser.value("document.querySelector('main').classList.contains('stale')")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pictures", help="where to write pictures of the page")
    pictures = options.parse_args().pictures
    nodes = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        try:
            nodes.append(Node(f"{place}/a", ["--new-cluster"]))
            join = ["--join", nodes[0].ready["listen"]]
            nodes += [Node(f"{place}/{name}", join) for name in "bc"]
            wait("three nodes count", lambda: sum(it["in_sync"] for it in nodes[0].status()["standbys"]) == 2)
            load = Load(nodes[0])
            with Browser() as browser:
                browser.look(*WIDE, False)
                others = ",".join(node.ready["http"] for node in nodes[1:])
                browser.ask("Page.navigate", {"url": f"{nodes[0].http}/#{others}"})
                loaded = "document.readyState === 'complete' && document.getElementById('state') !== null"
                browser.wait("the page", loaded)
                checks(browser, nodes, pictures)
                found = browser.complaints()
                assert not found, f"errors in the console: {found}"
            load.stop()
        finally:
            for node in nodes:
                node.kill()
    print("the page shows roles, curves, a failover and the loss of all nodes, in both schemes and 360 pixels wide")


def checks(browser, nodes, pictures):
    shows_the_cluster(browser)
    is_reached_without_a_mouse(browser)
    if pictures:
        # Curves have a while to show.
        time.sleep(60)
    fits_and_has_two_schemes(browser, pictures)
    asks_nothing_while_hidden(browser)
    shows_texts_as_text(browser, nodes[0])
    follows_the_primary(browser, nodes)
    knows_when_all_are_lost(browser, nodes)


if __name__ == "__main__":
    main()
