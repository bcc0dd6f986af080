"""Prices on a Machine, as pure functions over columns: only this package reads the machine's numbers in the simulator.

`tiles`, `gemm` and `latency` price computation, `messages` routes and puts, `collectives` library calls. `rates` prices
copies, sums and launches by the machine's speed curves, `shared` kernels that share SMs, `networks` larger networks.
`steps` prices a whole Plan with them, and the closed form uses the same functions.
"""
