"""Actions of tests on a page in a browser. Nothing sleeps: each action waits until the page has reacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builders.report import made_page

if TYPE_CHECKING:
    from pathlib import Path

WAIT = 60
"""Seconds that a machine with other work may need for anything."""


COPIED = """window.copied = (chart) => {
  const {canvas} = loadtest.charts[chart].plot.ctx;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  return copy;
}"""
"""What is drawn, as a copy that may be read: the page's own canvas stays as it is."""


class Browser:
    """A page in a browser. :param driver: selenium's driver. :param file: path for the page, which is opened as a user opens it."""

    def __init__(self, driver: Any, file: Path) -> None:
        self.driver, self.file = driver, file

    def open(self, html: str, place: str = "") -> None:
        """Show a page, without the state of an earlier test. :param place: an id on it."""
        self.file.write_text(html, encoding="utf-8")
        self.cdp(
            "Emulation.setEmulatedMedia",
            media="",
            features=[{"name": "prefers-color-scheme", "value": "light"}],
        )
        self.cdp("Emulation.clearDeviceMetricsOverride")
        self.console()
        self.driver.get("about:blank")
        self.driver.get(self.file.as_uri() + place)
        self.run(COPIED)

    def open_charts(
        self, charts: dict[str, Any], bands: list[dict[str, Any]] | None = None
    ) -> None:
        """Show these charts on the real page, and wait until all are drawn."""
        self.open(made_page(charts, bands or []))
        self.draw()

    def draw(self) -> None:
        """Draw all charts, also those out of sight."""
        self.run("loadtest.draw()")
        self.until(
            "return Object.values(loadtest.charts).every(entry => entry.plot && entry.painted)"
        )

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script. :returns: its result."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> Any:
        """Wait until the script returns something true."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, WAIT, poll_frequency=0.05).until(
            lambda _: self.run(script, *arguments), message=script
        )

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(command, parameters)

    def console(self) -> list[str]:
        """Return the console's lines since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def find(self, selector: str) -> Any:
        """Return the first matching element."""
        return self.driver.find_element("css selector", selector)

    def over(self, chart: str) -> Any:
        """Return the area of a chart's lines, after scrolling it into sight."""
        self.run(
            "document.querySelector(`figure[data-chart='${arguments[0]}']`).scrollIntoView({block: 'center'})",
            chart,
        )
        return self.find(f"figure[data-chart='{chart}'] .u-over")

    def hover(self, chart: str, share: float, height: float = 0.5) -> None:
        """Move the mouse to shares of the area's width and height, from the upper left."""
        from selenium.webdriver import ActionChains

        area = self.over(chart)
        x, y = (
            round(size * (at - 0.5))
            for size, at in zip(
                (area.size["width"], area.size["height"]), (share, height), strict=True
            )
        )
        ActionChains(self.driver, duration=0).move_to_element_with_offset(area, x, y).perform()

    def drag(self, chart: str, start: float, end: float) -> None:
        """Mark a part of a chart with the mouse."""
        from selenium.webdriver import ActionChains

        width = self.over(chart).size["width"]
        self.hover(chart, start)
        actions = ActionChains(self.driver, duration=0).click_and_hold()
        actions.move_by_offset(round(width * (end - start)), 0).release().perform()

    def double_click(self, chart: str) -> None:
        """Double-click in the middle of a chart."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver, duration=0).double_click(self.over(chart)).perform()

    def view(self, chart: str) -> list[float]:
        """Return the visible range of x."""
        return self.run(
            "const {min, max} = loadtest.charts[arguments[0]].plot.scales.x; return [min, max]",
            chart,
        )

    def told(self, chart: str) -> str:
        """Return the page's text about the point under the cursor, with the values in the legend."""
        figure = self.find(f"figure[data-chart='{chart}']")
        words = [one.text for one in figure.find_elements("css selector", ".told, .legend .value")]
        return " | ".join(word for word in words if word)

    def pixels(
        self, chart: str, colour: str, x: float, y: float, width: float, height: float
    ) -> int:
        """Return the number of pixels of the canvas with about this colour of the page (a custom property)."""
        return self.run(
            """const [chart, name, ...box] = arguments;
            const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
            const wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
            const {data} = window.copied(chart).getImageData(...box.map(Math.round));
            let found = 0;
            for (let i = 0; i < data.length; i += 4) found += wanted.every((part, k) => Math.abs(part - data[i + k]) < 24) && data[i + 3] > 200;
            return found;""",
            chart, colour, x, y, width, height,
        )  # fmt: skip
