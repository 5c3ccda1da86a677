"""Properties are judged by what they find, not by how fast two shared cores find it."""

from hypothesis import HealthCheck, settings

from tests.support.bounds import examples

settings.register_profile(
    "shared cores", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared cores")
