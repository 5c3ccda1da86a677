"""Properties are judged by what they find, not by how fast two shared cores find it."""

from hypothesis import HealthCheck, settings

settings.register_profile("shared cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared cores")
