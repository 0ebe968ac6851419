"""Settings of all tests. In CI hypothesis draws the same examples each time; elsewhere it looks for new ones."""

import os

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
