"""GPU tests run where there is a GPU; whatever is skipped is said at the end, with its reason."""

from __future__ import annotations

import collections

import pytest

from lowering.verification.checker import machine_name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked ``gpu`` where there is no CUDA device; a browser is slow."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and machine_name() != "device":
        skip = pytest.mark.skip(reason="no CUDA device: nothing ran on a GPU")
        for item in marked:
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per reason: how many tests were skipped, and why."""
    reasons = collections.Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, count in reasons.items():
        tests = "test" if count == 1 else "tests"
        terminalreporter.write_line(f"SKIPPED {count} {tests}: {reason}", yellow=True)
