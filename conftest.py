"""What all tests share: properties draw the same examples in each run, and none fails for being slow."""

from hypothesis import settings

settings.register_profile("repository", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repository")
