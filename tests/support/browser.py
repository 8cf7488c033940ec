"""A real browser, headless, that loads pages from this machine alone and says what it saw."""

import contextlib
import functools
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FOUND = next((path for path in map(shutil.which, NAMES) if path), None)

# Measures every page in a frame of each width. The pages themselves are left as they are.
WRAPPER = """<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><body>
<script>
const jobs = JOBS, found = [];
function sticksOut(frame, node) {
  if (node.closest("svg, .tbv-wide")) return false;  // wide tables scroll in their own box
  return node.getBoundingClientRect().right > frame.contentDocument.documentElement.clientWidth + 1;
}
function measure(frame, job) {
  const page = frame.contentDocument, root = page.documentElement, nodes = [...page.body.querySelectorAll("*")];
  const images = [...page.images];
  found.push({
    ...job, title: page.title, clientWidth: root.clientWidth, scrollWidth: root.scrollWidth,
    images: images.length,
    broken: images.filter(one => !one.complete || !one.naturalWidth).map(one => one.src.slice(0, 60)),
    sticking: nodes.filter(node => sticksOut(frame, node)).slice(0, 5).map(node => node.outerHTML.slice(0, 120)),
    loaded: frame.contentWindow.performance.getEntriesByType("resource").map(one => one.name.slice(0, 80))
      .filter(name => !name.startsWith("data:")),
    scripts: page.scripts.length, background: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    letters: page.body.innerText.length, links: [...page.links].filter(one => !page.querySelector(one.hash)).length,
    pieces: page.querySelectorAll("svg path[d='']").length,
  });
}
for (const job of jobs) {
  const frame = document.createElement("iframe");
  frame.style = `border:0;width:${job.width}px;height:900px`;
  frame.src = job.name;
  frame.onload = () => measure(frame, job);
  document.body.append(frame);
}
window.onload = () => {
  const out = document.createElement("pre");
  out.id = "result";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
};
</script>"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    asked: list[str]

    def log_request(self, code="-", size="-"):
        self.asked.append(self.path)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def _serving(folder):
    asked: list[str] = []
    handler = functools.partial(type("Handler", (_Quiet,), {"asked": asked}), directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1], asked
        finally:
            server.shutdown()
            thread.join()


def measured(folder: Path, names: list[str], widths: list[int], dark: bool = False):
    """(what was measured of each page at each width, the paths that were asked for, the console's lines)"""
    jobs = [{"name": name, "width": width} for name in names for width in widths]
    (folder / "wrapper.html").write_text(WRAPPER.replace("JOBS", json.dumps(jobs)))
    with _serving(folder) as (port, asked):
        command = [
            str(FOUND), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
            "--disable-extensions", "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=20000",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            "--dump-dom", f"http://127.0.0.1:{port}/wrapper.html",
        ]  # fmt: skip
        plain = os.environ | {"LD_PRELOAD": ""}  # a browser hangs with the sanitizers' allocator
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=plain)
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found[1])), asked, console
