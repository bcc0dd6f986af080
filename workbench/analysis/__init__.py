"""Analysis of measurements: accuracy of estimates, best known schedules, published numbers, kernel counters."""
