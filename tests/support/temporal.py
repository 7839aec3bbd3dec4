"""Files with several times, read as ParaView reads them."""

from pathlib import Path

import pyvista


def steps_of(path: Path) -> dict[float, pyvista.UnstructuredGrid]:
    """The times of a temporal .vtkhdf file as VTK's own reader finds them, which ParaView uses."""
    from vtkmodules.vtkIOHDF import vtkHDFReader

    reader = vtkHDFReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    found = {}
    for step in range(reader.GetNumberOfSteps()):
        reader.SetStep(step)
        reader.Update()
        grid = pyvista.UnstructuredGrid()
        grid.DeepCopy(reader.GetOutput())
        found[reader.GetTimeValue()] = grid
    return found


def frames_of(path: Path) -> dict[float, pyvista.UnstructuredGrid]:
    """The times that a .pvd file lists."""
    reader = pyvista.PVDReader(path)
    found = {}
    for time in reader.time_values:
        reader.set_active_time_value(time)
        grid = reader.read()[0]
        assert isinstance(grid, pyvista.UnstructuredGrid)
        found[time] = grid
    return found
