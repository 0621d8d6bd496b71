"""Settings that every test shares."""

from hypothesis import HealthCheck, settings

# The same examples on every run and no deadline: a slow machine must not fail a correct program.
settings.register_profile(
    "tidelog",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tidelog")
