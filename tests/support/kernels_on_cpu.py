"""Runs kernels that are written for a GPU by threads of the CPU: their arithmetic is tested where there is none.

The threads of a block are threads here, too, and meet at barriers; blocks run one after the other.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from torch import Tensor

THREADS = 4
_BEFORE = """
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>
using std::sqrt; using std::ceil;
#define ON_CPU
#define WARP 1
#define SHARED static
#define LAUNCH static void
#define BODY inline
struct Three { int x; };
static thread_local Three threadIdx, blockIdx;
static Three blockDim;
static std::barrier<>* meeting;
static double* cpu_shared;
static void __syncthreads() { meeting->arrive_and_wait(); }
static int atomicAdd(int* place, int value) { return __atomic_fetch_add(place, value, __ATOMIC_RELAXED); }
"""
_AFTER = """
extern "C" void run(int blocks, int threads, long long shared, void** table) {
    std::vector<double> memory(shared / 8 + 1);
    std::barrier<> own(threads);
    cpu_shared = memory.data(), meeting = &own, blockDim.x = threads;
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; t++) workers.emplace_back([=] {
        threadIdx.x = t;
        for (int b = 0; b < blocks; b++) { blockIdx.x = b; NAME(CALL); __syncthreads(); }
    });
    for (auto& worker : workers) worker.join();
}
"""


@cache
def _built(source: str, name: str, arrays: int) -> ctypes.CDLL:
    folder = Path(tempfile.gettempdir()) / "pennpde-kernels-on-cpu"
    folder.mkdir(exist_ok=True)
    kinds = next(line for line in source.splitlines() if line.startswith("#define ARGUMENTS")).split(" ", 2)[2]
    call = ", ".join(f"({each.rsplit(' ', 1)[0]})table[{place}]" for place, each in enumerate(kinds.split(", ")))
    assert call.count("table") == arrays
    text = _BEFORE + source + _AFTER.replace("NAME", name).replace("CALL", call)
    library = folder / f"{hashlib.sha256(text.encode()).hexdigest()}.so"
    if not library.exists():
        code = library.with_suffix(".cpp")
        code.write_text(text, encoding="utf-8")
        command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", str(code), "-o", str(library)]
        subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def launch(source: str, name: str, blocks: int, arrays: list[Tensor], shared: int) -> None:
    """As `marched_together.Launch`."""
    table = (ctypes.c_void_p * len(arrays))(*(each.data_ptr() for each in arrays))
    _built(source, name, len(arrays)).run(blocks, THREADS, ctypes.c_longlong(shared), table)
