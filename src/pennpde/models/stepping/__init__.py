"""Steps from any state: the general network for plane laminar flow.

network     a case in, fields at any times out
march       steps in a row
scheme      one step
captured    the same on a GPU, replayed
correction  what is learned
poles       pressures in corners where the velocity jumps
problem     a flow on dual cells, as tensors
kept        prepared problems, as long as there is room for them
grid        cells, conditions and start of a case, split where they are coarse
"""
