"""A room of the workbench."""
