#!/usr/bin/env python3
"""A session of a real browser (headless Chromium) with its profile here: each page of a local site is visited, several times, with images,
a script, cookies and local storage. As BBench does it, there is no network beside the machine's own."""

import http.server
import os
import random
import shutil
import subprocess
import threading

from common import SEED, Skip, Text, main

PAGES = 10
ROUNDS = 4


def site(directory):
    numbers, text = random.Random(SEED), Text(SEED)
    shared = numbers.randbytes(200_000)
    for page in range(PAGES):
        images = "".join(f'<img src="{page}-{n}.bin">' for n in range(6)) + '<img src="shared.bin">'
        for n in range(6):
            with open(os.path.join(directory, f"{page}-{n}.bin"), "wb") as file:
                file.write(numbers.randbytes(40_000 + 10_000 * n))
        script = (
            "document.cookie='seen=' + Date.now() + ';max-age=99999';"
            f"for (let n = 0; n < 50; n++) localStorage.setItem('{page}-' + n, 'x'.repeat(200) + Math.random());"
        )
        body = text.take(60_000).decode(errors="replace")
        with open(os.path.join(directory, f"{page}.html"), "w") as file:
            file.write(f"<title>{page}</title><script>{script}</script>{images}<pre>{body}</pre>")
    with open(os.path.join(directory, "shared.bin"), "wb") as file:
        file.write(shared)


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def end_headers(self):
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()


def make(job, path):
    os.makedirs(path)
    site(path)


def source(job):
    return job.source("site", lambda path: make(job, path))


def run(job):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise Skip("chromium is not installed")
    pages = source(job)
    handler = lambda *args: Handler(*args, directory=pages)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    visits = 0
    for _ in range(job.scaled(ROUNDS, least=1)):
        for page in range(PAGES):
            subprocess.run(
                [
                    browser,
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    "--no-first-run",
                    f"--user-data-dir={job.path('profile')}",
                    "--timeout=3000",
                    "--dump-dom",
                    f"http://127.0.0.1:{server.server_port}/{page}.html",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=120,
            )
            visits += 1
    server.shutdown()
    return visits


main(run, source)
