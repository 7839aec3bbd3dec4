"""Error against time of networks and OpenFOAM on the same flows and the same machine.

measure       networks on the cases of a sweep, and who beats whom
presentation  table and words
figure        the figure
"""
