"""What things cost on a Machine, as pure functions over columns: the only reader of its numbers in the simulator.

A tile and a computation (`tiles`), a message (`messages`, over `routes`), a launch (`launches`), bytes that move or are
summed inside a rank (`memory`), a call of the library (`collectives`); all by the machine's speed curves (`rates`).
`steps` prices a whole Plan with them, and the closed form asks the same functions.
"""
