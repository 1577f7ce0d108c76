// What the page was told, unpacked; numbers and reasons in words; colours.
const told = JSON.parse(document.getElementById('told').textContent);
const $ = (id) => document.getElementById(id);
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array };
const SUBMIT = 0, START = 1, STOP = 2, MOVE = 3, RESIZE = 4, FAIL = 5, FINISH = 6;
const GUTTER = 92; // left of every picture, so that they stand under each other

async function unpack(ref) {
  const text = atob(told.blobs[ref.blob]);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const kind = ARRAYS[ref.type], width = kind.BYTES_PER_ELEMENT, n = ref.length;
  if (width === 1) return planes;
  const raw = new Uint8Array(planes.length);
  for (let b = 0; b < width; b++)
    for (let i = 0, from = b * n; i < n; i++) raw[i * width + b] = planes[from + i];
  return new kind(raw.buffer);
}

async function unpackAll(refs) {
  const found = {};
  await Promise.all(Object.entries(refs).map(async ([name, ref]) => {
    found[name] = ref && ref.blob !== undefined ? await unpack(ref) : ref;
  }));
  return found;
}

function duration(s) {
  if (!isFinite(s)) return '–';
  const abs = Math.abs(s);
  if (abs === 0) return '0 s';
  if (abs < 1) return `${+(s * 1000).toPrecision(3)} ms`;
  if (abs < 100) return `${+s.toPrecision(3)} s`;
  if (abs < 3600) return `${+(s / 60).toFixed(1)} min`;
  if (abs < 172800) return `${+(s / 3600).toFixed(1)} h`;
  return `${+(s / 86400).toFixed(1)} d`;
}

function clock(s) {
  const pad = (n) => String(Math.floor(n)).padStart(2, '0');
  const day = Math.floor(s / 86400), rest = s - day * 86400;
  const text = `${pad(rest / 3600)}:${pad((rest / 60) % 60)}:${pad(rest % 60)}`;
  return day ? `day ${day}, ${text}` : text;
}

const shortClock = (s) => clock(s).replace(/^day (\d+), (\d+:\d+).*/, '$1d $2');
const percent = (x, digits = 1) => (x === null || !isFinite(x) ? '–' : `${(100 * x).toFixed(digits)} %`);
const count = (n) => (n === null || !isFinite(n) ? '–' : Math.round(n).toLocaleString('en'));

function inWords(template, numbers) {
  return template.replace(/\{(\d)(?::([^}]*))?\}/g, (_, place, spec) => {
    const x = numbers[place];
    if (x === undefined || Number.isNaN(x)) return '?';
    const fixed = /^,?\.(\d+)f$/.exec(spec || '');
    if (fixed) return spec[0] === ',' ? Number(x.toFixed(fixed[1])).toLocaleString('en') : x.toFixed(fixed[1]);
    if (spec && spec.endsWith('%')) return `${(100 * x).toFixed(parseInt(spec.slice(1), 10) || 0)}%`;
    return String(+x.toPrecision(6));
  });
}

const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// Hues that differ for most eyes, each readable on light and on dark.
const HUES = ['#3b7dd8', '#e0902f', '#c8485a', '#2f9e73', '#8a63c9', '#3fa7bd', '#9a6a34', '#d06bae', '#7f8c3a',
  '#6b7a8f', '#a35d3d', '#5470c6', '#9a9a2f', '#c25b8a', '#3d8f8f', '#85714d', '#7d5fb2', '#5f9e3d'];
const hue = (n) => HUES[n % HUES.length];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function rgb(hex) {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

// A pixel as ImageData has it, lightened or darkened by `by`, -1..1.
function pixel(hex, by = 0) {
  const [r, g, b] = rgb(hex.length === 4 ? '#' + [...hex.slice(1)].map((c) => c + c).join('') : hex)
    .map((c) => Math.round(by < 0 ? c * (1 + by) : c + (255 - c) * by));
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

function tip(html, event) {
  const box = $('tip');
  box.hidden = !html;
  if (!html) return;
  box.innerHTML = html;
  const { width, height } = box.getBoundingClientRect();
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 6))}px`;
}

// One run's arrays, by job and by row, made when it is first looked at.
async function build(run) {
  const [jobs, rows, curves, links, topology] = await Promise.all(
    [run.jobs, run.rows, run.curves, run.links, run.topology].map(unpackAll));
  rows.numbers = await Promise.all(run.rows.numbers.map(unpack));
  const n = jobs.id.length, m = rows.since.length;
  const first = new Uint32Array(n + 1), at = new Float64Array(m), part = new Uint32Array(m + 1);
  const column = () => new Float64Array(n).fill(NaN);
  const job = { submit: column(), finish: column(), jct: column(), slow: column(), wait: new Float64Array(n),
    held: new Float64Array(n), stops: new Uint32Array(n), share: new Float64Array(n) };
  const owner = new Uint32Array(m), until = new Float64Array(m);
  for (let j = 0, r = 0; j < n; j++) {
    first[j] = r;
    let ticks = 0;
    for (const last = r + rows.count[j]; r < last; r++) {
      ticks += rows.since[r];
      at[r] = ticks * run.tick;
      owner[r] = j;
      part[r + 1] = part[r] + rows.parts[r];
      const what = rows.what[r], end = r + 1 < last ? (ticks + rows.since[r + 1]) * run.tick : run.end;
      until[r] = end;
      if (what === SUBMIT) job.submit[j] = at[r];
      if (what === STOP || what === MOVE || what === RESIZE) job.stops[j]++;
      if (what === FINISH) job.finish[j] = at[r];
      else if (rows.parts[r]) job.held[j] += end - at[r];
      else job.wait[j] += end - at[r];
    }
    job.jct[j] = job.finish[j] - job.submit[j];
    job.slow[j] = job.jct[j] / jobs.ideal[j];
    job.share[j] = job.held[j] ? jobs.comm[j] / job.held[j] : 0;
  }
  first[n] = m;
  return { run, jobs, rows, curves, links, topology, n, first, at, until, owner, part, job };
}

const jobName = (d, j) => (d.jobs.names.length ? d.jobs.names[j] : `job${d.jobs.id[j]}`);
const machineName = (d, k) => (d.topology.names.length ? d.topology.names[k] : `machine${k}`);
