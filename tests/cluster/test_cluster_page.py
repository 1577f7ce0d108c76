"""The page: one file that holds everything it shows."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nimble.cluster import Job, Options, Profile, parse, simulate
from nimble.cluster import page as pages
from nimble.cluster.metrics import metrics
from nimble.cluster.page import Run, page, unpack
from nimble.cluster.page.pack import Packed, rounded
from nimble.cluster.policies.fifo import Fifo
from nimble.cluster.policy import REASONS
from nimble.cluster.record import What

CHATTY = Profile("chatty", 1.0, (12_500_000_000,))


def ran(jobs, cluster="2x2x2", policy=None, **options):
    result = simulate(parse(cluster), jobs, policy or Fifo(), Options(record_rates=True, **options))
    return Run("fifo", result, metrics(result))


def some_jobs(count=40):
    rng = np.random.default_rng(3)
    return [
        Job(
            i, f"job{i}", float(i), gpus, gpus, int(rng.integers(5, 60)), CHATTY, tenant=f"t{i % 3}"
        )
        for i, gpus in enumerate(rng.choice([1, 2, 4, 8], count).tolist())
    ]


def told(html):
    found = re.search(r'<script type="application/json" id="told">(.*?)</script>', html, re.S)
    assert found is not None
    return json.loads(found[1])


def column(data, ref):
    return unpack(data["blobs"][ref["blob"]], ref["type"])


def test_it_fetches_nothing():
    html = page([ran(some_jobs())])
    for outside in ("src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "http://"):
        assert outside not in html


def test_it_holds_every_row_of_every_job_in_order():
    run = ran(some_jobs())
    data = told(page([run]))
    (shown,) = data["runs"]
    rows = {name: column(data, ref) for name, ref in shown["rows"].items() if name != "numbers"}
    place = part = 0
    for job, count in enumerate(rows["count"].tolist()):
        ticks = 0
        for event in run.result.record.of_job(job):
            ticks += int(rows["since"][place])
            assert ticks * shown["tick"] == pytest.approx(event.at_s, abs=shown["tick"])
            assert rows["what"][place] == event.what
            assert shown["codes"][rows["code"][place]] == event.reason.code
            machines = int(rows["parts"][place])
            there = slice(part, part + machines)
            assert tuple(
                zip(rows["machine"][there].tolist(), rows["gpus"][there].tolist(), strict=True)
            ) == (event.placement)
            for number, ref in zip(event.reason.numbers, shown["rows"]["numbers"], strict=False):
                assert column(data, ref)[place] == pytest.approx(number, rel=1e-3)
            place, part = place + 1, part + machines
            count -= 1
        assert count == 0
    assert place == len(run.result.record)
    assert shown["words"]["backfilled"] == REASONS["backfilled"]


def test_loads_of_links_are_what_the_jobs_sent_over_them():
    # Alone on two machines: one second of computing, one of sending at the link's full speed.
    run = ran([Job(0, "job0", 0.0, 2, 2, 100, CHATTY)], "2x1")
    data = told(page([run]))
    links = data["runs"][0]["links"]
    assert links["names"] == ["machine0", "machine1"]
    load = column(data, links["load"]).reshape(2, -1) / 200
    assert load == pytest.approx(np.full_like(load, 0.5), abs=0.01)


def test_no_link_is_ever_more_than_full_when_jobs_share_it():
    run = ran(some_jobs(60), "4x2x2")
    data = told(page([run]))
    links = data["runs"][0]["links"]
    load = column(data, links["load"])
    assert load.max() <= 201
    assert load.max() > 100
    assert min(share for _, _, share in run.result.record.rates()) < 1


def test_curves_have_the_mean_use_of_the_gpus_and_the_mean_queue():
    run = ran(some_jobs())
    data = told(page([run]))
    curves = data["runs"][0]["curves"]
    result = run.result
    span = result.end_s
    assert column(data, curves["busy"]).mean() == pytest.approx(
        result.gpu_s.sum() / (result.topology.gpus * span), rel=1e-3
    )
    assert column(data, curves["queue"]).mean() == pytest.approx(
        result.waited_s.sum() / span, rel=1e-3
    )


def test_a_name_cannot_end_the_script():
    name = "</script><b>&"
    run = ran([Job(0, name, 0.0, 1, 1, 5, CHATTY)])
    html = page([run], title=name)
    assert name not in html
    assert told(html)["runs"][0]["jobs"]["names"] == [name]


def test_runs_of_the_same_jobs_share_what_is_the_same():
    run = ran(some_jobs())
    one, two = page([run]), page([run, run])
    assert len(told(two)["blobs"]) == len(told(one)["blobs"])


def test_of_very_many_jobs_each_nth_is_listed(monkeypatch):
    monkeypatch.setattr(pages, "ROWS", 50)
    run = ran(some_jobs(40))
    data = told(page([run]))
    (shown,) = data["runs"]
    every = shown["every"]
    assert every == -(-len(run.result.record) // 50)
    assert column(data, shown["jobs"]["id"]).tolist() == list(range(0, 40, every))
    assert shown["metrics"]["jobs"] == 40


def test_outages_are_shown():
    run = ran([Job(0, "job0", 0.0, 1, 1, 50, CHATTY)])
    record = run.result.record
    record.add(10.0, What.DOWN, -1, (), "", (1,))
    record.add(30.0, What.UP, -1, (), "", (1,))
    assert told(page([run]))["runs"][0]["outages"] == [[1, 10.0, 30.0]]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.float32])
def test_packing_loses_nothing(kind):
    values = (np.arange(1000) * 7919 % 60000).astype(kind)
    packed = Packed()
    ref = packed.add(values)
    assert (unpack(packed.blobs[ref["blob"]], ref["type"]) == values).all()
    assert packed.add(values.copy()) == ref


def test_rounding_keeps_whole_numbers_and_four_figures():
    values = np.array([82247.0, 0.123456, 1e7 + 0.5, np.nan, 3.14159])
    found = rounded(values)
    assert found[0] == 82247
    assert np.isnan(found[3])
    assert found[[1, 2, 4]] == pytest.approx(values[[1, 2, 4]], rel=3e-4)


LAYOUT = """
const GUTTER = 92, css = () => '', drawn = [];
const pen = { fillText: (text, x, y) => drawn.push(y) };
%s
const tier = [...Array(16).fill(1), ...Array(233).fill(0)], d = { links: { names: tier, tier } };
const rows = layLinks(d, 'place', 420), name = nameRows(pen);
for (let row = 0; row < 249; row++) name(`m${row}`, (rows.top(row) + rows.top(row + 1)) / 2);
const found = [];
for (let y = 0.5; y < 420; y++) found.push([y, rows.top(rows.at(y)), rows.top(rows.at(y) + 1)]);
console.log(JSON.stringify({ drawn, found, racks: rows.top(16) }));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the page's scripts")
def test_names_beside_a_picture_do_not_overlap_and_racks_keep_theirs():
    folder = Path(pages.__file__).parent
    charts, links = ((folder / name).read_text() for name in ("charts.js", "links.js"))
    used = [
        re.search(rf"function {name}\(.*?\n}}", text, re.DOTALL)[0]
        for name, text in (("nameRows", charts), ("layLinks", links))
    ]
    told = subprocess.run(
        ["node", "-e", LAYOUT % "\n".join(used)], check=True, capture_output=True, text=True
    )
    shown = json.loads(told.stdout)
    assert np.diff(shown["drawn"]).min() >= 12
    assert sum(y < shown["racks"] for y in shown["drawn"]) == 16
    for y, top, bottom in shown["found"]:  # what is pointed at is what is drawn there
        assert top <= y <= bottom
