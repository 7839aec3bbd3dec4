"""Views that are computed once for all who wait, remembered within a limit, and dropped when nobody waits."""

import asyncio
import math

import pytest

from pennpde.viewer.views import Moments, Request, Shown, Views, distance, is_large
from waiting import waited_for

SPANS = {"first": 1.0, "speed": 2.9}


def step(first: float, name: str = "a", **others) -> Request:
    return Request("template", name, tuple(sorted({"first": first, **others}.items())))


class Bench:
    """Computes a view when told to, in place of a process."""

    def __init__(self, size: int = 1):
        self.size, self.idle, self.computed = size, asyncio.Semaphore(1), []
        self.go = asyncio.Event()

    async def compute(self, computation) -> Shown:
        async with self.idle:
            computation.begin()
            await self.go.wait()
            self.computed.append(computation.request)
            if computation.request.name == "wrong":
                raise ValueError("wrong in a way")
            words = {"view": computation.request.number, "predicted": computation.request.name != "mesh"}
            return Shown(computation.request, words, b"x" * self.size)


def with_views(use, size: int = 1, **limits):
    async def run():
        bench = Bench(size)
        views = Views(bench.compute, **limits)
        views.spans = SPANS
        try:
            return await use(views, bench)
        finally:
            await views.close()

    return waited_for(run())


async def view(views, request, large=False):
    with views.wanted(request, large) as computation:
        return await asyncio.shield(computation.task)


async def a_moment():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_view_is_computed_once_for_all_who_wait():
    async def use(views, bench):
        waiting = [asyncio.create_task(view(views, step(0.3))) for _ in range(20)]
        await a_moment()
        waiting.pop().cancel()  # one who leaves does not take it from the others
        await a_moment()
        bench.go.set()
        found = await asyncio.gather(*waiting)
        assert len(set(found)) == 1
        assert bench.computed == [step(0.3)]
        assert views.find(step(0.3).number) is found[0]

    with_views(use)


def test_what_nobody_waits_for_leaves_the_queue_and_what_is_begun_is_finished():
    async def use(views, bench):
        waiting = [asyncio.create_task(view(views, step(first))) for first in (0.1, 0.2, 0.3)]
        await a_moment()
        for each in waiting[:2]:
            each.cancel()
        await a_moment()
        bench.go.set()
        await waiting[2]
        assert bench.computed == [step(0.1), step(0.3)]
        # Who asks for the dropped one later gets it.
        assert (await view(views, step(0.2))).request == step(0.2)

    with_views(use)


def test_who_comes_right_after_the_last_one_left_gets_the_view():
    async def use(views, bench):
        first = asyncio.create_task(view(views, step(0.1)))
        second = asyncio.create_task(view(views, step(0.2)))
        await a_moment()
        second.cancel()
        await asyncio.sleep(0)  # it is being cancelled
        third = asyncio.create_task(view(views, step(0.2)))
        await a_moment()
        bench.go.set()
        assert (await third).request == step(0.2)
        await first

    with_views(use)


def test_an_error_reaches_all_who_wait_and_is_not_remembered():
    async def use(views, bench):
        waiting = [asyncio.create_task(view(views, step(0.3, "wrong"))) for _ in range(2)]
        bench.go.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(each) for each in found] == ["wrong in a way"] * 2
        assert views.find(step(0.3, "wrong").number) is None

    with_views(use)


def test_the_oldest_views_make_room_but_examples_stay():
    async def use(views, bench):
        bench.go.set()
        await views.prepare(step(0.37))
        for first in (0.1, 0.2, 0.3, 0.4):
            await view(views, step(first))
        remembered = [first for first in (0.37, 0.1, 0.2, 0.3, 0.4) if views.find(step(first).number)]
        assert remembered == [0.37, 0.3, 0.4]

    with_views(use, size=10, most_bytes=30)


def test_a_draft_is_the_nearest_prediction_of_the_same_design():
    async def use(views, bench):
        bench.go.set()
        assert views.nearest(step(0.5)) is None
        for request in (step(0.1), step(0.6), step(0.5, "b"), step(0.5, "mesh")):
            await view(views, request)
        assert views.nearest(step(0.5)).request == step(0.6)
        assert views.nearest(step(0.2)).request == step(0.1)
        assert views.nearest(step(0.5, "mesh")) is None  # a mesh without a prediction says nothing about the flow
        assert views.nearest(step(0.5, "c")) is None

    with_views(use)


def test_progress_counts_those_before_and_knows_the_usual_time():
    async def use(views, bench):
        waiting = [asyncio.create_task(view(views, step(first))) for first in (0.1, 0.2, 0.3)]
        await a_moment()
        with views.wanted(step(0.3), large=False) as third:
            told = views.progress(third)
            assert told == {"before": 1, "seconds": 0.0, "usual_seconds": None, "stage": "", "share": 0.0, "left": None}
        with views.wanted(step(0.1), large=False) as first:
            assert views.progress(first)["before"] == 0
        bench.go.set()
        await asyncio.gather(*waiting)
        with views.wanted(step(0.4), large=False) as fourth:
            assert views.progress(fourth)["usual_seconds"] >= 0.0

    with_views(use)


def test_the_time_left_is_told_by_how_far_a_march_is():
    async def use(views, bench):
        with views.wanted(step(0.1), large=False) as computation:
            await a_moment()
            computation.hear("marching", 0.0)
            assert views.progress(computation)["left"] is None
            await asyncio.sleep(0.2)
            computation.hear("marching", 0.5)
            left = views.progress(computation)["left"]
            assert 0.15 < left < 0.6  # as long again, and a little for what follows
            computation.hear("a second march", 0.0)
            assert views.progress(computation)["left"] is None
            bench.go.set()

    with_views(use)


def test_a_picture_of_another_shape_is_never_a_draft():
    same, other = step(0.5, viscosity=0.002), step(0.51, viscosity=0.001)
    wanted = step(0.5, viscosity=0.001)
    shapes = frozenset({"first"})
    assert distance(wanted, other, {"first": 1.0}) < distance(wanted, same, {"first": 1.0})
    assert math.isinf(distance(wanted, other, {"first": 1.0}, shapes))
    assert math.isfinite(distance(wanted, same, {"first": 1.0}, shapes))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (step(0.5, viscosity=0.001), 0.0),
        (step(0.7, viscosity=0.001), 0.2),
        (step(0.5, viscosity=0.002), math.log(2)),  # a Reynolds number of twice the size, wherever it starts
        (step(0.5, viscosity=0.0), math.inf),
        (step(0.5), math.inf),
        (step(0.5, "b", viscosity=0.001), math.inf),
        (Request("template", "a", step(0.5, viscosity=0.001).values, moments=Moments(2.0)), 1.0),
    ],
)
def test_distance_of_requests(other, expected):
    request = step(0.5, viscosity=0.001)
    assert distance(request, other, SPANS) == pytest.approx(expected)
    assert distance(other, request, SPANS) == pytest.approx(expected)


def test_what_takes_long_is_large():
    assert not is_large(step(0.5, resolution=22.5), 0)
    assert is_large(step(0.5, resolution=60.0), 0)
    assert is_large(Request("template", "a", moments=Moments(steady=True)), 0)
    assert is_large(Request("upload", "0" * 32), 20_000)
