"""The modules of the pages, judged by tsc and eslint and run by node, where node is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.javascript.node_tools import (
    STATIC,
    NoNodeTools,
    fetch_packages,
    run_node,
    write_tsconfig,
)

TESTS = Path(__file__).parent / "javascript"


@pytest.fixture(scope="module")
def packages(cache_dir: Path) -> Path:
    """``node_modules`` with the judges of the lock."""
    try:
        return fetch_packages(cache_dir)
    except NoNodeTools as error:
        pytest.skip(f"NOT CHECKED: the console's modules: {error}")


def test_the_types_of_the_modules_fit(packages: Path, tmp_path: Path) -> None:
    tsc = packages / "typescript/bin/tsc"
    assert run_node(tsc, "-p", write_tsconfig(tmp_path, packages)) == ""


def test_tsc_would_find_a_fault(packages: Path, tmp_path: Path) -> None:
    fault = tmp_path / "fault.js"
    fault.write_text(
        f'import {{ fill }} from "{STATIC}/texts.js";\nfill({{}}, 5);\n', encoding="utf-8"
    )
    settings = write_tsconfig(tmp_path, packages)
    text = settings.read_text(encoding="utf-8").replace(f'"{STATIC}/**/*"', f'"{fault}"')
    settings.write_text(text, encoding="utf-8")
    assert "fault.js(2," in run_node(packages / "typescript/bin/tsc", "-p", settings)


def test_the_modules_follow_the_rules(packages: Path) -> None:
    eslint, rules = packages / "eslint/bin/eslint.js", packages.parent / "eslint.config.mjs"
    assert run_node(eslint, "--config", rules, "console/static") == ""


def test_eslint_would_find_what_the_policy_forbids(packages: Path, tmp_path: Path) -> None:
    eslint, rules = packages / "eslint/bin/eslint.js", packages.parent / "eslint.config.mjs"
    (tmp_path / "fault.js").write_text(
        "document.body.innerHTML = location.hash;\neval('1');\n", encoding="utf-8"
    )
    said = run_node(eslint, "--config", rules, "fault.js", cwd=tmp_path)
    assert "no-restricted-properties" in said
    assert "no-eval" in said


def test_the_feed_in_the_browser_keeps_its_rules(packages: Path) -> None:
    said = run_node("--test", *sorted(TESTS.glob("*.test.mjs")))
    assert "exit code" not in said, said
    assert "# pass 0" not in said
