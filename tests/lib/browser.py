# SPDX-License-Identifier: MIT
"""Look at a page of nullb-compare in a browser without a window.

browser.py PAGE DIRECTORY [full] [LOOK]...

Opens the file in chromium-headless-shell, checks what a reader would see, and
leaves pictures in the directory.  LOOK is light-desk, light-phone, dark-desk or
dark-phone: all of them unless said.  `full`: there are pictures of each kind.
The browser is spoken to through two pipes (--remote-debugging-pipe): a JSON
object, then a zero byte.  Exit: 0, or 1 and a sentence for each thing found.
"""
import base64
import io
import json
import os
import pathlib
import select
import subprocess
import sys
import time

import html5lib
from PIL import Image

BROWSER = "chromium-headless-shell"
WAIT_S = 90
WIDTHS = {"desk": 1100, "phone": 390}
MAX_HEIGHT = 16000
# How far a pixel may be from a colour, red, green and blue added up: the edge of
# a line is half of what is behind it.
NEAR = 120
MIN_PIXELS = 20  # of a side's colour in a plot
MIN_CONTRAST = 4.5  # of text: WCAG 2.1, 1.4.3 (AA)
MIN_PLOT_CONTRAST = 3  # of what a picture is read by: 1.4.11
MIN_APART = 60  # between the sides' colours, for whoever sees no red, or green

found = []


def wrong(what):
    found.append(what)
    print("FAILED:", what)


class Browser:
    def __init__(self, directory):
        to_it, self.write = os.pipe()
        self.read, from_it = os.pipe()
        # a shell moves them to 3 and 4, where the browser looks for them
        command = [
            "sh", "-c", 'exec "$@" 3<&%d 4>&%d' % (to_it, from_it), "sh",
            BROWSER, "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--disable-dev-shm-usage", "--remote-debugging-pipe",
            "--user-data-dir=" + os.path.join(directory, "profile"),
            "about:blank"]
        self.log = open(os.path.join(directory, "browser.log"), "wb")
        self.process = subprocess.Popen(
            command, pass_fds=(to_it, from_it), stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log)
        os.close(to_it)
        os.close(from_it)
        self.buffer = b""
        self.number = 0
        self.events = []
        self.session = None

    def message(self):
        end = time.monotonic() + WAIT_S
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise SystemExit("%s: no answer in %d s" % (BROWSER, WAIT_S))
            data = os.read(self.read, 1 << 20)
            if not data:
                raise SystemExit(BROWSER + ": it ended, see browser.log")
            self.buffer += data
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data):]
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def attach(self):
        target = self.ask("Target.createTarget", url="about:blank")
        self.session = self.ask("Target.attachToTarget", flatten=True,
                                targetId=target["targetId"])["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def open(self, url):
        self.events = []
        self.ask("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired"
                      for e in self.events):
            self.events.append(self.message())

    def run(self, script):
        answer = self.ask("Runtime.evaluate", expression=script,
                          returnByValue=True)
        if "exceptionDetails" in answer:
            raise SystemExit("script: %s" % answer["exceptionDetails"])
        return answer["result"].get("value")

    def picture(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width,
                 height=height, deviceScaleFactor=1, mobile=width < 600)
        data = base64.b64decode(
            self.ask("Page.captureScreenshot", format="png")["data"])
        return data, Image.open(io.BytesIO(data)).convert("RGB")

    def end(self):
        if self.process.poll() is None:
            try:
                self.session = None
                self.ask("Browser.close")
            except (SystemExit, OSError):
                pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


# What a script in the page finds; colours as [red, green, blue].
LOOK = r"""(() => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d',
        { willReadFrequently: true });
    const rgb = text => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = text;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    /* what is behind it */
    const behind = e => {
        for (; e; e = e.parentElement) {
            const c = rgb(getComputedStyle(e).backgroundColor);
            if (c[3] == 255)
                return c;
        }
        return [255, 255, 255, 255];
    };
    const paint = e => {
        const s = getComputedStyle(e);
        return rgb(s.stroke != 'none' ? s.stroke : s.fill);
    };
    const box = e => {
        const r = e.getBoundingClientRect();
        return [r.left, r.top + scrollY, r.right, r.bottom + scrollY];
    };
    const shown = e => e.checkVisibility() && e.getClientRects().length > 0;
    const root = document.documentElement;
    const texts = [], odd = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const e = walk.currentNode.parentElement, t = walk.currentNode.data;
        if (!t.trim() || !shown(e) || e.tagName == 'title')
            continue;
        const s = getComputedStyle(e), svg = e.closest('svg');
        texts.push({ text: t.trim().slice(0, 40), of: behind(e),
            colour: rgb(svg ? s.fill : s.color) });
        /* a label that leaves its picture */
        if (svg) {
            const a = box(e), b = box(svg);
            if (a[0] < b[0] - 1 || a[2] > b[2] + 1 || a[1] < b[1] - 1 ||
                a[3] > b[3] + 1)
                odd.push(`"${t.trim()}" leaves its picture`);
            const size = parseFloat(s.fontSize) * svg.getScreenCTM().a;
            if (size < 7.5)
                odd.push(`"${t.trim()}" is ${size.toFixed(1)} pixels small`);
        }
    }
    const plots = [];
    for (const svg of document.querySelectorAll('svg')) {
        if (!shown(svg))
            continue;
        const sides = {};
        for (const side of ['base', 'other']) {
            const e = svg.querySelector('.' + side);
            if (e)
                sides[side] = paint(e);
        }
        const labels = [...svg.querySelectorAll('text')].map(e =>
            [e.textContent, ...box(e)]);
        for (let i = 0; i < labels.length; i++)
            for (let k = i + 1; k < labels.length; k++) {
                const [t, l, top, r, b] = labels[i];
                const [u, x, y, z, w] = labels[k];
                if (Math.min(r, z) - Math.max(l, x) > 1 &&
                    Math.min(b, w) - Math.max(top, y) > 4)
                    odd.push(`"${t}" is on "${u}"`);
            }
        plots.push({ title: svg.querySelector('title')?.textContent,
            heat: !!svg.querySelector('[class^=heat]'), sides: sides,
            box: box(svg), behind: behind(svg),
            named: svg.getAttribute('role') == 'img' });
    }
    const wide = [...document.body.querySelectorAll('*')].filter(e => {
        if (!shown(e) || e.closest('svg') && e.tagName != 'svg')
            return false;
        for (let p = e.parentElement; p; p = p.parentElement)
            if (getComputedStyle(p).overflowX == 'auto')
                return false;
        return box(e)[2] > root.clientWidth + 1;
    }).map(e => e.tagName + ': ' + e.textContent.slice(0, 40));
    return { background: behind(document.body), texts: texts, plots: plots,
        odd: odd, wide: wide, width: root.scrollWidth, room: root.clientWidth,
        height: root.scrollHeight, title: document.title,
        details: document.querySelectorAll('details').length,
        tables: [...document.querySelectorAll('table')].map(t =>
            [t.querySelectorAll('th[scope=col]').length,
             t.querySelectorAll('th[scope=row]').length,
             t.querySelectorAll('tbody tr').length]) };
})()"""


def luminance(colour):
    def linear(c):
        c /= 255
        return c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
    r, g, b = (linear(c) for c in colour[:3])
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    a, b = sorted((luminance(a), luminance(b)))
    return (b + 0.05) / (a + 0.05)


# What is left of a colour for who sees no red, no green: Vienot, Brettel and
# Mollon 1999, on the values as they are, which is near enough for a bound.
BLIND = {
    "red": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "green": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def seen(colour, matrix):
    return [sum(m * c for m, c in zip(row, colour)) for row in matrix]


def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a[:3], b[:3]))


def pixels_of(image, box, colour):
    part = image.crop(tuple(int(round(v)) for v in box))
    colours = part.getcolors(part.width * part.height) or []
    return sum(n for n, c in colours if distance(c, colour) <= NEAR)


def check_colours(where, look):
    for t in look["texts"]:
        c = contrast(t["colour"], t["of"])
        if c < MIN_CONTRAST:
            wrong('%s: contrast of "%s" is %.1f, %.1f is needed'
                  % (where, t["text"], c, MIN_CONTRAST))
    for p in look["plots"]:
        for side, colour in p["sides"].items():
            c = contrast(colour, p["behind"])
            if c < MIN_PLOT_CONTRAST:
                wrong("%s: %s: contrast of %s is %.1f" % (where, p["title"],
                                                         side, c))
        if len(p["sides"]) < 2:
            continue
        for who, matrix in BLIND.items():
            apart = distance(seen(p["sides"]["base"], matrix),
                             seen(p["sides"]["other"], matrix))
            if apart < MIN_APART:
                wrong("%s: %s: who sees no %s cannot tell the sides: %.0f"
                      % (where, p["title"], who, apart))


def check_pictures(where, look, image, full):
    both = 0
    for p in look["plots"]:
        if not p["title"] or not p["named"]:
            wrong("%s: a picture without a title, or a role" % where)
        for side, colour in p["sides"].items():
            n = pixels_of(image, p["box"], colour)
            if n < MIN_PIXELS:
                wrong("%s: %s: %d pixels of %s" % (where, p["title"], n, side))
        both += len(p["sides"]) == 2
    heat = sum(p["heat"] for p in look["plots"])
    print("%s: %d pictures of both sides, %d heat maps" % (where, both, heat))
    if full and (both < 10 or heat != 2):
        wrong("%s: %d pictures of both sides, %d heat maps: 10 and 2 there are"
              % (where, both, heat))


def check_ground(where, image, look, dark):
    ground = image.getpixel((2, 2))
    if distance(ground, look["background"]) > 6:
        wrong("%s: the corner is %s, not %s"
              % (where, ground, look["background"]))
    if dark != (luminance(ground) < 0.1) or dark == (luminance(ground) > 0.8):
        wrong("%s: the ground is %s" % (where, ground))
    counts = sorted(n for n, _ in image.getcolors(1 << 24))
    if len(counts) < 50 or counts[-1] > 0.995 * sum(counts):
        wrong("%s: it is blank" % where)


def check_layout(where, look):
    if look["width"] > look["room"]:
        wrong("%s: %d pixels wide, there are %d" % (where, look["width"],
                                                   look["room"]))
    for what in look["wide"][:5]:
        wrong("%s: too wide: %s" % (where, what))
    for what in look["odd"][:10]:
        wrong("%s: %s" % (where, what))


def check_events(browser, url):
    requests = 0
    for e in browser.events:
        method, params = e.get("method"), e.get("params", {})
        if method == "Network.requestWillBeSent":
            requests += 1
            if params["request"]["url"] != url:
                wrong("it asks for " + params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            wrong("exception: %s" % params)
        elif method == "Runtime.consoleAPICalled":
            wrong("console: %s" % params["args"])
        elif method == "Log.entryAdded":
            wrong("log: %s" % params["entry"]["text"])
    if requests != 1:
        wrong("%d requests, one is needed" % requests)


# On paper nobody can unfold anything.
FOLDED = """[...document.querySelectorAll('details *')].filter(
    e => !e.checkVisibility()).length"""


def check_print(browser):
    if browser.run(FOLDED) == 0:
        wrong("nothing is folded on the screen")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    nr = browser.run(FOLDED)
    if nr:
        wrong("print: %d elements are folded" % nr)
    browser.ask("Emulation.setEmulatedMedia", media="")


def check_html(path):
    try:
        html5lib.HTMLParser(strict=True).parse(path.read_bytes(),
                                               transport_encoding="utf-8")
    except html5lib.html5parser.ParseError as e:
        wrong("HTML: %s" % e)
    if path.stat().st_size >= 1 << 20:
        wrong("%d bytes" % path.stat().st_size)


def look_at(browser, path, directory, where, scheme, width, full):
    browser.ask("Emulation.setEmulatedMedia", features=[
        {"name": "prefers-color-scheme", "value": scheme}])
    browser.ask("Emulation.setDeviceMetricsOverride", width=width,
                height=900, deviceScaleFactor=1,
                mobile=width < 600)
    browser.open(path.as_uri())
    check_events(browser, path.as_uri())
    # so that all of it is in the picture
    height = min(browser.run(
        "document.documentElement.scrollHeight"), MAX_HEIGHT)
    data, image = browser.picture(width, height)
    look = browser.run(LOOK)
    name = "%s-%s.png" % (path.stem, where)
    pathlib.Path(directory, name).write_bytes(data)
    if image.size != (width, height):
        wrong("%s: a picture of %s" % (where, image.size))
    check_ground(where, image, look, scheme == "dark")
    check_layout(where, look)
    check_colours(where, look)
    check_pictures(where, look, image, full)
    if full:
        check_print(browser)
    for col, row, rows in look["tables"]:
        if col != 5 or row != rows or rows == 0:
            wrong("%s: a table of %d rows has %d heads of columns"
                  " and %d of rows" % (where, rows, col, row))


def main():
    path, directory = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    full = "full" in sys.argv[3:]
    every = [a + "-" + b for a in ("light", "dark") for b in WIDTHS]
    looks = [a for a in sys.argv[3:] if a != "full"] or every
    if not set(looks) <= set(every):
        raise SystemExit("a look is one of " + ", ".join(every))
    check_html(path)
    browser = Browser(directory)
    try:
        browser.attach()
        for where in looks:
            scheme, device = where.split("-")
            look_at(browser, path, directory, where, scheme, WIDTHS[device],
                    full)
    finally:
        browser.end()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
