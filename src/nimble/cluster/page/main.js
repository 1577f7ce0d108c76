// Which run is looked at, and what follows from it.
const runs = told.runs;
runs.forEach((run, place) => { run.place = place; });
let d = null; // the chosen run, unpacked

const MEASURES = [
  ['mean JCT', (m) => m.mean_jct_s, duration, -1], ['median', (m) => m.median_jct_s, duration, -1], ['p95', (m) => m.p95_jct_s, duration, -1],
  ['p99', (m) => m.p99_jct_s, duration, -1], ['makespan', (m) => m.makespan_s, duration, -1], ['queueing', (m) => m.queueing_s, duration, -1],
  ['communication', (m) => m.comm_share, percent, -1], ['busy', (m) => m.utilisation, percent, 1], ['busy while jobs came', (m) => m.utilisation_submissions, percent, 1],
  ['preemptions', (m) => m.preemptions, count, -1], ['peak queue', (m) => m.peak_queue, count, -1],
  ['worst × alone', (m) => m.max_finish_ratio, (v) => `${+v.toPrecision(3)}`, -1], ['p95 × alone', (m) => m.p95_finish_ratio, (v) => `${+v.toPrecision(3)}`, -1],
  ['fairness', (m) => m.jain_tenants, (v) => v.toFixed(3), 1]];
const shown = (measure, m) => (measure[1](m) === null ? '–' : measure[2](measure[1](m)));

function cards(run) {
  const m = run.metrics, tiers = Object.entries(m.placements).map(([tier, n]) => `${tier} ${count(n)}`).join(', ');
  const notes = { 'mean JCT': 'submission to end', median: 'half of the jobs took longer', p95: 'one job in 20 took longer', p99: 'one job in 100 took longer', 'busy while jobs came': 'to the last submission', 'p95 × alone': 'completion over time alone', queueing: 'mean per job, requeues too', communication: 'of the time with GPUs', busy: `of ${count(m.gpus)} GPUs, ${m.complete ? 'to the end' : 'until it was stopped'}`,
    'peak queue': 'jobs waiting', preemptions: 'stops and moves', 'worst × alone': 'completion over time alone', fairness: "Jain's index by tenant", makespan: m.complete ? 'first submission to last end' : 'not known: it was stopped' };
  if (!m.complete) for (const name of ['mean JCT', 'median', 'p95', 'p99', 'worst × alone', 'p95 × alone']) notes[name] = `of the ${count(m.finished)} that finished`;
  const some = MEASURES.map((measure) => `<div class="card"><span>${measure[0]}</span><b>${shown(measure, m)}</b><small>${notes[measure[0]] || ''}</small></div>`);
  some.push(`<div class="card"><span>time on shared links</span><b>${duration(m.shared_link_s)}</b><small>summed over links</small></div>`);
  $('cards').innerHTML = some.join('');
  $('subtitle').textContent = `${count(m.jobs)} jobs on ${m.cluster} (${count(m.gpus)} GPUs)${m.complete ? '' : `; stopped after ${duration(m.simulated_s)}: ${count(m.finished)} finished, ${count(m.running)} ran, ${count(m.waiting)} waited, ${count(m.to_come)} had not come`}. Placements: ${tiers}.`;
}

function compared() {
  if (runs.length < 2) return;
  $('compared').hidden = false;
  const best = MEASURES.map(([, of, , sign]) => Math.max(...runs.filter((run) => run.metrics.complete && of(run.metrics) !== null).map((run) => sign * of(run.metrics))));
  const rows = runs.map((run) => `<tr data-run="${run.place}"><td><i class="dot" style="background:${hue(run.place)}"></i> ${escaped(run.label)}${!run.metrics.complete ? ' (stopped)' : ''}</td>` +
    MEASURES.map((measure, k) => `<td class="${run.metrics.complete && measure[3] * measure[1](run.metrics) === best[k] ? 'best' : ''}">${shown(measure, run.metrics)}</td>`).join('') + '</tr>');
  $('compare').innerHTML = `<thead><tr><th></th>${MEASURES.map(([name]) => `<th>${name}</th>`).join('')}</tr></thead><tbody>${rows.join('')}</tbody>`;
  $('compare').onclick = (event) => { const row = event.target.closest('tr[data-run]'); if (row) choose(Number(row.dataset.run)); };
  $('runs').innerHTML = runs.map((run) => `<button type="button" data-run="${run.place}"><i class="dot" style="background:${hue(run.place)}"></i>${escaped(run.label)}</button>`).join('');
  $('runs').onclick = (event) => { const button = event.target.closest('button'); if (button) choose(Number(button.dataset.run)); };
}

const others = new Map(); // curves of the runs that are not chosen

function redraw() {
  drawCdf(runs, d.run, $('log').checked);
  legend();
  redrawTime();
}

function legend() {
  const c = colouring(d, $('colour').value), most = 14;
  const keys = c.names.slice(0, most).map((name, k) => `<span class="key"><i class="dot" style="background:${c.hue(k)}"></i>${escaped(name)}</span>`);
  $('legend').innerHTML = keys.join('') + (c.names.length > most ? `and ${c.names.length - most} more` : '') +
    `<span class="key"><i class="dot" style="background:var(--idle);border:1px solid var(--line)"></i>idle</span>` +
    (d.run.outages.length ? '<span class="key"><i class="dot" style="background:var(--down)"></i>machine down</span>' : '');
}

time.listeners.push(() => { if (d) { drawBusy(d, [...others].filter(([place]) => place !== d.run.place).map(([place, o]) => [place, o.busy, o.end])); drawGantt(d, $('colour').value); drawLinks(d, $('link-order').value); } });

async function choose(place) {
  const run = runs[place];
  const same = d && d.run.end === run.end;
  const built = run.built || await build(run);
  if (!built.bars) built.bars = layBars(built);
  run.built = built;
  const id = d && d.chosen !== undefined ? d.jobs.id[d.chosen] : undefined;
  d = built;
  document.querySelectorAll('[data-run]').forEach((node) => {
    node.setAttribute(node.tagName === 'TR' ? 'aria-selected' : 'aria-pressed', String(Number(node.dataset.run) === place));
  });
  $('title').textContent = runs.length > 1 ? told.title : `${run.label} on ${run.metrics.cluster}`;
  $('error').hidden = !run.error; $('error').textContent = run.error;
  time.end = run.end;
  setTime(same ? time.low : 0, same ? time.high : run.end);
  if (!same) rowsSeen = { low: 0, high: d.bars.gpus };
  cards(run);
  fillTable(d);
  redraw();
  // The same job, if one was being read.
  if (id !== undefined) { const j = d.jobs.id.indexOf(id); if (j >= 0) pick(j, false); }
}

function pick(j, show = true) {
  d.chosen = j;
  tell(d, j);
  showRows(d);
  if (show && isFinite(d.job.submit[j])) {
    const low = d.job.submit[j], high = isFinite(d.job.finish[j]) ? d.job.finish[j] : d.run.end;
    if (high < time.low || low > time.high || high - low < (time.high - time.low) / 50) {
      const wide = Math.max((high - low) * 1.5, d.run.end / 2000);
      setTime((low + high - wide) / 2, (low + high + wide) / 2);
    }
  }
  redrawTime();
}

function rowsTo(low, high) {
  const all = d.bars.gpus, wide = Math.min(Math.max(high - low, Math.min(4, all)), all);
  low = Math.min(Math.max(0, low), all - wide);
  rowsSeen = { low, high: low + wide };
  redrawTime();
}

movable($('busy'));
movable($('links'));
movable($('gantt'), {
  now: () => ({ ...rowsSeen }),
  move: (from, by) => rowsTo(from.low + by * (from.high - from.low), from.high + by * (from.high - from.low)),
  zoom: (factor, y, h) => { const at = rowsSeen.low + (rowsSeen.high - rowsSeen.low) * y / h; rowsTo(at - (at - rowsSeen.low) * factor, at + (rowsSeen.high - at) * factor); },
  reset: () => rowsTo(0, d.bars.gpus),
  click: (event) => { const { row } = barAt(d, event); if (row >= 0) pick(d.owner[row], false); },
});
$('gantt').addEventListener('pointermove', (event) => {
  if (event.buttons || !d) return;
  const { row, machine, gpu, t } = barAt(d, event);
  if (row < -1) return tip('');
  if (row < 0) return tip(`<div>${escaped(machineName(d, machine))}, GPU ${gpu}: idle</div><div>${clock(t)}</div>`, event);
  const j = d.owner[row];
  tip(`<div><b>${escaped(jobName(d, j))}</b> ${escaped(d.jobs.models[d.jobs.model[j]])}, ${d.jobs.gpus[j]} GPU${d.jobs.gpus[j] > 1 ? 's' : ''}${d.jobs.tenants[d.jobs.tenant[j]] ? ', ' + escaped(d.jobs.tenants[d.jobs.tenant[j]]) : ''}</div>` +
    `<div>${clock(d.at[row])} to ${clock(d.until[row])} (${duration(d.until[row] - d.at[row])})</div><p>${escaped(where(d, row))}</p><p>${escaped(reason(d, row))}</p>`, event);
});
$('gantt').addEventListener('pointerleave', () => tip(''));
// The buttons zoom around the job being read, if it is there to be seen.
function middle() {
  const j = d.chosen, at = j === undefined ? NaN : (d.job.submit[j] + (isFinite(d.job.finish[j]) ? d.job.finish[j] : d.run.end)) / 2;
  return at > time.low && at < time.high ? at : undefined;
}
$('in').onclick = () => zoomTime(0.5, middle());
$('out').onclick = () => zoomTime(2, middle());
$('all').onclick = () => { setTime(0, time.end); rowsTo(0, d.bars.gpus); };
$('log').onchange = redraw;
$('colour').onchange = redraw;
$('link-order').onchange = redrawTime;
let typing = 0;
$('search').oninput = () => { clearTimeout(typing); typing = setTimeout(() => fillTable(d), 150); };
$('table').onscroll = () => requestAnimationFrame(() => showRows(d));
$('rows').onclick = (event) => { const row = event.target.closest('[data-job]'); if (row) pick(Number(row.dataset.job)); };
$('heads').onclick = (event) => {
  const by = Number(event.target.dataset.by);
  if (Number.isNaN(by)) return;
  table.down = table.by === by ? !table.down : by > 3;
  table.by = by;
  fillTable(d);
};
const root = document.documentElement, dark = matchMedia('(prefers-color-scheme: dark)');
function theme(name) { root.dataset.theme = name; if (d) redraw(); }
$('theme').onclick = () => theme(root.dataset.theme === 'dark' ? 'light' : 'dark');
dark.addEventListener('change', () => theme(dark.matches ? 'dark' : 'light'));
theme(dark.matches ? 'dark' : 'light');
addEventListener('resize', () => d && redraw());

async function begin() {
  if (typeof DecompressionStream === 'undefined') {
    $('error').hidden = false;
    $('error').textContent = 'This browser cannot unpack the page (DecompressionStream). Any Chrome or Edge from 2020, Safari from 2023, Firefox from 2023 on can.';
    return;
  }
  compared();
  await choose(0);
  if (runs.length > 1) {
    for (const run of runs) others.set(run.place, { busy: await unpack(run.curves.busy), end: run.end });
    redrawTime();
  }
}
begin();
