"""A headless Chromium, controlled by the DevTools protocol over pipes: opens pages, evaluates scripts, takes screenshots."""

import base64
import json
import os
import shutil
import subprocess
import tempfile

NAMES = ["chromium", "chromium-browser", "google-chrome"]
SECONDS_MAX = 30


def find():
    """Returns the browser's path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A browser with one page. As a context manager it closes the browser at the end."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="vellum-lab-browser-")
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        command = [
            "bash", "-c", f'exec 3<&{to_browser} 4>&{from_browser} && exec "$@"', "browser", find(),
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.profile}",
            "--remote-debugging-pipe", "about:blank",
        ]
        self.process = subprocess.Popen(command, pass_fds=[to_browser, from_browser], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number = 0
        self.unparsed = b""
        self.events = []
        self.session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.write)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _message(self):
        while b"\0" not in self.unparsed:
            part = os.read(self.read, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.unparsed += part
        message, self.unparsed = self.unparsed.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        """Returns a command's answer. Events that arrive meanwhile are kept."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._message())

    def open(self, url, width, height, dark=False):
        """Opens a page in a window of this size. `events` has its errors afterwards."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']['text']}")
        return result["result"].get("value")

    def screenshot(self, path):
        """Captures the whole page, up to a height that viewers support."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}
        image = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(image["data"]))

    def problems(self):
        """Returns console messages, exceptions, and requests for other resources than the page."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.consoleAPICalled":
                found.append(f"console: {parameters['args']}")
            elif method == "Runtime.exceptionThrown":
                found.append(f"exception: {parameters['exceptionDetails']['text']}")
            elif method == "Log.entryAdded":
                found.append(f"log: {parameters['entry']['text']}")
            elif method == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    found.append(f"request: {url}")
        return found
