"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no reason to fail: hypothesis looks for wrong results here, not for slow ones.
settings.register_profile("skylog", deadline=None)
settings.load_profile("skylog")
