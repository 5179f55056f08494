// Keeps the page live: one snapshot per second, inserted into the server's markup.
//
// data-f="path"          the element shows this value of the snapshot, or of its list's item
// data-as="count"        how the value is written; the server writes it the same way
// data-set="attr=path …" attributes that follow values
// data-list="name"       children follow the items of a list, by their data-key
'use strict';

const $ = (id) => document.getElementById(id);
const SECONDS = 120;
const STALE_MS = 6000;

let now = Date.now();

const count = (n) => Math.round(n).toLocaleString('en-US');
const coarse = (s) => {
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
};

const write = {
  count,
  rate: (n) => {
    const t = Math.round(n * 10);
    if (t === 0) return '0';
    return t < 100 ? (t / 10).toFixed(1) : count(n);
  },
  wait: (s) => {
    const ms = Math.round(s * 1000);
    if (ms === 0) return '0 s';
    if (ms < 1000) return `${ms} ms`;
    return ms < 9950 ? `${(ms / 1000).toFixed(1)} s` : coarse(Math.floor(s));
  },
  span: (s) => {
    const [d, h, m] = [86400, 3600, 60].map((unit) => Math.floor(s / unit));
    if (d > 0) return `${d} d ${h % 24} h`;
    if (h > 0) return `${h} h ${m % 60} min`;
    return m > 0 ? `${m} min ${s % 60} s` : `${s} s`;
  },
  ago: (at) => {
    const s = Math.max(0, Math.floor((now - Date.parse(at)) / 1000));
    return s === 0 ? 'just now' : `${coarse(s)} ago`;
  },
};

const at = (value, path) => path.split('.').reduce((v, name) => v?.[name], value);

function fill(root, value) {
  const own = root.matches?.('[data-f], [data-set]') ? [root] : [];
  for (const element of [...own, ...root.querySelectorAll('[data-f], [data-set]')]) {
    // Rows belong to their list, which fills them with its items.
    const list = element.closest('[data-list]');
    if (list && !list.contains(root)) continue;
    const { f, as, set } = element.dataset;
    if (f) {
      const shown = at(value, f);
      const text = as ? write[as](shown) : String(shown);
      if (element.textContent !== text) element.textContent = text;
    }
    for (const pair of set ? set.split(' ') : []) {
      const [attribute, path] = pair.split('=');
      const wanted = at(value, path);
      if (typeof wanted === 'boolean') element.toggleAttribute(attribute, wanted);
      else if (element.getAttribute(attribute) !== String(wanted)) {
        element.setAttribute(attribute, wanted);
      }
    }
  }
}

function fillList(list, items) {
  const template = list.querySelector('template');
  const rows = new Map([...list.querySelectorAll(':scope > [data-key]')].map((r) => [r.dataset.key, r]));
  let previous = template;
  for (const item of items) {
    let row = rows.get(item.key);
    rows.delete(item.key);
    if (!row) {
      row = template.content.firstElementChild.cloneNode(true);
      row.dataset.key = item.key;
    }
    fill(row, item);
    // Move a row only if necessary: a moved row loses the focus.
    if (previous.nextElementSibling !== row) previous.after(row);
    previous = row;
  }
  for (const row of rows.values()) row.remove();
}

function show(snapshot) {
  now = Date.parse(snapshot.at);
  fill(document, snapshot);
  for (const list of document.querySelectorAll('[data-list]')) {
    fillList(list, snapshot[list.dataset.list]);
  }
  for (const e of document.querySelectorAll('[data-empty]')) {
    e.hidden = snapshot[e.dataset.empty].length > 0;
  }
  for (const e of document.querySelectorAll('[data-full]')) {
    e.hidden = snapshot[e.dataset.full].length === 0;
  }
  $('trouble').hidden = !snapshot.store_failed;
  draw(snapshot.chart);
  tell(snapshot.figures);
}

let chart = { published: [], applied: [] };
let pointed = null;

function draw(next) {
  chart = next;
  const most = Math.max(0, ...chart.published, ...chart.applied);
  let top = 10;
  for (let i = 0; top < most; i++) top *= [2, 2.5, 2][i % 3];
  const points = (rates) =>
    rates.map((r, i) => `${SECONDS - rates.length + i} ${(100 - (r / top) * 100).toFixed(2)}`).join('L');
  const set = (id, d) => $(id).setAttribute('d', d);
  const path = (rates) => (rates.length ? `M${points(rates)}` : '');
  set('chart-published', path(chart.published));
  set('chart-applied', path(chart.applied));
  const first = SECONDS - chart.applied.length;
  set('chart-area', chart.applied.length ? `M${first} 100L${points(chart.applied)}L${SECONDS - 1} 100Z` : '');
  $('chart-top').textContent = write.rate(top);
  readOut();
}

function readOut() {
  const i = pointed === null ? -1 : pointed - (SECONDS - chart.applied.length);
  const there = i >= 0 && i < chart.applied.length;
  $('chart-cursor').setAttribute('d', there ? `M${pointed} 0V100` : '');
  $('chart-readout').textContent = there
    ? `${SECONDS - 1 - pointed} s ago: ${write.rate(chart.applied[i])} applied, ${write.rate(chart.published[i])} published`
    : '';
}

function point(event) {
  const box = $('chart').getBoundingClientRect();
  pointed = Math.round(((event.clientX - box.left) / box.width) * (SECONDS - 1));
  readOut();
}

let told = { at: 0, letters: null };

// Do not announce figures every second: a screen reader would read nothing else.
function tell(figures) {
  const letters = figures.dead_letters;
  if (letters === told.letters && now - told.at < 30000) return;
  told = { at: now, letters };
  $('news').textContent =
    `${write.rate(figures.applied_per_second)} events per second applied, ` +
    `outbox lag ${write.wait(figures.outbox_lag_seconds)}, ` +
    `${count(letters)} dead letters, ${count(figures.sagas_in_flight)} sagas in flight.`;
}

let source = null;
let watchdog = 0;

function connection(state, text) {
  const pill = $('connection');
  if (pill.dataset.state === state) return;
  pill.dataset.state = state;
  pill.textContent = text;
}

function connect() {
  disconnect();
  source = new EventSource('/events');
  source.onmessage = (event) => {
    connection('live', 'Live');
    clearTimeout(watchdog);
    watchdog = setTimeout(() => connection('wait', 'Stalled'), STALE_MS);
    show(JSON.parse(event.data));
  };
  source.onerror = () => {
    clearTimeout(watchdog);
    connection('wait', 'Reconnecting…');
    // The browser gives up after a response that is not a stream; reconnect ourselves.
    if (source.readyState === EventSource.CLOSED) watchdog = setTimeout(connect, 2000);
  };
}

function disconnect() {
  clearTimeout(watchdog);
  source?.close();
  source = null;
}

// A browser has six connections per host: hidden tabs must not hold them.
function follow() {
  if (document.hidden) {
    disconnect();
    connection('off', 'Paused');
  } else connect();
}

async function retry(event) {
  const form = event.target;
  if (!form.matches('#dead-letters form')) return;
  event.preventDefault();
  const button = form.querySelector('button');
  button.disabled = true;
  try {
    const answer = await fetch(form.action, { method: 'POST', headers: { Accept: 'application/json' } });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.detail);
    button.textContent = 'Retrying…';
    $('news').textContent = 'Retry requested.';
  } catch (error) {
    button.disabled = false;
    button.title = error.message;
    $('news').textContent = `Not retried: ${error.message}`;
  }
}

document.addEventListener('submit', retry);
document.addEventListener('visibilitychange', follow);
$('chart').addEventListener('pointermove', point);
$('chart').addEventListener('pointerleave', () => { pointed = null; readOut(); });
follow();
