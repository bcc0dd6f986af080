"""Reports: a notebook or a stored run as one file. `export` is the entry point; the other modules are its steps."""
