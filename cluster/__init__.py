"""Runs the same trial on many devices at once; this is the only room that uses Dask."""
