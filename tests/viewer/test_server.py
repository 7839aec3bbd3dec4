"""The server of the page over HTTP, without a browser."""

import asyncio
import http.client
import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp
import pytest

from pennpde.viewer import server
from pennpde.viewer.server import MOST_BYTES
from problems import rectangle
from waiting import waited_for

pytestmark = pytest.mark.slow  # starts the server


@pytest.fixture
def ask(address):
    """Send a request, and return status, headers and body of the answer."""
    parts = urlsplit(address)

    def asked(method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
        try:
            given = {key: value.format(port=parts.port) for key, value in (headers or {}).items()}
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    return asked


def view(ask, **content):
    """Status, and the last line: the view, or what is wrong with the request."""
    status, _, body = ask("POST", "/view", json.dumps(content))
    if status != 200:
        return status, body.decode()
    last = json.loads(body.splitlines()[-1])
    return (422, last["error"]) if "error" in last else (200, last)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Host": "elsewhere.example"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/index.html", "/start"])
def test_other_sites_may_not_use_the_server(ask, path, headers, status):
    found, answered, _ = ask("GET", path, headers=headers)
    assert found == status
    assert "default-src 'self'" in answered.get("Content-Security-Policy", "") or status == 403


def test_a_view_is_words_and_a_record_and_its_number_is_that_of_the_request(ask):
    status, words = view(ask, source="template", name="a", values={"first": 0.2, "resolution": 6})
    assert status == 200
    assert words["title"] == "Step 0.20"
    assert words["predicted"]
    status, headers, _ = ask("GET", f"/record/{words['view']}")
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    _, again = view(ask, source="template", name="a", values={"resolution": 6.0, "first": 0.2})
    assert again == words  # with the times of the first: it was not computed again
    _, other = view(ask, source="template", name="a", values={"first": 0.3, "resolution": 6})
    assert other["view"] != words["view"]


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        ({"source": "template", "name": "z"}, 422, "no design 'z'"),
        ({"source": "template", "name": "a", "values": {"viscosity": 0}}, 422, "larger than zero"),
        ({"source": "dataset", "name": "../../etc/passwd"}, 422, "no case"),
        ({"source": "upload", "name": "0" * 32}, 410, "upload it again"),
        ({"source": "elsewhere", "name": "a"}, 422, "must be template"),
        ({"source": "template", "name": "a" * 10**5}, 413, "exceeded"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_words(ask, content, status, words):
    found, said = view(ask, **content)
    assert found == status
    assert words in said


def test_what_is_no_json_is_refused(ask):
    assert ask("POST", "/view", b"\xff{")[0] == 422
    assert ask("GET", "/record/" + "0" * 24)[0] == 404
    assert ask("GET", "/upload/" + "0" * 32)[0] == 410
    assert ask("GET", "/web/../server.py")[0] == 404


def test_a_short_link_leads_back_to_the_view(ask):
    state = "%7B%22frame%22%3A3%7D"
    status, _, body = ask("POST", "/share", state)
    assert status == 200
    path = json.loads(body)["path"]
    assert len(path) == 12
    status, headers, _ = ask("GET", f"/{path}")
    assert (status, unquote(headers["Location"])) == (302, unquote(f"/#{state}"))
    assert ask("GET", "/s/0123456789")[0] == 404
    assert ask("POST", "/share", "")[0] == 422
    assert ask("POST", "/share", "x" * 40_000)[0] == 422


def test_a_prediction_is_downloaded_as_a_picture_for_print(ask):
    status, words = view(ask, source="template", name="a", values={"resolution": 6})
    assert status == 200
    status, headers, body = ask("GET", f"/download/{words['view']}/step.pdf?field=p&frame=0")
    assert status == 200
    assert body.startswith(b"%PDF")
    assert 'filename="step.pdf"' in headers["Content-Disposition"]
    assert ask("GET", f"/download/{words['view']}/step.exe")[0] == 404


def test_an_upload_has_a_key_of_its_own_and_is_found_again_by_it(ask, tmp_path):
    rectangle((6, 3), (2.0, 1.0)).save(tmp_path / "mine.vtu")
    found = [
        json.loads(ask("POST", "/upload?name=mine.vtu", (tmp_path / "mine.vtu").read_bytes())[2]) for _ in range(2)
    ]
    assert found[0]["key"] != found[1]["key"]
    assert found[0]["points"] == 28
    assert json.loads(ask("GET", f"/upload/{found[0]['key']}")[2]) == found[0]
    for each in found:  # the second does not replace the first
        status, words = view(ask, source="upload", name=each["key"])
        assert (status, words["predicted"]) == (200, False)
        roles = ["wall" if role == "wall" else role for role in each["roles"]]
        status, words = view(ask, source="upload", name=each["key"], roles=roles)
        assert (status, words["predicted"], words["file"]) == (200, True, "mine")


def test_the_server_itself_refuses_too_much(address):
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.putrequest("POST", "/upload?name=huge.vtu")
    connection.putheader("Content-Length", str(MOST_BYTES + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert "50 MB" in answer.read().decode()
    connection.close()


def with_page(network_folder, use):
    """A page in this process, and a session with it."""

    async def run():
        page = server.Page(str(network_folder), workers=1)
        ready = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(page.run("127.0.0.1", 0, ready.set_result))
        try:
            await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
            async with aiohttp.ClientSession(base_url=ready.result()) as session:
                await use(page, session)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        assert not Path(page._folder.name).exists()

    waited_for(run())


def test_the_oldest_uploads_make_room_for_new_ones(network_folder, tmp_path, monkeypatch):
    """With limits that two small meshes reach."""
    monkeypatch.setattr(server, "MOST_STORED", 1)
    rectangle((6, 3), (2.0, 1.0)).save(tmp_path / "mine.vtu")
    content = (tmp_path / "mine.vtu").read_bytes()

    async def use(page, session):
        keys = []
        for _ in range(2):
            async with session.post("upload", params={"name": "mine.vtu"}, data=content) as answer:
                keys.append((await answer.json())["key"])
        async with session.get(f"upload/{keys[0]}") as first, session.get(f"upload/{keys[1]}") as second:
            assert (first.status, second.status) == (410, 200)
        assert {path.name for path in Path(page._folder.name).iterdir()} == {keys[1]}

    with_page(network_folder, use)


def test_progress_comes_before_the_view_no_draft_of_another_shape_and_who_leaves_is_forgotten(
    network_folder,
):
    async def use(page, session):
        start = await (await session.get("start")).json()
        example = start["examples"][0]
        async with asyncio.timeout(120):
            while len(page._views._ready) < len(start["examples"]):  # nobody has asked for them
                await asyncio.sleep(0.05)
        view, go, asked = page._pool.view, asyncio.Event(), []

        async def slow(request, *others, **named):
            asked.append(request["values"]["first"])
            await go.wait()
            return await view(request, *others, **named)

        page._pool.view = slow

        def moved(first):
            return session.post("view", json={**example, "values": {**example["values"], "first": first}})

        async with moved(0.5) as left:
            assert "progress" in json.loads(await left.content.readline())
        async with moved(0.4) as answer:
            first = json.loads(await answer.content.readline())
            assert "draft" not in first  # all that is ready has another shape
            assert first["progress"]["before"] in (0, 1)
            async with asyncio.timeout(60):
                while len(page._views._asked) > 1:  # the other connection was closed before its turn came
                    await asyncio.sleep(0.05)
            assert asked == [0.5, 0.4]
            go.set()
            lines = [json.loads(line) for line in (await answer.read()).splitlines()]
        assert lines[-1]["title"] == "Step 0.40"
        assert lines[-1]["asked"]["values"]["first"] == 0.4
        assert all(line.keys() == {"progress"} for line in lines[:-1])
        assert page._views.find(lines[-1]["view"]) is not None
        assert len(page._views._ready) == len(start["examples"]) + 1  # nobody computed the view of the one who left

    with_page(network_folder, use)
