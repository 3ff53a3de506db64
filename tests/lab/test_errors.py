"""Errors of the houses above the core, where processes hand them on."""

from __future__ import annotations

import pickle

from mmroute import Reason
from mmroute.lab.parity.oracles.common import OracleError
from mmroute.server.bundle import BundleError


def test_errors_survive_a_process_boundary() -> None:
    errors = (
        OracleError("gone", Reason.MISSING_FILE),
        BundleError(Reason.BUNDLE_REFUSED, "text"),
    )  # fmt: skip
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
