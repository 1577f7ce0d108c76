// Links and their load: a row a link, a column a stretch of time, hotter where fuller.
const HEAT = [[0, '--idle'], [0.01, '--little'], [0.35, '--some'], [0.6, '#e7c65c'], [0.85, '#e0843c'], [1, '#d63c4e']];

function heat() {
  const colours = HEAT.map(([at, c]) => [at, rgb(c[0] === '-' ? css(c) : c)]);
  return Uint32Array.from({ length: 256 }, (_, k) => {
    const v = Math.min(1, k / 200);
    let i = 1;
    while (i < colours.length - 1 && colours[i][0] < v) i++;
    const [a, from] = colours[i - 1], [b, to] = colours[i], f = Math.max(0, Math.min(1, (v - a) / (b - a)));
    const [r, g, blue] = from.map((c, n) => Math.round(c + (to[n] - c) * f));
    return (255 << 24 | blue << 16 | g << 8 | r) >>> 0;
  });
}

function orderLinks(d, how) {
  const { links } = d, bins = links.bins, n = links.names.length;
  const mean = Float64Array.from({ length: n }, (_, k) => links.load.subarray(k * bins, (k + 1) * bins).reduce((a, b) => a + b, 0) / bins / 200);
  // By place: the largest domains first, then the machines, as the tree has them.
  const order = Array.from({ length: n }, (_, k) => k).sort((a, b) => (how === 'load'
    ? mean[b] - mean[a] : links.tier[b] - links.tier[a]) || a - b);
  return { order, mean };
}

// Where each row lies: racks' are few, and stay high enough to be read where machines' cannot.
function layLinks(d, how, bottom) {
  const n = d.links.names.length, above = how === 'load' ? 0 : d.links.tier.filter((tier) => tier > 0).length;
  const even = bottom / n, first = above < n && above ? Math.max(even, Math.min(12, bottom / 2 / above)) : even;
  const rest = above < n ? (bottom - above * first) / (n - above) : first, split = above * first;
  return {
    above, split,
    top: (row) => (row <= above ? row * first : split + (row - above) * rest),
    at: (y) => Math.max(0, Math.min(n - 1, Math.floor(y < split ? y / first : above + (y - split) / rest))),
  };
}

// Painted once for each order and theme, then only stretched.
function heatMap(d, how) {
  const key = how + document.documentElement.dataset.theme;
  if (d.heat && d.heat.key === key) return d.heat;
  const { links } = d, bins = links.bins, n = links.names.length, colours = heat(), { order, mean } = orderLinks(d, how);
  const image = new ImageData(bins, n), pixels = new Uint32Array(image.data.buffer);
  order.forEach((k, y) => { for (let x = 0; x < bins; x++) pixels[y * bins + x] = colours[links.load[k * bins + x]]; });
  const picture = new OffscreenCanvas(bins, n);
  picture.getContext('2d').putImageData(image, 0, 0);
  d.heat = { key, order, mean, picture };
  return d.heat;
}

function drawLinks(d, how) {
  const { links } = d, n = links.names.length, bins = links.bins;
  $('links-box').style.height = `${n ? Math.max(70, Math.min(420, n * 15)) + 22 : 50}px`;
  const { pen, w, h } = prepared($('links')), bottom = h - 22;
  $('links-note').innerHTML = n
    ? `${count(n)} links that were used${links.left_out ? `, without the ${count(links.left_out)} least used` : ''}, each the uplink of a machine or rack. ` +
      `Load: <span class="key"><i class="dot" style="background:var(--some)"></i>a third</span><span class="key"><i class="dot" style="background:#e7c65c"></i>60 %</span><span class="key"><i class="dot" style="background:#d63c4e"></i>full</span>`
    : 'No job ever left its machine: no link was used.';
  if (!n) return;
  const { order, mean, picture } = heatMap(d, how);
  const from = time.low / d.run.end * bins, wide = (time.high - time.low) / d.run.end * bins;
  pen.imageSmoothingEnabled = false;
  const rows = layLinks(d, how, bottom);
  if (rows.above) pen.drawImage(picture, from, 0, wide, rows.above, GUTTER, 0, w - GUTTER, rows.split);
  if (rows.above < n) pen.drawImage(picture, from, rows.above, wide, n - rows.above, GUTTER, rows.split, w - GUTTER, bottom - rows.split);
  pen.save(); pen.beginPath(); pen.rect(0, bottom, w, 22); pen.clip(); drawTimeAxis(pen, w, h, bottom); pen.restore();
  const name = nameRows(pen);
  order.forEach((k, row) => name(links.names[k], (rows.top(row) + rows.top(row + 1)) / 2));
  $('links').onpointermove = (event) => {
    const box = $('links').getBoundingClientRect(), x = event.clientX - box.left - GUTTER, y = event.clientY - box.top;
    if (x < 0 || y >= bottom || event.buttons) return tip('');
    const k = order[rows.at(y)], t = time.low + (time.high - time.low) * x / (w - GUTTER);
    const bin = Math.min(bins - 1, Math.floor(t / d.run.end * bins));
    tip(`<div><b>${escaped(links.names[k])}</b> to ${escaped(links.above[k])}, ${+(links.capacity[k] / 1e9).toPrecision(3)} GB/s each way</div>` +
      `<div>${clock(t)}: ${percent(links.load[k * bins + bin] / 200, 0)} full; ${percent(mean[k])} over the whole run</div>`, event);
  };
  $('links').onpointerleave = () => tip('');
}
