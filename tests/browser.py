"""A real Chromium for tests, driven by chromedriver over its plain HTTP interface (W3C WebDriver): nothing to install
besides Debian's chromium and chromium-driver, which `tests/install_chromium` does for `make test-slow`."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014"}
KEYS |= {"Down": "\ue015", "Shift": "\ue008"}
PATIENCE = 15.0  # seconds: the machine may be busy


class Browser:
    """A window without a screen. What a page writes to its console and what it asks the network for is kept."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
        if missing:
            raise RuntimeError(
                f"no {' and no '.join(missing)} here: tests/install_chromium gets them (Debian, as root)"
            )
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._driver.stdout is not None
        port = next(found[1] for line in self._driver.stdout if (found := re.search(r"on port (\d+)\.", line)))
        self._address = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        asked = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._session = ""
        self._session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": asked}})["sessionId"]

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()

    def _call(self, verb: str, path: str, body: Any = None) -> Any:
        address = f"{self._address}/session/{self._session}{path}" if self._session else self._address + path
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, content, {"Content-Type": "application/json"}, method=verb)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, address: str) -> None:
        self._call("POST", "/url", {"url": "about:blank"})  # else another #state of the same page would not load it
        self._call("POST", "/url", {"url": address})

    @property
    def address(self) -> str:
        return str(self._call("GET", "/url"))

    def back(self) -> None:
        self._call("POST", "/back", {})

    def forward(self) -> None:
        self._call("POST", "/forward", {})

    def run(self, script: str, *arguments: Any) -> Any:
        """The body of a function in the page; what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script: str, *arguments: Any) -> Any:
        """What an expression gives as soon as that is true."""
        end = time.monotonic() + PATIENCE
        while not (found := self.run(f"return {script}", *arguments)):
            if time.monotonic() > end:
                raise AssertionError(f"never true: {script}")
            time.sleep(0.05)
        return found

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)"
        return [str(text) for text in self.run(script, selector)]

    def click(self, selector: str) -> None:
        (element,) = self._call("POST", "/element", {"using": "css selector", "value": selector}).values()
        self._call("POST", f"/element/{element}/click", {})

    def press(self, *keys: str) -> None:
        """Keys by name, or texts, one after the other."""
        for key in keys:
            codes = [KEYS[key]] if key in KEYS else list(key)
            actions = [{"type": kind, "value": code} for code in codes for kind in ("keyDown", "keyUp")]
            self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        """What the system is set to: dark or light."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def scripts(self, allowed: bool) -> None:
        self.devtools("Emulation.setScriptExecutionDisabled", value=not allowed)

    def console(self) -> list[str]:
        """What was written there since it was last asked for."""
        return [str(entry["message"]) for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Addresses that pages asked for since it was last asked for."""
        entries = self._call("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [str(address) for address in sent]

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))
