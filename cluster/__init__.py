"""The same trial on many devices at once: the only room that knows Dask."""
