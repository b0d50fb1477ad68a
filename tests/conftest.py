"""What all tests share: hypothesis measures no time, for the machine is shared."""

from hypothesis import settings

settings.register_profile("gangline", deadline=None)
settings.load_profile("gangline")
