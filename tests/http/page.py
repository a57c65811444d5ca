"""Tests the page of --http in a browser, at four widths and in dark mode: figures, overflow, sorted slow queries, an operation
ended by its button, login and logout. Writes screenshots to FOLDER.

    page.py VELLUM FOLDER
"""

import base64
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lab"))

import browser  # noqa: E402

VIEWS = [("1280", 1280, 900, False), ("768", 768, 1024, False), ("390", 390, 844, False), ("360", 360, 780, False), ("dark", 1280, 900, True)]
SECONDS_MAX = 120

STATE = """({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  trouble: document.querySelector('#trouble').textContent,
  tiles: document.querySelectorAll('.tile').length,
  paper: getComputedStyle(document.body).backgroundColor,
  unnamed: [...document.querySelectorAll('button, input')].filter(each => !(each.textContent || each.ariaLabel || each.closest('label'))).length,
  facts: Object.fromEntries([...document.querySelectorAll('#facts div')].map(each => [...each.children].map(one => one.textContent))),
  // Scrolling regions without a hint, and elements that hide overflowing content.
  cut: [...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth + 1 && !each.parentElement.querySelector('.hint')?.checkVisibility())
    .concat([...document.querySelectorAll('main *')].filter(each => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1 && ['hidden', 'clip'].includes(getComputedStyle(each).overflowX)))
    .map(each => each.ariaLabel || each.id || each.tagName),
  headings: [...document.querySelectorAll('h2')].filter(each => each.checkVisibility()).map(each => each.textContent),
})"""


def encode(document):
    """Encodes a command as BSON: numbers, texts, flags, lists and documents."""
    out = b""
    items = enumerate(document) if isinstance(document, list) else document.items()
    for name, value in items:
        name = str(name).encode() + b"\0"
        if isinstance(value, bool):
            out += b"\x08" + name + bytes([value])
        elif isinstance(value, int):
            out += b"\x10" + name + struct.pack("<i", value)
        elif isinstance(value, str):
            text = value.encode() + b"\0"
            out += b"\x02" + name + struct.pack("<i", len(text)) + text
        else:
            out += (b"\x04" if isinstance(value, list) else b"\x03") + name + encode(value)
    return struct.pack("<i", len(out) + 5) + out + b"\0"


class Client:
    """A connection that sends commands and receives replies as bytes."""

    def __init__(self, uri):
        host, port = uri.removeprefix("mongodb://").split("/")[0].rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))

    def run(self, **command):
        body = struct.pack("<i", 0) + b"\0" + encode(command)
        self.socket.sendall(struct.pack("<iiii", len(body) + 16, 1, 0, 2013) + body)
        length = struct.unpack("<i", self.read(4))[0]
        return self.read(length - 4)

    def read(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise RuntimeError("the server has closed the connection")
            data += part
        return data


class Server:
    """A server with HTTP. As a context manager it stops the server at the end."""

    def __init__(self, vellum, *options, **environment):
        command = [vellum, "--port", "0", "--http", "0", "--parent-pipe", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL, env={**os.environ, **environment})
        self.uri = self.url = None
        for line in self.process.stdout:
            self.uri = self.uri or line.strip()
            if line.startswith("http: "):
                self.url = line.removeprefix("http: ").strip()
            if line.startswith("try: "):
                break

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(20)


def wait_until(page, expression, error):
    """Waits until an expression is true. Fails with the error after 20 seconds."""
    end = time.time() + 20
    while not page.evaluate(expression):
        if time.time() > end:
            raise AssertionError(f"{error}; state: {page.evaluate(STATE)}")
        time.sleep(0.1)


def rows(page, table, column):
    """Returns the texts of a table's column."""
    return page.evaluate(f"[...document.querySelectorAll('#{table} tbody tr')].map(row => row.children[{column}]?.textContent)")


def foreign_requests(page, url):
    """Returns the page's requests to other hosts, and its errors."""
    origin = url.split("#")[0]
    return [problem for problem in page.problems() if not problem.startswith(f"request: {origin}")]


def fill(client):
    client.run(insert="orders", documents=[{"customer": n % 40, "total": n} for n in range(400)], **{"$db": "shop"})
    client.run(insert="people", documents=[{"name": f"n{n}"} for n in range(50)], **{"$db": "shop"})
    client.run(profile=0, slowms=-1, **{"$db": "shop"})
    for n in range(5):
        client.run(find="orders", filter={"customer": n}, sort={"total": -1}, **{"$db": "shop"})
    for n in range(9):
        client.run(find="people", filter={"name": f"n{n}"}, **{"$db": "shop"})
    client.run(profile=0, slowms=100, **{"$db": "shop"})


def open_page(vellum, folder, page):
    with Server(vellum) as server:
        fill(Client(server.uri))
        backgrounds = {}
        for name, width, height, dark in VIEWS:
            # Without a blank page in between, only the fragment of the URL would change.
            page.open("about:blank", width, height, dark)
            page.open(server.url, width, height, dark)
            # The second sample has the changes since the first.
            wait_until(page, "document.querySelectorAll('#commands tbody tr').length > 2 && document.querySelector('#throughput polyline')?.points.length > 1", "no figures")
            seen = page.evaluate(STATE)
            page.screenshot(folder / f"page-{name}.png")
            assert not seen["cut"], f"{name}: cut without a hint: {seen['cut']}"
            assert seen["overflow"] <= 0, f"{name}: {seen['overflow']} pixels wider than the window"
            assert not seen["trouble"] and seen["tiles"] >= 7 and not seen["unnamed"], f"{name}: {seen}"
            assert len(seen["headings"]) == 6, f"{name}: {seen['headings']}"
            assert not foreign_requests(page, server.url), f"{name}: {foreign_requests(page, server.url)}"
            backgrounds[name] = seen["paper"]
        check_facts(seen["facts"], {"Address": address(server), "Data": "in memory", "Replica set": "none", "Durability": "memory"})
        check_history(page, server)
        show_a_front(page)
        ask_a_slow_server(page)
        page.open("about:blank", 1280, 900)
        page.open(server.url, 1280, 900)
        wait_until(page, "document.querySelectorAll('#collections tbody tr').length === 2", "no figures")
        assert backgrounds["1280"] != backgrounds["dark"], "dark and light look the same"
        assert page.evaluate("location.hash") == "", "the token is still in the address"
        assert set(rows(page, "collections", 0)) == {"shop.orders", "shop.people"}, rows(page, "collections", 0)
        shown = rows(page, "commands", 0)
        assert "find" in shown and not {"hello", "currentOp", "vellumSlowQueries", "vellumWorkingSet"} & set(shown), shown
        assert all(word in page.evaluate("document.body.innerText") for word in ["p50", "p99", "Operations per second"])
        sort_slow(page)
        end_operation(page, server, folder)
    wait_until(page, "document.querySelector('#trouble').textContent.includes('does not respond')", "the page does not report the end of the server")


def open_disk(vellum, folder, page):
    """Checks the curve of the cache, which a server with a data directory shows."""
    with tempfile.TemporaryDirectory() as data, Server(vellum, "--data", data, "--cache-size", "16M", "--replset", "rs0") as server:
        client = Client(server.uri)
        for thousand in range(20):
            documents = [{"_id": thousand * 1000 + n, "text": "x" * 900} for n in range(1000)]
            client.run(insert="events", documents=documents, **{"$db": "shop"})
        client.run(fsync=1, **{"$db": "admin"})
        for n in range(3000):
            client.run(find="events", filter={"_id": n * 7919 % (20000 if n % 4 == 0 else 2000)}, **{"$db": "shop"})
        client.run(count="events", query={"text": "y"}, **{"$db": "shop"})
        for name, width, height, dark in VIEWS:
            page.open("about:blank", width, height, dark)
            page.open(server.url, width, height, dark)
            wait_until(page, "document.querySelector('#curve polyline')?.points.length > 100", "no curve")
            page.evaluate("document.querySelector('#workingset').scrollIntoView()")
            seen = page.evaluate(STATE)
            page.screenshot(folder / f"page-curve-{name}.png")
            assert not seen["cut"], f"{name}: cut without a hint: {seen['cut']}"
            assert seen["overflow"] <= 0 and not seen["trouble"] and len(seen["headings"]) == 7, f"{name}: {seen}"
            assert not foreign_requests(page, server.url), f"{name}: {foreign_requests(page, server.url)}"
        check_facts(seen["facts"], {"Address": address(server), "Data": data, "Replica set": "rs0", "Durability": "relaxed"})
        tiles = page.evaluate("[...document.querySelectorAll('.tile dt')].map(each => each.textContent)")
        assert {"Cache hit ratio", "Journal sync p99", "Oplog window"} <= set(tiles), tiles
        assert set(rows(page, "hits", 0)) == {"shop.events", "shop.events, index _id_"}, rows(page, "hits", 0)
        words = page.evaluate("document.querySelector('#advice').textContent")
        assert "beyond that nothing more is gained" in words and "NaN" not in words, words
        labels = page.evaluate("[...document.querySelectorAll('#curve text')].map(each => each.textContent)")
        assert "now 16 MiB" in labels and "100 %" in labels and len(labels) >= 6, labels


def address(server):
    """Returns host and port as in the header."""
    return server.uri.removeprefix("mongodb://").split("/")[0]


def check_facts(facts, expected):
    """Checks the header: all these values, a version and the uptime."""
    assert facts.items() >= expected.items() and facts["Version"].count(".") == 2 and facts["Up for"], facts


def check_history(page, server):
    """Checks that the charts begin with the server: they include operations from before the page was opened."""
    # `fill` had finished before the browser opened the page. A sample is taken every two seconds.
    deadline = time.monotonic() + 20
    while True:
        before = json.load(urllib.request.urlopen(server.url.split("#")[0] + "history"))
        if sum(before["operations"]) >= 16 and sum(before["writes"]) >= 2:
            break
        assert time.monotonic() < deadline, before
        time.sleep(0.1)
    assert before["seconds"] == 2, before
    page.open("about:blank", 1280, 900)
    page.open(server.url, 1280, 900)
    wait_until(page, f"document.querySelector('#throughput polyline')?.points.length >= {len(before['operations'])}", "the history is missing")


def sort_slow(page):
    """Sorts by a click on a column, in both orders."""
    shapes = dict(zip(rows(page, "slow", 0), zip(rows(page, "slow", 1), rows(page, "slow", 6), rows(page, "slow", 5))))
    orders = next(shape for shape in shapes if shape.startswith("find shop.orders"))
    assert shapes[orders] == ("5", '{"customer":1,"total":-1}', "COLLSCAN"), shapes
    click = "document.querySelector('#slow [data-key=\"column 1\"]').click()"
    page.evaluate(click)
    down = [int(count) for count in rows(page, "slow", 1)]
    page.evaluate(click)
    up = [int(count) for count in rows(page, "slow", 1)]
    assert down == sorted(down, reverse=True) and up == sorted(up) and down != up, (down, up)
    assert page.evaluate("document.querySelector('#slow th[aria-sort]').ariaSort") == "ascending"


def show_a_front(page):
    """Shows the figures that a front over PostgreSQL has, and a collection with a line separator in its name."""
    page.evaluate("""{
      const real = fetch;
      window.fetch = async (path, options) => {
        const answer = await real(path, options);
        if (path !== "/metrics") return answer;
        const text = (await answer.text()).replace('durability="memory"', 'durability="store"').replaceAll('"orders"', '"or\u2028ders"');
        return new Response(text.replace(/^vellum_(data_bytes|collection_(storage|index)_bytes)[^\\n]*\\n/gm, ""));
      };
    }""")
    wait_until(page, "document.querySelector('#durability').textContent === 'The store determines the durability.'", "wrong durability")
    names, stored = rows(page, "collections", 0), rows(page, "collections", 3)
    assert set(names) == {"shop.or\u2028ders", "shop.people"} and set(stored) == {"–"}, (names, stored)
    tiles = page.evaluate("[...document.querySelectorAll('.tile dt')].map(each => each.textContent)")
    assert "Memory" in tiles and "Data" not in tiles, tiles
    assert page.evaluate("document.querySelector('#trouble').checkVisibility()") is False
    assert not any(word in page.evaluate("document.body.innerText") for word in ["undefined", "NaN"])


def ask_a_slow_server(page):
    """Checks that requests wait for the responses of the requests before."""
    page.evaluate("window.asked = 0; window.fetch = () => { window.asked++; return new Promise(() => {}); }")
    wait_until(page, "window.asked >= 4", "the page asks nothing")
    # Longer than the interval of the requests.
    time.sleep(2.5)
    assert page.evaluate("window.asked") == 4, page.evaluate("window.asked")


def end_operation(page, server, folder):
    """Ends a waiting command by its button; its client gets the error."""
    client = Client(server.uri)
    block = {"failCommands": ["ping"], "blockConnection": True, "blockTimeMS": 60000}
    client.run(configureFailPoint="failCommand", mode="alwaysOn", data=block, **{"$db": "admin"})
    replies = []
    waiting = Client(server.uri)
    thread = threading.Thread(target=lambda: replies.append(waiting.run(ping=1, comment="to be ended", **{"$db": "admin"})))
    thread.start()
    button = "[...document.querySelectorAll('#running tr')].find(row => row.textContent.includes('to be ended'))?.querySelector('button')"
    wait_until(page, f"Boolean({button})", "the operation isn't shown")
    page.screenshot(folder / "page-running.png")
    page.evaluate(f"{button}.click()")
    thread.join(20)
    assert replies and b"Interrupted" in replies[0], replies
    wait_until(page, f"!{button}", "the operation is still shown")


def open_from_log(vellum, page):
    """Checks that the URL in the log has the token, like the URL in the banner."""
    command = [vellum, "--port", "0", "--http", "0", "--parent-pipe", "--log-format", "json"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        url = next(json.loads(line)["attr"]["url"] for line in process.stderr if "HTTP is served" in line)
        page.open("about:blank", 1280, 900)
        page.open(url, 1280, 900)
        wait_until(page, "document.querySelectorAll('.tile').length >= 7", "no figures")
        assert not page.evaluate("document.querySelector('#token').checkVisibility()"), "the page asks for a token"
    finally:
        process.stdin.close()
        process.stderr.close()
        process.wait(20)


def log_in(vellum, folder, page):
    """Checks that the page asks for a login if the server has users."""
    users = {"MONGO_INITDB_ROOT_USERNAME": "root", "MONGO_INITDB_ROOT_PASSWORD": "secret"}
    with Server(vellum, **users) as server:
        assert "#" not in server.url, server.url
        page.open(server.url, 1280, 900)
        wait_until(page, "document.querySelector('#login').checkVisibility()", "the login form is missing")
        page.screenshot(folder / "page-login.png")
        enter = """(password => { const form = document.querySelector('#login form');
            form.user.value = 'root'; form.password.value = password; form.requestSubmit(); })"""
        page.evaluate(f"{enter}('wrong')")
        wait_until(page, "document.querySelector('#trouble').textContent.includes('Authentication failed')", "no error after a wrong password")
        page.evaluate(f"{enter}('secret')")
        wait_until(page, "document.querySelectorAll('.tile').length >= 7", "no page after the right password")
        assert page.evaluate("document.querySelector('#who').textContent") == "logged in as admin.root"
        assert page.evaluate("document.cookie") == "", "a script can read the cookie"
        page.evaluate("document.querySelector('#leave').click()")
        wait_until(page, "document.querySelector('#login').checkVisibility()", "the session did not end")
        try:
            urllib.request.urlopen(server.url + "metrics")
            raise AssertionError("figures without a user")
        except urllib.error.HTTPError as error:
            assert error.code == 401, error
        request = urllib.request.Request(server.url + "metrics")
        request.add_header("Authorization", "Basic " + base64.b64encode(b"root:secret").decode())
        assert b"vellum_info{" in urllib.request.urlopen(request).read()


def log_in_as_reader(vellum, page):
    """Checks that a user without the privilege serverStatus sees the other parts."""
    with tempfile.TemporaryDirectory() as data:
        with Server(vellum, "--data", data) as server:
            Client(server.uri).run(createUser="reader", pwd="secret", roles=["read"], **{"$db": "admin"})
        with Server(vellum, "--data", data, "--auth") as server:
            page.open("about:blank", 1280, 900)
            page.open(server.url, 1280, 900)
            wait_until(page, "document.querySelector('#login').checkVisibility()", "the login form is missing")
            page.evaluate("""(() => { const form = document.querySelector('#login form');
                form.user.value = 'reader'; form.password.value = 'secret'; form.requestSubmit(); })()""")
            wait_until(page, "Boolean(document.querySelector('#running tbody'))", "no running operations")
            seen = page.evaluate(STATE)
            assert not seen["trouble"] and seen["headings"] == ["Operations running now", "Slow queries"], seen


def main(vellum, folder):
    # A hanging browser must not block the tests.
    signal.alarm(SECONDS_MAX)
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with browser.Browser() as page:
        open_page(vellum, folder, page)
        open_disk(vellum, folder, page)
        open_from_log(vellum, page)
        log_in(vellum, folder, page)
        log_in_as_reader(vellum, page)
    print(json.dumps({"pages": "look right", "screenshots": str(folder)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
