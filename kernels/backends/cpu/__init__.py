"""Ranks as processes on shared memory: real arithmetic, real copies, an emulated link."""
