"""Each format of traces: what is read, what is left out, what is said of bad rows."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared_data import shared

from nimble.cluster.mixes import DALLY_MODELS
from nimble.cluster.profiles import bundled
from nimble.cluster.topology import parse
from nimble.cluster.traces import read_trace
from nimble.cluster.work import alone_on
from nimble.errors import InputError

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,2,5902.0,6214e9
2017-11-08 07:33:10,1896.0,1,1896.0,6c71a0
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,uX,vcJ,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
12,uV,vch,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
13,uV,vch,0,16,1,COMPLETED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:45:36,249,0
14,uV,vch,8,16,1,CANCELLED,2020-06-09 18:41:29,,,0,0
"""
PAI = """aa,ps,1.0,Terminated,1000.0,1500.0,600.0,29.3,,CPU
aa,worker,2.0,Terminated,1010.0,1510.0,600.0,29.3,50.0,MISC
bb,tensorflow,3.0,Failed,900.0,2000.0,600.0,29.3,150.0,V100
cc,worker,1.0,Running,900.0,,600.0,29.3,100.0,T4
dd,evaluator,1.0,Terminated,900.0,950.0,600.0,29.3,25.0,T4
dd,worker,1.0,Terminated,950.0,1000.0,600.0,29.3,25.0,T4
"""
GAVEL = (
    "ResNet-50 (batch size 64)\tpython3 main.py\twhere\t--n\t1\t1000\t4\t1\t-1.000000\t5.5\n"
    "LM (batch size 5)\tpython3 main.py\twhere\t--n\t0\t99\t1\t5\t-1.000000\t0.0\n"
)
GAVEL_OLD = "A3C\tcd %s && python3 x.py\t-step\t1\t95121\t6.000000\t1\n"
PLAIN = """name,submit_s,gpus,duration_s,tenant
first,10,1,100,a
second,5,8,50.5,b
"""


def written(tmp_path, text, name="trace.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def seconds(profile, gpus):
    return profile.compute_s


def test_philly(tmp_path):
    trace = read_trace(written(tmp_path, PHILLY))
    assert trace.format == "philly"
    jobs = trace.jobs(seconds, bundled())
    # By submission, the first at 0; the row of 06:13:03 comes first.
    assert [job.gpus_max for job in jobs] == [2, 1, 1]
    assert jobs[0].submit_s == 0
    assert jobs[1].submit_s == 48 * 60 + 52
    assert [job.tenant for job in jobs] == ["6214e9", "11cb48", "6c71a0"]
    assert all(job.gpus_min == job.gpus_max for job in jobs)
    for job, duration in zip(jobs, (2951, 66, 1896), strict=True):
        assert job.iterations == max(1, round(duration / job.profile.compute_s))


def test_philly_in_its_original_json(tmp_path):
    attempt = {
        "start_time": "2017-10-07 01:12:09",
        "end_time": "2017-10-07 01:13:09",
        "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}],
    }
    job = {"status": "Pass", "vc": "ee9e8c", "jobid": "a1", "attempts": [attempt, attempt],
           "submitted_time": "2017-10-07 01:11:39", "user": "u"}  # fmt: skip
    jobs = [
        job,
        {**job, "attempts": []},
        {**job, "attempts": [{**attempt, "end_time": None}]},
        {"jobid": "broken"},
        {**job, "jobid": "a2"},
    ]
    trace = read_trace(written(tmp_path, json.dumps(jobs), "cluster_job_log"))
    assert trace.format == "philly"
    assert [(entry.gpus, entry.duration_s, entry.name) for entry in trace.entries] == [
        (3, 120.0, "a1"), (3, 120.0, "a2"),
    ]  # fmt: skip
    assert sum(trace.report.skipped.values()) == 2
    assert [bad.row for bad in trace.report.bad] == [4]


def test_helios_leaves_out_jobs_without_gpus_or_time_and_counts_them(tmp_path):
    trace = read_trace(written(tmp_path, HELIOS))
    assert trace.format == "helios"
    assert [(entry.gpus, entry.duration_s, entry.tenant) for entry in trace.entries] == [
        (1, 36848.0, "vcJ"), (4, 249.0, "vch"),
    ]  # fmt: skip
    assert trace.report.skipped == {"it asks for no GPU": 1, "it ran for no time": 1}
    assert trace.report.rows == 4
    assert trace.report.bad == []


@pytest.mark.parametrize("header", [True, False])
def test_pai_joins_the_tasks_of_a_job(tmp_path, header):
    names = (
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    )
    trace = read_trace(written(tmp_path, f"{names}\n{PAI}" if header else PAI))
    assert trace.format == "pai"
    found = {entry.name: (entry.submit_s, entry.gpus, entry.duration_s) for entry in trace.entries}
    # 2 x 50 % are one GPU, 3 x 150 % five; two quarters at different times still need one.
    assert found == {"aa": (1010, 1, 500), "bb": (900, 5, 1100), "dd": (900, 1, 100)}
    assert sum(trace.report.skipped.values()) == 2


def test_gavel_in_both_of_its_formats(tmp_path):
    trace = read_trace(written(tmp_path, GAVEL))
    assert trace.format == "gavel"
    first, second = trace.jobs(seconds, bundled())
    assert (first.profile.name, first.iterations, first.priority) == ("LM (batch size 5)", 99, 4)
    # A step is one GPU's batch: 1,000 of them are 250 iterations of four GPUs.
    assert (second.gpus_max, second.iterations, second.submit_s) == (4, 250, 5.5)
    old = read_trace(written(tmp_path, GAVEL_OLD)).jobs(seconds, bundled())
    assert (old[0].profile.name, old[0].iterations, old[0].gpus_max) == ("A3C", 95121, 1)


def test_plain(tmp_path):
    trace = read_trace(written(tmp_path, PLAIN))
    jobs = trace.jobs(seconds, bundled())
    assert [(job.name, job.gpus_max, job.submit_s, job.tenant) for job in jobs] == [
        ("second", 8, 0, "b"), ("first", 1, 5, "a"),
    ]  # fmt: skip


def test_plain_with_models_iterations_and_elastic_jobs(tmp_path):
    text = "submit_s,gpus,gpus_min,iterations,model,priority\n0,8,2,500,resnet50,3\n"
    (job,) = read_trace(written(tmp_path, text)).jobs(seconds, bundled())
    assert (job.gpus_min, job.gpus_max, job.iterations, job.priority) == (2, 8, 500, 3)
    assert job.profile.name == "resnet50"


def test_bad_rows_are_counted_listed_and_left_out(tmp_path):
    bad = (
        "2017-10-09 07:01:55,-3,1,66.0,x\n"
        "yesterday,66.0,1,66.0,x\n"
        "2017-10-09 07:01:55,66.0,1\n"
        "2017-10-09 07:01:55,66.0,1.5,99.0,x\n"
        "2017-10-09 07:01:55,66.0,4,66.0,x\n"
        "2017-10-09 07:01:55,nan,4,66.0,x\n"
    )
    trace = read_trace(written(tmp_path, PHILLY + PHILLY.split("\n", 1)[1] * 2 + bad))
    assert trace.report.jobs == 9
    assert [(row.row, row.reason) for row in trace.report.bad] == [
        (11, "duration is -3; expected 0 to 1e+12"),
        (12, "timestamp is 'yesterday'; expected a time like 2017-10-09 07:01:55"),
        (13, "it has not as many columns as the header"),
        (14, "num_gpus is 1.5; expected a whole number"),
        (15, "gpu_time is 66.0, and 4 GPUs x 66.0 s is another"),
        (16, "duration is nan; expected 0 to 1e+12"),
    ]
    assert "bad rows 6" in trace.report.text()
    assert "and 4 more" in trace.report.text(most=2)


def test_strict_makes_the_first_bad_row_an_error(tmp_path):
    path = written(tmp_path, PLAIN + "7,0,5\n")
    with pytest.raises(InputError, match=r"trace\.csv, row 4: it has not as many columns"):
        read_trace(path, strict=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", r"first line is 'a,b'; expected \(philly\) columns timestamp"),
        ("", "the file is empty: there are no jobs in it"),
        (" \n\n", "the file is empty"),
        ("[]", "a philly trace without rows: there are no jobs in it"),
        (
            "job_id,vc,gpu_num,submit_time,duration\n1,a,0,2020-04-01 00:00:00,5\n",
            "(?s)no row is a job for GPUs.*left out 1: it asks for no GPU",
        ),
        ("submit_s,gpus,duration_s\nx,1,1\ny,1,1\n0,1,1\n", "a broken one"),
        ("submit_s,gpus,duration_s\n", "a plain trace without rows: there are no jobs in it"),
        ("[1, 2", "looks like JSON, but is not"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        read_trace(written(tmp_path, text))


def test_a_named_format_is_the_only_one_tried(tmp_path):
    with pytest.raises(InputError, match=r"expected \(helios\) columns job_id"):
        read_trace(written(tmp_path, PHILLY), "helios")
    with pytest.raises(InputError, match="expected one of philly, helios, pai, gavel, plain"):
        read_trace(written(tmp_path, PHILLY), "slurm")
    with pytest.raises(InputError, match="No such file"):
        read_trace(tmp_path / "nowhere.csv")


def test_compressed_files_are_read(tmp_path):
    with gzip.open(tmp_path / "trace.csv.gz", "wt") as file:
        file.write(PHILLY)
    assert read_trace(tmp_path / "trace.csv.gz").report.jobs == 3


def test_models_without_a_profile_are_named(tmp_path):
    text = "submit_s,gpus,duration_s,model\n0,1,10,gpt9\n"
    with pytest.raises(InputError, match="no profile for gpt9; known: A3C"):
        read_trace(written(tmp_path, text)).jobs(seconds, bundled())


def many_rows(count):
    rows = [f"{place * 7},1,{100 + place}" for place in range(count)]
    return "submit_s,gpus,duration_s\n" + "\n".join(rows) + "\n"


def models(trace, **how):
    return [job.profile.name for job in trace.jobs(seconds, bundled(), **how)]


def test_models_are_drawn_by_weight_and_seed(tmp_path):
    trace = read_trace(written(tmp_path, many_rows(4000)))
    drawn = models(trace)
    assert models(trace) == drawn
    assert models(trace, seed=1) != drawn
    total = sum(weight for _, weight in DALLY_MODELS)
    for name, weight in DALLY_MODELS:
        assert drawn.count(name) / 4000 == pytest.approx(weight / total, abs=0.03)


def test_a_rows_model_does_not_depend_on_the_rows_around_it(tmp_path):
    text = many_rows(50)
    whole = models(read_trace(written(tmp_path, text)))
    head, *rows = text.splitlines()
    half = models(read_trace(written(tmp_path, "\n".join([head, *rows[1::2]]))))
    assert half == whole[1::2]


def test_models_are_the_same_in_every_process(tmp_path):
    path = written(tmp_path, many_rows(20))
    program = (
        "import sys; from nimble.cluster.traces import read_trace; "
        "from nimble.cluster.profiles import bundled; "
        "print([j.profile.name for j in read_trace(sys.argv[1]).jobs(lambda p, g: 1.0, bundled())])"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program, str(path)],
            env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {f"{models(read_trace(path))}\n"}


def test_weights_must_make_sense(tmp_path):
    trace = read_trace(written(tmp_path, PLAIN))
    for wrong in ([], [("resnet50", 0.0)], [("resnet50", -1.0)]):
        with pytest.raises(InputError, match="pairs of a name and a weight"):
            trace.jobs(seconds, bundled(), models=wrong)


def test_a_duration_is_the_time_at_the_tightest_placement(tmp_path):
    text = "submit_s,gpus,duration_s,model\n0,32,100000,resnet50\n"
    topology = parse("2x4x8")
    (job,) = read_trace(written(tmp_path, text)).jobs(alone_on(topology), bundled())
    solo = alone_on(topology)(job.profile, 32)
    assert solo > job.profile.compute_s
    assert job.iterations * solo == pytest.approx(100_000, rel=1e-4)


def test_a_job_larger_than_the_cluster_says_so(tmp_path):
    text = "submit_s,gpus,duration_s\n0,64,100\n"
    with pytest.raises(InputError, match="asks for 64 GPUs, and the cluster has 8"):
        read_trace(written(tmp_path, text)).jobs(alone_on(parse("1x1x8")), bundled())


def test_jobs_larger_than_the_cluster_are_left_out_and_counted(tmp_path):
    text = "submit_s,gpus,duration_s\n0,64,100\n1,8,100\n2,9,1e300\n"
    trace = read_trace(written(tmp_path, text)).within(8)
    assert [job.gpus_max for job in trace.jobs(alone_on(parse("1x1x8")), bundled())] == [8]
    assert "left out 1: asks for more than all 8 GPUs" in trace.report.text()
    assert "row 4: duration_s is 1e300; expected 0 to 1e+12" in trace.report.text()


@pytest.mark.full
def test_all_of_philly():
    trace = read_trace(shared("traces/philly.csv"))
    assert (trace.format, trace.report.rows, trace.report.jobs) == ("philly", 82_247, 82_247)
    assert trace.report.bad == []
    jobs = trace.jobs(alone_on(parse("16x16x8")), bundled())
    assert np.mean(jobs.gpus_max > 1) == pytest.approx(0.068, abs=0.001)
    assert len(jobs.tenants) == 15


ROWS = st.lists(
    st.lists(
        st.one_of(
            st.sampled_from(["0", "1", "4.0", "-1", "nan", "inf", "1e400", "", "x", "2017-01-01"]),
            st.text(st.characters(codec="ascii", exclude_characters="\r\n\0"), max_size=6),
        ),
        min_size=1,
        max_size=12,
    ).map(",".join),
    max_size=12,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(["philly", "helios", "pai", "plain"]), rows=ROWS, good=st.booleans())
def test_whatever_is_in_a_file_every_row_is_accounted_for(tmp_path, kind, rows, good):
    files = {"philly": PHILLY, "helios": HELIOS, "pai": PAI, "plain": PLAIN}
    head, *real = files[kind].splitlines()
    text = "\n".join([head, *(real * 5 if good else []), *rows])
    path = written(tmp_path, text)
    try:
        trace = read_trace(path, kind)
    except InputError:
        with pytest.raises(InputError, match=r"trace\.csv"):
            read_trace(path, kind)
        return
    report = trace.report
    kept = report.rows - len(report.bad) - sum(report.skipped.values())
    assert kept == report.jobs if kind != "pai" else kept >= report.jobs > 0
    named = {entry.model: bundled()["resnet50"] for entry in trace.entries}
    jobs = trace.jobs(seconds, {**bundled(), **named})
    assert len(jobs) == report.jobs
