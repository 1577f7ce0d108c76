// Line charts with axes and a crosshair, and the axis of time that the pictures share.
const time = { low: 0, high: 1, end: 1, listeners: [] };
let pending = false;

function redrawTime() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; for (const draw of time.listeners) draw(); });
}

function setTime(low, high) {
  const least = Math.max(time.end * 1e-7, 1e-6);
  let wide = Math.min(Math.max(high - low, least), time.end);
  low = Math.min(Math.max(low, 0), time.end - wide);
  time.low = low; time.high = low + wide;
  redrawTime();
}

function zoomTime(factor, around = (time.low + time.high) / 2) {
  setTime(around - (around - time.low) * factor, around + (time.high - around) * factor);
}

// A canvas as large as its box, in device pixels; drawing is in CSS pixels.
function prepared(canvas) {
  const ratio = devicePixelRatio || 1, box = canvas.parentElement.getBoundingClientRect();
  const w = Math.max(1, Math.round(box.width)), h = Math.max(1, Math.round(box.height));
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio);
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, w, h);
  pen.font = '11px system-ui, sans-serif';
  return { pen, w, h, ratio };
}

function ticks(low, high, most) {
  const raw = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-9); k++) found.push(k * step);
  return found;
}

const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000, 2592000, 8640000];

function timeTicks(low, high, most) {
  const raw = (high - low) / Math.max(1, most);
  if (raw < 1) return ticks(low, high, most).map((t) => [t, `${+t.toPrecision(9)} s`]);
  const step = STEPS.find((s) => s >= raw) || STEPS[STEPS.length - 1];
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high; t += step) {
    const day = Math.floor(t / 86400), rest = t - day * 86400, pad = (n) => String(Math.floor(n)).padStart(2, '0');
    const hour = `${pad(rest / 3600)}:${pad((rest / 60) % 60)}${step < 60 ? ':' + pad(rest % 60) : ''}`;
    found.push([t, step >= 86400 || !rest ? `day ${day}` : (day ? `${day}d ` : '') + hour]);
  }
  return found;
}

function drawTimeAxis(pen, w, h, bottom) {
  pen.fillStyle = css('--soft'); pen.strokeStyle = css('--grid'); pen.lineWidth = 1;
  pen.textAlign = 'center'; pen.textBaseline = 'top';
  const x = (t) => GUTTER + (w - GUTTER) * (t - time.low) / (time.high - time.low);
  for (const [t, text] of timeTicks(time.low, time.high, (w - GUTTER) / 95)) {
    const at = Math.round(x(t)) + 0.5;
    pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, bottom); pen.stroke();
    const half = pen.measureText(text).width / 2;
    pen.fillText(text, Math.min(Math.max(at, GUTTER + half), w - half), bottom + 5);
  }
  return x;
}

// Names down the left side, from the top; where they are too close, some are left out.
function nameRows(pen) {
  const LINE = 12;
  let last = -Infinity;
  pen.fillStyle = css('--soft'); pen.textAlign = 'right'; pen.textBaseline = 'middle';
  return (text, y) => {
    if (y < LINE / 2 || y - last < LINE) return;
    pen.fillText(text.length > 13 ? `${text.slice(0, 12)}…` : text, GUTTER - 8, y);
    last = y;
  };
}

// Drag to move, scroll to zoom: the same in every picture over time.
function movable(canvas, rows = null) {
  let from = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, w: box.width, h: box.height };
  };
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const { x, y, w, h } = at(event), by = event.deltaY || event.deltaX;
    const factor = Math.exp(Math.max(-60, Math.min(60, event.deltaMode ? by * 20 : by)) * 0.006);
    if (rows && (event.shiftKey || event.altKey)) rows.zoom(factor, y, h);
    else zoomTime(factor, time.low + (time.high - time.low) * Math.max(0, x - GUTTER) / (w - GUTTER));
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => {
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    from = { ...at(event), low: time.low, high: time.high, rows: rows && rows.now(), moved: false };
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!from) return;
    const to = at(event);
    if (!from.moved && Math.hypot(to.x - from.x, to.y - from.y) < 4) return;
    from.moved = true;
    canvas.classList.add('dragging');
    tip('');
    const by = (from.x - to.x) / (to.w - GUTTER) * (from.high - from.low);
    setTime(from.low + by, from.high + by);
    if (rows) rows.move(from.rows, (from.y - to.y) / to.h);
  });
  const done = (event) => {
    canvas.classList.remove('dragging');
    if (from && !from.moved && event.type === 'pointerup' && rows && rows.click) rows.click(event);
    from = null;
  };
  canvas.addEventListener('pointerup', done);
  canvas.addEventListener('pointercancel', done);
  canvas.addEventListener('dblclick', () => { setTime(0, time.end); if (rows) rows.reset(); });
  canvas.addEventListener('keydown', (event) => {
    const wide = time.high - time.low;
    const does = { ArrowLeft: () => setTime(time.low - wide * 0.2, time.high - wide * 0.2),
      ArrowRight: () => setTime(time.low + wide * 0.2, time.high + wide * 0.2),
      '+': () => zoomTime(0.6), '=': () => zoomTime(0.6), '-': () => zoomTime(1 / 0.6) }[event.key];
    if (does) { does(); event.preventDefault(); }
  });
}

function drawCdf(runs, chosen, log) {
  const { pen, w, h } = prepared($('cdf'));
  const left = 48, bottom = h - 24, top = 6, some = runs.filter((run) => run.cdf.length);
  if (!some.length) { pen.fillStyle = css('--soft'); pen.fillText('no job has ended', left, h / 2); return; }
  const high = Math.max(...some.map((run) => run.cdf[400]));
  let low = log ? Math.max(high * 1e-6, Math.min(...some.map((run) => run.cdf[4])) || high * 1e-6) : 0;
  if (log && low >= high) low = high / 10;
  const x = (s) => left + (w - left - 8) * (log
    ? Math.log(Math.max(s, low) / low) / Math.log(high / low) : (s - low) / (high - low || 1));
  const y = (p) => bottom - (bottom - top) * p;
  pen.strokeStyle = css('--grid'); pen.fillStyle = css('--soft'); pen.lineWidth = 1;
  for (const p of [0, 0.25, 0.5, 0.75, 1]) {
    pen.textAlign = 'right'; pen.textBaseline = 'middle';
    pen.fillText(`${100 * p} %`, left - 8, y(p));
    pen.beginPath(); pen.moveTo(left, Math.round(y(p)) + 0.5); pen.lineTo(w, Math.round(y(p)) + 0.5); pen.stroke();
  }
  const marks = log ? [0.001, 0.01, 0.1, 1, 10, 60, 300, 1800, 3600, 21600, 86400, 604800, 2592000].filter((s) => s >= low && s <= high)
    : ticks(low, high, 8);
  pen.textBaseline = 'top';
  for (const s of marks) {
    pen.textAlign = x(s) > w - 30 ? 'right' : x(s) < left + 20 ? 'left' : 'center';
    pen.fillText(duration(s), x(s), bottom + 6);
    pen.beginPath(); pen.moveTo(x(s), top); pen.lineTo(x(s), bottom); pen.stroke();
  }
  for (const own of [...some.filter((run) => run !== chosen), ...some.filter((run) => run === chosen)]) {
    pen.strokeStyle = hue(own.place); pen.lineWidth = own === chosen ? 2.5 : 1.4;
    pen.globalAlpha = own === chosen ? 1 : 0.75;
    pen.beginPath();
    own.cdf.forEach((s, k) => (k ? pen.lineTo(x(s), y(k / 400)) : pen.moveTo(x(s), y(0))));
    pen.stroke();
  }
  pen.globalAlpha = 1;
  $('cdf').onpointermove = (event) => {
    const box = $('cdf').getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    if (px < left || py > bottom) return tip('');
    const k = Math.max(0, Math.min(400, Math.round(400 * (bottom - py) / (bottom - top))));
    const share = (px - left) / (w - left - 8), s = log ? low * (high / low) ** share : low + share * (high - low);
    const lines = some.map((run) => {
      let done = run.cdf.findIndex((v) => v > s);
      if (done < 0) done = 400;
      return `<div><i class="dot" style="background:${hue(run.place)}"></i> <b>${escaped(run.label)}</b> ${percent(done / 400)} within ${duration(s)}; ${k / 4} % within ${duration(run.cdf[k])}</div>`;
    });
    tip(lines.join(''), event);
  };
  $('cdf').onpointerleave = () => tip('');
}

// The share of GPUs in use as an area, the queue as a line in the strip above it.
function drawBusy(d, others) {
  const { pen, w, h } = prepared($('busy'));
  const bottom = h - 22, cut = Math.round(h * 0.36);
  const x = drawTimeAxis(pen, w, h, bottom);
  const bins = d.curves.busy.length, step = d.run.end / bins;
  const peak = Math.max(1, ...d.curves.queue);
  const yBusy = (v) => bottom - (bottom - cut - 8) * Math.min(1, v), yQueue = (v) => cut - (cut - 6) * v / peak;
  pen.save(); pen.beginPath(); pen.rect(GUTTER, 0, w - GUTTER, bottom); pen.clip();
  const path = (values, y, scale = step) => {
    pen.beginPath();
    const low = Math.max(0, Math.floor(time.low / scale) - 1), high = Math.min(bins - 1, Math.ceil(time.high / scale));
    for (let k = low; k <= high; k++) { pen.lineTo(x(k * scale), y(values[k])); pen.lineTo(x((k + 1) * scale), y(values[k])); }
    return [x(low * scale), x((high + 1) * scale)];
  };
  for (const [place, other, end] of others) {
    pen.strokeStyle = hue(place); pen.globalAlpha = 0.55; pen.lineWidth = 1; path(other, yBusy, end / bins); pen.stroke();
  }
  const colour = hue(d.run.place);
  pen.globalAlpha = 0.22; pen.fillStyle = colour;
  let [a, b] = path(d.curves.busy, yBusy); pen.lineTo(b, bottom); pen.lineTo(a, bottom); pen.fill();
  pen.globalAlpha = 1; pen.strokeStyle = colour; pen.lineWidth = 1.4; path(d.curves.busy, yBusy); pen.stroke();
  pen.strokeStyle = css('--ink'); path(d.curves.queue, yQueue); pen.stroke();
  pen.globalAlpha = 0.1; pen.fillStyle = css('--ink');
  [a, b] = path(d.curves.queue, yQueue); pen.lineTo(b, cut); pen.lineTo(a, cut); pen.fill();
  pen.restore();
  pen.fillStyle = css('--soft'); pen.textAlign = 'right'; pen.textBaseline = 'middle';
  pen.fillText(`${count(peak)} waiting`, GUTTER - 8, yQueue(peak) + 5); pen.fillText('0', GUTTER - 8, cut - 3);
  pen.fillText('100 % busy', GUTTER - 8, yBusy(1) + 4); pen.fillText('0', GUTTER - 8, bottom - 3);
  $('busy').onpointermove = (event) => {
    const box = $('busy').getBoundingClientRect(), t = time.low + (time.high - time.low) * (event.clientX - box.left - GUTTER) / (w - GUTTER);
    const k = Math.floor(t / step);
    if (k < 0 || k >= bins || event.buttons) return tip('');
    tip(`<div><b>${clock(t)}</b></div><div>${percent(d.curves.busy[k])} of the GPUs in use</div>` +
      `<div>${+d.curves.queue[k].toPrecision(3)} jobs waiting, for ${+d.curves.wanted[k].toPrecision(3)} GPUs</div>`, event);
  };
  $('busy').onpointerleave = () => tip('');
}
