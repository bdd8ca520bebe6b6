"""Headless Chromium, driven by its debugging protocol over a pipe."""

import base64
import json
import os
import queue
import subprocess
import tempfile
import threading
import time

PATIENCE = 60


class Browser:
    """One page of it. Ends with the block that it is used in."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-extensions",
                 "--disable-background-networking", f"--user-data-dir={self.profile.name}", "about:blank"]
        if os.geteuid() == 0:
            flags.insert(0, "--no-sandbox")

        # It reads from descriptor 3 and writes to 4, which the pipes may have in the other order.
        def arrange():
            first, second = os.dup(to_browser), os.dup(from_browser)
            high = [os.dup2(first, 200), os.dup2(second, 201)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(["chromium", *flags], preexec_fn=arrange, close_fds=False, **quiet)
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.session = 0, None
        self.answers, self.events = {}, []
        self.arrived = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def __enter__(self):
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(it for it in targets if it["type"] == "page")
        attach = {"targetId": page["targetId"], "flatten": True}
        self.session = self.ask("Target.attachToTarget", attach)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.ask(domain + ".enable")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    def read(self):
        bytes_read = b""
        while some := os.read(self.into, 1 << 16):
            *messages, bytes_read = (bytes_read + some).split(b"\0")
            for message in messages:
                self.arrived.put(json.loads(message))

    def ask(self, method, parameters=None):
        """Its answer to this."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            got = self.arrived.get(timeout=PATIENCE)
            if got.get("id") == self.number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.events.append(got)

    def value(self, script):
        """What this gives in the page."""
        ask = {"expression": script, "returnByValue": True, "awaitPromise": True}
        got = self.ask("Runtime.evaluate", ask)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{script}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def wait(self, what, script):
        """Until this gives something true."""
        deadline = time.monotonic() + PATIENCE
        while not (found := self.value(script)):
            shown = self.value("document.body.innerText.slice(0, 3000)")
            assert time.monotonic() < deadline, f"{what} has not come about:\n{shown}"
            time.sleep(0.05)
        return found

    def look(self, width, height, dark, scale=1):
        """The page in this size, and in dark or in light colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", {"features": scheme})

    def press(self, key, code):
        """A key."""
        for kind in ["keyDown", "keyUp"]:
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            self.ask("Input.dispatchKeyEvent", event)

    def picture(self, path):
        """What can be seen, as a PNG."""
        data = self.ask("Page.captureScreenshot", {"format": "png"})["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """What stands in the console as an error, but for connections that were refused."""
        self.value("1")
        found = []
        for event in self.events:
            method, it = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(it["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled" and it["type"] in ("error", "warning", "assert"):
                found.append(it["args"])
            elif method == "Log.entryAdded" and it["entry"]["level"] in ("error", "warning"):
                if "net::ERR_CONNECTION" not in it["entry"]["text"]:
                    found.append(it["entry"])
        return found

    def requests(self):
        """How many requests the page has made so far."""
        self.value("1")
        return sum(event.get("method") == "Network.requestWillBeSent" for event in self.events)
