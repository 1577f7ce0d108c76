// The table of jobs, with search and sorting, and one job's story in words.
const HIGH = 27;
const COLUMNS = [
  ['job', (d, j) => d.jobs.id[j], (v) => v], ['name', null, null], ['model', (d, j) => d.jobs.model[j], null],
  ['GPUs', (d, j) => d.jobs.gpus[j], (v) => v], ['submitted', (d, j) => d.job.submit[j], shortClock],
  ['waited', (d, j) => d.job.wait[j], duration], ['ran', (d, j) => d.job.held[j], duration],
  ['completion', (d, j) => d.job.jct[j], duration], ['× alone', (d, j) => d.job.slow[j], (v) => (isFinite(v) ? v.toFixed(2) : '–')],
  ['stops', (d, j) => d.job.stops[j], (v) => v]];
const ASKED = { id: 0, job: 0, gpus: 3, submit: 4, submitted: 4, wait: 5, waited: 5, ran: 6, run: 6, jct: 7, completion: 7, slow: 8, alone: 8, stops: 9 };
const table = { order: new Uint32Array(0), by: 0, down: false };

function matches(d, text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const asked = /^([a-z]+)([<>]=?|=)([\d.]+)$/.exec(word);
    if (asked && asked[1] in ASKED) {
      const value = COLUMNS[ASKED[asked[1]]][1], x = Number(asked[3]);
      const holds = { '<': (v) => v < x, '>': (v) => v > x, '<=': (v) => v <= x, '>=': (v) => v >= x, '=': (v) => v === x }[asked[2]];
      return (j) => holds(value(d, j));
    }
    if (/^\d+$/.test(word)) return (j) => String(d.jobs.id[j]) === word || jobName(d, j).toLowerCase() === word;
    const models = d.jobs.models.map((m) => m.toLowerCase().includes(word)), tenants = d.jobs.tenants.map((t) => t.toLowerCase().includes(word));
    return (j) => models[d.jobs.model[j]] || tenants[d.jobs.tenant[j]] || jobName(d, j).toLowerCase().includes(word);
  });
  const found = [];
  for (let j = 0; j < d.n; j++) if (tests.every((test) => test(j))) found.push(j);
  return found;
}

function fillTable(d) {
  const found = matches(d, $('search').value), value = COLUMNS[table.by][1];
  if (value) {
    const keys = new Float64Array(d.n);
    for (const j of found) { const v = value(d, j); keys[j] = Number.isNaN(v) ? Infinity : v; }
    found.sort((a, b) => (table.down ? keys[b] - keys[a] : keys[a] - keys[b]) || a - b);
  } else found.sort((a, b) => (table.down ? -1 : 1) * jobName(d, a).localeCompare(jobName(d, b), 'en', { numeric: true }));
  table.order = Uint32Array.from(found);
  const every = d.run.every > 1 ? ` Listed and drawn: every ${d.run.every}th of ${count(d.run.metrics.jobs)} jobs; figures and curves are of all.` : '';
  $('jobs-note').textContent = `${count(found.length)} of ${count(d.n)}.${every}`;
  $('heads').innerHTML = COLUMNS.map(([name], k) => `<span data-by="${k}">${name}${table.by === k ? (table.down ? ' ↓' : ' ↑') : ''}</span>`).join('');
  $('rows').style.height = `${found.length * HIGH}px`;
  $('table').scrollTop = 0;
  showRows(d);
}

// Only the rows that can be seen exist.
function showRows(d) {
  const top = $('table').scrollTop, low = Math.max(0, Math.floor(top / HIGH) - 4), high = Math.min(table.order.length, low + Math.ceil(430 / HIGH) + 8);
  let html = '';
  for (let k = low; k < high; k++) {
    const j = table.order[k];
    const cells = COLUMNS.map(([name, value, shown]) => `<span>${escaped(name === 'name' ? jobName(d, j) : name === 'model' ? d.jobs.models[d.jobs.model[j]] : shown(value(d, j)))}</span>`);
    html += `<div class="row${j === d.chosen ? ' chosen' : ''}" data-job="${j}" style="top:${k * HIGH}px">${cells.join('')}</div>`;
  }
  $('rows').innerHTML = html;
}

function where(d, row) {
  const low = d.part[row], high = d.part[row + 1];
  const one = (k) => `${d.rows.gpus[k]} GPU${d.rows.gpus[k] > 1 ? 's' : ''} of ${machineName(d, d.rows.machine[k])}`;
  const shown = [];
  for (let k = low; k < Math.min(high, low + 6); k++) shown.push(one(k));
  return shown.join(', ') + (high - low > 6 ? ` and ${high - low - 6} more machines` : '');
}

function reason(d, row) {
  const code = d.run.codes[d.rows.code[row]];
  return inWords(d.run.words[code], d.rows.numbers.map((column) => column[row]));
}

// One row of the record as a sentence, and the colour of its dot.
function sentence(d, j, row) {
  const what = d.rows.what[row], why = reason(d, row), before = row > d.first[j] ? d.at[row] - d.at[row - 1] : 0;
  const lasted = d.until[row] - d.at[row], tier = d.bars.tiers[row], pace = d.rows.pace[row] / 200;
  const ran = what !== FINISH && d.rows.parts[row] ? ` Ran there for ${duration(lasted)}${pace && pace < 0.99 ? `, at ${percent(pace, 0)} of the speed it would have had with its links to itself` : ''}.` : '';
  const place = d.rows.parts[row] ? `${where(d, row)} (${tier ? 'over the ' + d.topology.tiers[tier] : 'inside a machine'})` : '';
  const because = why ? `: ${why}` : '';
  const texts = {
    [SUBMIT]: () => `Submitted; wants ${d.jobs.gpus[j]} GPU${d.jobs.gpus[j] > 1 ? 's' : ''}. Alone at the tightest placement it would take ${duration(d.jobs.ideal[j])}.`,
    [START]: () => `${row === d.first[j] + 1 ? 'Started' : 'Went on'} ${before > 0 ? `after waiting ${duration(before)},` : 'at once'} on ${place}${because}.${ran}`,
    [STOP]: () => `Preempted${because}.`,
    [MOVE]: () => `Moved to ${place}${because}.${ran}`,
    [RESIZE]: () => `Resized to ${place}${because}.${ran}`,
    [FAIL]: () => `Stopped${because}.`,
    [FINISH]: () => `Finished, ${duration(d.job.jct[j])} after its submission: ${d.job.slow[j].toFixed(2)} times what it takes alone.`,
  };
  const dot = what === FINISH ? css('--accent') : d.rows.parts[row] ? TIER_HUES[tier % 5] : what === SUBMIT ? css('--soft') : css('--bad');
  return { text: texts[what](), dot };
}

function tell(d, j, all = false) {
  const low = d.first[j], high = d.first[j + 1], rows = [];
  for (let r = low; r < high; r++) rows.push(r);
  const cut = !all && rows.length > 60, shown = cut ? [...rows.slice(0, 40), -1, ...rows.slice(-15)] : rows;
  const items = shown.map((row) => {
    if (row < 0) return `<li><button type="button" id="more">${count(rows.length - 55)} more</button></li>`;
    const { text, dot } = sentence(d, j, row);
    return `<li style="--dot:${dot}"><time>${clock(d.at[row])}</time>${escaped(text)}</li>`;
  });
  const tenant = d.jobs.tenants[d.jobs.tenant[j]];
  $('story').innerHTML = `<h3>${escaped(jobName(d, j))}</h3><p>job ${d.jobs.id[j]}, ${escaped(d.jobs.models[d.jobs.model[j]])}${tenant ? `, ${escaped(tenant)}` : ''}. ` +
    `Waited ${duration(d.job.wait[j])}, held GPUs for ${duration(d.job.held[j])}, ${percent(d.job.share[j])} of it communicating.</p><ol>${items.join('')}</ol>`;
  if (cut) $('more').onclick = () => tell(d, j, true);
}
