// Which job had which GPU: every bar painted straight into pixels, so that a million of them move.
const MOST = 2 ** 21; // spans in one page; their places share a double with their time
let rowsSeen = { low: 0, high: 1 };

// Gives every span GPUs of its own inside its machines (the record counts them, it does not name them).
function layBars(d) {
  const { rows, at, until, part, run } = d, base = [0];
  for (const gpus of d.topology.gpus) base.push(base[base.length - 1] + gpus);
  const starts = [], ends = [], spanRow = [];
  let wanted = 0;
  for (let r = 0; r < rows.what.length; r++) {
    if (!rows.parts[r] || until[r] <= at[r] || spanRow.length >= MOST) continue;
    starts.push(Math.round(at[r] / run.tick) * MOST + spanRow.length);
    ends.push(Math.round(until[r] / run.tick) * MOST + spanRow.length);
    spanRow.push(r);
    for (let k = part[r]; k < part[r + 1]; k++) wanted += rows.gpus[k];
  }
  const began = Float64Array.from(starts).sort(), ended = Float64Array.from(ends).sort();
  const busy = new Uint8Array(base[base.length - 1]), firstBar = new Uint32Array(spanRow.length), bars = new Uint32Array(spanRow.length);
  const barRow = new Uint32Array(wanted), barGpu = new Uint32Array(wanted), barWide = new Uint16Array(wanted), barMachine = new Uint32Array(wanted);
  let n = 0, e = 0;
  const lay = (row, machine, gpu, wide) => {
    barRow[n] = row; barMachine[n] = machine; barGpu[n] = gpu; barWide[n++] = wide;
    busy.fill(1, gpu, gpu + wide);
  };
  for (const key of began) {
    const span = key % MOST, ticks = (key - span) / MOST, row = spanRow[span];
    for (; e < ended.length && ended[e] < (ticks + 1) * MOST; e++) {
      const gone = ended[e] % MOST;
      for (let k = firstBar[gone]; k < firstBar[gone] + bars[gone]; k++) busy.fill(0, barGpu[k], barGpu[k] + barWide[k]);
    }
    firstBar[span] = n;
    for (let k = part[row]; k < part[row + 1]; k++) {
      const machine = rows.machine[k], low = base[machine], high = base[machine + 1];
      let left = rows.gpus[k], fits = -1;
      for (let g = low, run = 0; g < high && fits < 0; g++) { run = busy[g] ? 0 : run + 1; if (run === left) fits = g - left + 1; }
      if (fits >= 0) { lay(row, machine, fits, left); continue; }
      for (let g = low; g < high && left; g++) {
        if (busy[g]) continue;
        let wide = 1;
        while (wide < left && g + wide < high && !busy[g + wide]) wide++;
        lay(row, machine, g, wide); left -= wide; g += wide;
      }
    }
    bars[span] = n - firstBar[span];
  }
  // By machine, each machine's in the order of their starts; and up to each bar, when the last of them ended.
  const first = new Uint32Array(base.length), order = new Uint32Array(n), late = new Float64Array(n);
  for (let k = 0; k < n; k++) first[barMachine[k] + 1]++;
  for (let k = 1; k < first.length; k++) first[k] += first[k - 1];
  const next = first.slice();
  for (let k = 0; k < n; k++) order[next[barMachine[k]]++] = k;
  for (let machine = 0; machine + 1 < base.length; machine++)
    for (let k = first[machine], last = 0; k < first[machine + 1]; k++) late[k] = last = Math.max(last, until[barRow[order[k]]]);
  return { base, gpus: base[base.length - 1], barRow, barGpu, barWide, first, order, late, tiers: spanTiers(d) };
}

// The tier of each row's placement: how far up its machines must go to meet.
function spanTiers(d) {
  const { rows, part } = d, parent = d.topology.parent, tiers = new Uint8Array(rows.what.length);
  for (let r = 0; r < tiers.length; r++) {
    if (rows.parts[r] < 2) continue;
    let around = [...rows.machine.subarray(part[r], part[r + 1])], tier = 0;
    while (around.length > 1) { around = [...new Set(around.map((k) => parent[k]))]; tier++; }
    tiers[r] = tier;
  }
  return tiers;
}

const TIER_HUES = ['#4a86c5', '#e3a13c', '#cf4f4f', '#8a63c9', '#2f9e73'];

// What colours mean: for each way a number for each row, and their names.
function colouring(d, how) {
  const { jobs, owner, rows } = d;
  if (how === 'tier') return { of: (r) => d.bars.tiers[r], names: d.topology.tiers.map((t) => (t === 'machine' ? 'inside a machine' : `over the ${t}`)), hue: (k) => TIER_HUES[k % 5] };
  if (how === 'model') return { of: (r) => jobs.model[owner[r]], names: jobs.models, hue };
  if (how === 'tenant') return { of: (r) => jobs.tenant[owner[r]], names: jobs.tenants.map((t) => t || 'no tenant'), hue };
  if (how === 'gpus') return { of: (r) => Math.min(7, Math.ceil(Math.log2(jobs.gpus[owner[r]]))), names: ['1', '2', '3–4', '5–8', '9–16', '17–32', '33–64', 'more'], hue: (k) => ['#9fb8d0', '#7aa2cc', '#4a86c5', '#2f9e73', '#e3a13c', '#dd7a3c', '#cf4f4f', '#8a3b8f'][k] };
  return { of: (r) => (rows.pace[r] >= 198 ? 0 : rows.pace[r] >= 160 ? 1 : rows.pace[r] >= 100 ? 2 : 3), names: ['full speed', 'above 80 %', 'above 50 %', 'below: links are shared'], hue: (k) => ['#8fb7a3', '#e7c65c', '#e08a3c', '#c8384a'][k] };
}

function drawGantt(d, how) {
  const { pen, w, h, ratio } = prepared($('gantt'));
  const bottom = h - 22, colours = colouring(d, how), { bars } = d;
  const image = pen.createImageData(Math.round((w - GUTTER) * ratio), Math.round(bottom * ratio));
  const pixels = new Uint32Array(image.data.buffer), W = image.width, H = image.height;
  pixels.fill(pixel(css('--idle')));
  const shades = colours.names.map((_, k) => [0, 0.14, -0.12, 0.26].map((by) => pixel(colours.hue(k), by)));
  const perRow = H / (rowsSeen.high - rowsSeen.low), perSecond = W / (time.high - time.low);
  const gap = perRow >= 5 ? 1 : 0;
  // Where a pixel stands for several GPUs, the one in its middle is shown.
  const line = (gpu) => Math.max(0, Math.min(H, Math.ceil((gpu - rowsSeen.low) * perRow - 0.5)));
  const paint = (low, high, y0, y1, colour) => {
    let x0 = Math.floor((low - time.low) * perSecond), x1 = Math.floor((high - time.low) * perSecond);
    if (x1 <= x0) x1 = x0 + 1; else if (gap && x1 - x0 > 4) x1--;
    x0 = Math.max(0, x0); x1 = Math.min(W, x1);
    if (x1 - x0 === 1) for (let at = y0 * W + x0, end = y1 * W; at < end; at += W) pixels[at] = colour;
    else if (x0 < x1) for (let y = y0; y < y1; y++) pixels.fill(colour, y * W + x0, y * W + x1);
  };
  const machines = bars.base.length - 1, labels = [];
  let low = 0;
  while (low < machines && bars.base[low + 1] <= rowsSeen.low) low++;
  for (let k = low; k < machines && bars.base[k] < rowsSeen.high; k++) {
    for (let i = seek(bars, k, time.low); i < bars.first[k + 1]; i++) {
      const bar = bars.order[i], row = bars.barRow[bar];
      if (d.at[row] > time.high) break;
      if (d.until[row] < time.low) continue;
      const j = d.owner[row], y0 = line(bars.barGpu[bar]), y1 = line(bars.barGpu[bar] + bars.barWide[bar]) - gap;
      if (y0 >= y1) continue;
      paint(d.at[row], d.until[row], y0, y1, shades[colours.of(row)][(j * 7 + (j >> 3)) & 3]);
      if (perRow * bars.barWide[bar] >= 12 * ratio && labels.length < 1500 && (d.until[row] - d.at[row]) * perSecond > 46 * ratio) labels.push(bar);
    }
  }
  const down = pixel(css('--down'));
  for (const [machine, from, until] of d.run.outages) paint(from, until, line(bars.base[machine]), line(bars.base[machine + 1]) - gap, down);
  pen.putImageData(image, Math.round(GUTTER * ratio), 0);
  drawTimeAxisOver(pen, w, h, bottom);
  pen.textAlign = 'left'; pen.textBaseline = 'middle'; pen.fillStyle = '#fff';
  for (const bar of labels) {
    const row = bars.barRow[bar], x0 = Math.max(GUTTER, GUTTER + (d.at[row] - time.low) * perSecond / ratio);
    const x1 = Math.min(w, GUTTER + (d.until[row] - time.low) * perSecond / ratio), y = (bars.barGpu[bar] + bars.barWide[bar] / 2 - rowsSeen.low) * perRow / ratio;
    const text = jobName(d, d.owner[row]);
    if (x1 - x0 > pen.measureText(text).width + 8 && y > 6 && y < bottom - 4) pen.fillText(text, x0 + 4, y);
  }
  drawMachines(d, pen, bottom, perRow / ratio);
  drawMarks(d, perRow / ratio, perSecond / ratio, bottom);
}

// The first bar of a machine that may still be there at `t`.
function seek(bars, machine, t) {
  let low = bars.first[machine], high = bars.first[machine + 1];
  while (low < high) { const mid = (low + high) >> 1; if (bars.late[mid] <= t) low = mid + 1; else high = mid; }
  return low;
}

function drawTimeAxisOver(pen, w, h, bottom) {
  pen.save(); pen.globalAlpha = 0.5; pen.globalCompositeOperation = 'source-over';
  pen.beginPath(); pen.rect(0, bottom, w, h - bottom); pen.clip(); pen.globalAlpha = 1;
  drawTimeAxis(pen, w, h, bottom);
  pen.restore();
}

function drawMachines(d, pen, bottom, perRow) {
  const { base } = d.bars, machines = base.length - 1, parent = d.topology.parent;
  pen.clearRect(0, 0, GUTTER - 1, bottom);
  pen.strokeStyle = css('--card');
  const name = nameRows(pen), y = (gpu) => (gpu - rowsSeen.low) * perRow;
  const fine = perRow * (base[1] - base[0]) >= 11 || machines === 1 || parent[0] === parent.length - 1;
  const label = (text, low, high) => {
    const top = Math.max(0, y(low)), end = Math.min(bottom, y(high));
    if (end > top && (top + end) / 2 < bottom - 4) name(text, (top + end) / 2);
  };
  const line = (gpu) => {
    if (y(gpu) <= 0 || y(gpu) >= bottom) return;
    pen.beginPath(); pen.moveTo(GUTTER - 4, Math.round(y(gpu)) + 0.5); pen.lineTo(pen.canvas.width, Math.round(y(gpu)) + 0.5); pen.stroke();
  };
  for (let k = 0; k < machines;) {
    let last = k + 1;
    if (!fine) while (last < machines && parent[last] === parent[k]) last++;
    label(fine ? machineName(d, k) : d.topology.domains[parent[k] - machines], base[k], base[last]);
    if (perRow * (base[last] - base[k]) >= 4) line(base[last]);
    k = last;
  }
}

// The chosen job's bars, outlined.
function drawMarks(d, perRow, perSecond, bottom) {
  const { pen, w } = prepared($('marks'));
  if (d.chosen === undefined) return;
  pen.beginPath(); pen.rect(GUTTER, 0, w - GUTTER, bottom); pen.clip();
  const { bars } = d, ink = css('--mark');
  for (let k = 0; k < bars.order.length; k++) {
    const row = bars.barRow[k];
    if (d.owner[row] !== d.chosen) continue;
    const x = GUTTER + (d.at[row] - time.low) * perSecond, wide = Math.max(3, (d.until[row] - d.at[row]) * perSecond);
    const y = (bars.barGpu[k] - rowsSeen.low) * perRow, high = Math.max(3, bars.barWide[k] * perRow);
    pen.lineWidth = 2; pen.strokeStyle = ink; pen.strokeRect(x, y, wide, high);
    if (high < 6 || wide < 6) { pen.fillStyle = ink; pen.fillRect(x - 1, y - 2, Math.max(wide, 4), Math.max(high, 5)); }
  }
}

// The row of the record whose bar is under the pointer; -1: an idle GPU.
function barAt(d, event) {
  const box = $('gantt').getBoundingClientRect(), { bars } = d, bottom = box.height - 22;
  const x = event.clientX - box.left - GUTTER, y = event.clientY - box.top;
  if (x < 0 || y < 0 || y >= bottom) return { row: -2 };
  const t = time.low + (time.high - time.low) * x / (box.width - GUTTER), near = 1.5 * (time.high - time.low) / (box.width - GUTTER);
  const gpu = Math.floor(rowsSeen.low + (rowsSeen.high - rowsSeen.low) * y / bottom);
  let machine = 0, high = bars.base.length - 1;
  while (machine + 1 < high) { const mid = (machine + high) >> 1; if (bars.base[mid] <= gpu) machine = mid; else high = mid; }
  let found = -1, far = Infinity;
  for (let i = seek(bars, machine, t - near); i < bars.first[machine + 1]; i++) {
    const bar = bars.order[i], row = bars.barRow[bar];
    if (d.at[row] > t + near) break;
    if (gpu < bars.barGpu[bar] || gpu >= bars.barGpu[bar] + bars.barWide[bar]) continue;
    const off = Math.max(0, d.at[row] - t, t - d.until[row]);
    if (off <= near && off < far) { far = off; found = row; }
  }
  return { row: found, machine, gpu: gpu - bars.base[machine], t };
}
