"""docs/view.md: its examples are run, in order and in one folder, and print what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from apportion import cli

PAGE = Path(__file__).parents[2] / "docs" / "view.md"
BLOCK = re.compile(r"(?:^`(?P<name>[\w.]+)`\n\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_example_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = []
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if block["kind"] == "jsonl":
            Path(block["name"]).write_text(block["body"], encoding="utf-8")
        elif block["kind"] == "sh":
            monkeypatch.setattr("sys.argv", shlex.split(block["body"]))
            with pytest.raises(SystemExit):
                cli.main()
        elif block["kind"] == "python":
            exec(block["body"], {})
        else:
            printed.append(capsys.readouterr().out)
            assert printed[-1] == block["body"]

    assert len(printed) == 3
    assert "credit by <strong>vineppo" in Path("credit.html").read_text(encoding="utf-8")
    assert "Looks well" in Path("page.html").read_text(encoding="utf-8")
