"""`examples/kv_aware_routing.py`: a router by block hashes finds all that came before."""

from __future__ import annotations

import kv_aware_routing
import pytest


def test_by_overlap_the_hit_rate_is_the_best_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kv_aware_routing.py"])
    kv_aware_routing.main()
    _, in_turn, by_overlap, best = capsys.readouterr().out.splitlines()
    rates = [
        float(line.split("%")[0].rsplit(maxsplit=1)[-1]) for line in (in_turn, by_overlap, best)
    ]
    assert rates[0] < rates[1] == rates[2] == 80
