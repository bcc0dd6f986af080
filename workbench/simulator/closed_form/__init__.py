"""How long each scheme takes, in closed form: pieces, slices, and what waits for them."""
