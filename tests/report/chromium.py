"""A headless Chromium, spoken to over its DevTools port: no more than the tests of the page need."""

import json
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60


def installed():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser():
    """One page of a Chromium of its own, without network and without a profile."""
    from websocket import create_connection

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"]
        options += ["--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            [installed(), *options, "about:blank"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        try:
            address = next(
                found[1] for line in process.stderr if (found := re.search(r"listening on (ws://\S+)", line))
            )
            socket = create_connection(address, timeout=PATIENCE)
            yield Page(socket)
            socket.close()
        finally:
            process.kill()
            process.wait()


class Page:
    def __init__(self, socket):
        self.socket, self.count, self.events, self.session = socket, 0, [], None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        self.socket.send(json.dumps(message | ({"sessionId": self.session} if self.session else {})))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, dark=False):
        """Shows a file in a window so wide."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url=f"file://{path}")
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            pass

    def run(self, expression):
        """What JavaScript makes of it, as JSON."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key, code=0):
        """A key, as from a keyboard."""
        text = {"Enter": "\r", "Space": " "}.get(key)
        name = " " if key == "Space" else key
        fields = {"key": name, "code": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", **fields, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **fields)

    def requests(self):
        """What the page asked the network for, beside itself."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("file://")]

    def complaints(self):
        """What the browser says of errors, and of what the page's policy refused."""
        said = [e["params"] for e in self.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
        return [each for each in said if each.get("entry", {}).get("level", "error") == "error"]

    def named(self):
        """What a screen reader finds: role and name of everything."""
        self.send("Accessibility.enable")
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node.get("ignored")]
        return [(n.get("role", {}).get("value"), n.get("name", {}).get("value", "")) for n in shown]
