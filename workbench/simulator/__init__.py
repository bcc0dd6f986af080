"""Estimates of trials: Plans played on pools, closed forms over whole spaces, and the prices that both share."""
