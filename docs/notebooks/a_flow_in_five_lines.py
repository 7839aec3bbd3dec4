# %% [markdown]
# # A flow in five lines
#
# A mesh with names for its sides, what holds there, a viscosity: that is a flow. `flow` predicts it at any time.
# First a mesh to have one; your own comes from a file, `penn.read("duct.msh")`.

# %%
import numpy as np

import pennpde as penn

x, y = np.meshgrid(np.linspace(0, 4, 81), np.linspace(0, 1, 21), indexing="ij")
y = y * (1 - 0.4 * np.exp(-(((x - 1.5) / 0.3) ** 2)))  # a throat
number = np.arange(x.size).reshape(x.shape)
quads = np.stack([number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]], axis=-1).reshape(-1, 4)
penn.Mesh.from_arrays(np.stack([x.ravel(), y.ravel()], axis=1), quads).save("duct.vtu")

# %% [markdown]
# The five lines:

# %%
mesh = penn.read("duct.vtu").with_patches({"inlet": "x == 0", "outlet": "x == 4", "wall": "rest"})
inflow = {"u": {"inlet": (1.0, 0.0), "wall": 0.0}, "p": {"outlet": 0.0}}
slopes = {"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "wall": 0.0}}
case = penn.Case(mesh, {"u": (0.0, 0.0), "p": 0.0}, inflow, slopes, parameters={"viscosity": 5e-3})
outcome = penn.predict("flow", case, times=[0.5, 2.0, 6.0])

# %% [markdown]
# What came out, at the last of the times, and how wrong it may be. The expected error is estimated for this very
# prediction; nine of ten predictions are within the bound.

# %%
outcome.plot()

# %%
print(outcome.expected.grade)
for name, error in outcome.expected.errors.items():
    print(f"{name}: expected relative error {error}")

# %% [markdown]
# Fields are arrays over the points, `outcome.fields` has them as tensors; a steady state is a time like any other.

# %%
steady = penn.predict("flow", case, times=[penn.STEADY])
change = np.linalg.norm(steady["u"] - outcome["u"][..., -1]) / np.linalg.norm(steady["u"])
print(f"at t = 6 the velocity still differs by {change:.1%} from the steady state")
outcome.save("duct.vtkhdf")  # ParaView plays the times
