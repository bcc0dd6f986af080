"""A notebook or a stored run as one file to keep: `export` is the door, every other file here is one step of it."""
