"""A headless Chromium, driven through the DevTools protocol; nothing is downloaded."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 30.0  # seconds


def found() -> str | None:
    """Return the browser of this machine; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class BrowserError(RuntimeError):
    """The browser does not start, or a script in the page throws."""


class Browser:
    """One browser with one page: a context manager."""

    def __init__(self, program: str) -> None:
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.log = (Path(self.folder.name) / "log").open("wb")
        self.process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
                "--no-first-run",
                f"--user-data-dir={self.folder.name}/profile",
                "--remote-debugging-port=0",
                "about:blank",
            ],
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, "HOME": self.folder.name},
        )
        self.calls = 0
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        self.socket: ClientConnection | None = None
        self.held = contextlib.ExitStack()
        try:
            opened = connect(self._address(), max_size=None, open_timeout=PATIENCE)
            self.socket = self.held.enter_context(opened)
            (target,) = [
                each
                for each in self.call("Target.getTargets")["targetInfos"]
                if each["type"] == "page"
            ]
            attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            self.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def _address(self) -> str:
        """Return where the browser listens, once it has said so."""
        port = Path(self.folder.name) / "profile" / "DevToolsActivePort"
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            if port.is_file() and len(lines := port.read_text().splitlines()) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            time.sleep(0.05)
        log = (Path(self.folder.name) / "log").read_text(errors="replace")
        raise BrowserError(f"the browser does not start: {log[-500:]}")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its folder."""
        if self.socket is not None:
            self.session = None
            self.call("Browser.close")
            self.socket = None
            self.held.close()
        elif self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()

    # -- the protocol -------------------------------------------------------------------------

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result; events are kept."""
        assert self.socket is not None
        self.calls += 1
        message: dict[str, Any] = {"id": self.calls, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv(PATIENCE))
            if answer.get("id") == self.calls:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript in the page and return its value; a promise is awaited."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            text = details.get("exception", {}).get("description") or details["text"]
            raise BrowserError(text)
        return result["result"].get("value")

    def said(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of every event of a kind since the page was opened."""
        self.run("0")  # whatever was under way has arrived
        return [event["params"] for event in self.events if event.get("method") == method]

    # -- the page -----------------------------------------------------------------------------

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file from scratch and wait until its explorer stands."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri() + (f"#{fragment}" if fragment else ""))
        self.wait_for("document.readyState === 'complete' && !!globalThis.explorer?.state")

    def wait_for(self, condition: str) -> None:
        """Wait until a condition holds in the page."""
        end = time.monotonic() + PATIENCE
        while not self.run(condition):
            if time.monotonic() > end:
                raise BrowserError(f"waited in vain for {condition}")
            time.sleep(0.02)

    def view(self, width: int, height: int, scale: float = 1.0) -> None:
        """Set the size of the window, and pixels per CSS pixel."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def scheme(self, value: str) -> None:
        """Prefer the light or the dark scheme."""
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": value}],
        )

    def mouse(self, kind: str, at: Mapping[str, float], button: str = "none") -> None:
        """Send a mouse event at a point of the window."""
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=at["x"],
            y=at["y"],
            button=button,
            clickCount=int(button != "none"),
        )

    def click(self, at: Mapping[str, float]) -> None:
        """Move to a point and click there."""
        self.mouse("mouseMoved", at)
        self.mouse("mousePressed", at, "left")
        self.mouse("mouseReleased", at, "left")

    def press(self, *keys: str) -> None:
        """Press keys, by their names in ``KeyboardEvent.key``."""
        codes: Mapping[str, Sequence[Any]] = {
            "Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), "ArrowLeft": (37, ""),
            "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, ""), "Home": (36, ""),
            "End": (35, ""),
        }  # fmt: skip
        for key in keys:
            code, text = codes.get(key, (ord(key.upper()[0]), key))
            more = {"text": text} if text else {}
            for kind in ("keyDown", "keyUp"):
                self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    code=key,
                    windowsVirtualKeyCode=code,
                    **(more if kind == "keyDown" else {}),
                )

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))
