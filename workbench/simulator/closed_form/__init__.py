"""Closed forms: estimates of how long each scheme takes, for many schedules at once and without playing a Plan."""
