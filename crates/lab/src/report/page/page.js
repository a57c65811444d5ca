// Draws the report's charts with Vega-Lite, and writes its tables.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const main = document.querySelector('main');
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
const ink = dark ? '#e4e8ec' : '#1d2329';
const width = Math.min(400, main.clientWidth - 230);

function add(parent, tag, text, name) {
  const element = parent.appendChild(document.createElement(tag));
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

function table(parent, heads, lines, plain) {
  const element = add(add(parent, 'div', undefined, 'table'), 'table', undefined, plain ? 'plain' : undefined);
  const row = (cells, tag) => {
    const line = add(element, 'tr');
    cells.forEach(cell => add(line, tag, cell));
  };
  row(heads, 'th');
  lines.forEach(line => row(line, 'td'));
}

const config = {
  background: null,
  font: 'system-ui, sans-serif',
  view: { stroke: null },
  axis: { labelColor: ink, titleColor: ink, gridOpacity: 0.25, labelLimit: 200, labelOverlap: 'greedy', labelSeparation: 6, titleFontWeight: 'normal' },
  legend: { labelColor: ink, titleColor: ink, labelLimit: 220, orient: 'bottom', columns: 3, title: null },
  range: { category: dark ? { scheme: 'set2' } : { scheme: 'tableau10' } },
};
const names = data.names ?? [];
// A target has one colour on the whole page.
const colour = { field: 'name', type: 'nominal', scale: { domain: names }, legend: null };
const lines = { ...colour, legend: {} };
const time = 'datum.value < 1000 ? format(datum.value, ",.3~r") + " µs" : datum.value < 1e6 ? format(datum.value / 1e3, ",.3~r") + " ms" : format(datum.value / 1e6, ",.3~r") + " s"';
const times = (field, title, more) => ({ field, type: 'quantitative', title, scale: { type: 'log', nice: false }, axis: { labelExpr: time, tickCount: 5 }, ...more });
const number = (field, title, more) => ({ field, type: 'quantitative', title, axis: { tickCount: 5 }, ...more });
const target = { field: 'target', type: 'nominal', sort: null, title: null };

function draw(parent, caption, values, spec) {
  const figure = add(parent, 'figure');
  add(figure, 'figcaption', caption);
  const place = add(figure, 'div');
  const whole = { $schema: 'https://vega.github.io/schema/vega-lite/v6.json', width, config, data: { values }, ...spec };
  new vega.View(vega.parse(vegaLite.compile(whole).spec), { renderer: 'svg', container: place }).runAsync();
}

const bars = {
  height: { step: 20 },
  layer: [
    { mark: { type: 'bar', tooltip: true }, encoding: { y: target, x: number('rate', 'operations per second'), color: colour } },
    { mark: { type: 'rule', color: ink }, encoding: { y: target, x: { field: 'low', type: 'quantitative' }, x2: { field: 'high' } } },
  ],
};
const spans = {
  height: { step: 20 },
  layer: [
    { mark: { type: 'rule', strokeWidth: 3 }, encoding: { y: target, x: times('p50', 'latency: p50 (dot) to p99 (line)'), x2: { field: 'p99' }, color: colour } },
    { mark: { type: 'point', filled: true, size: 70, tooltip: true }, encoding: { y: target, x: times('p50'), color: colour } },
    { mark: { type: 'tick', thickness: 2 }, encoding: { y: target, x: times('p99'), color: colour } },
  ],
};
const percentiles = values => [values.flatMap(row => row.curve.filter(([share]) => share < 0.99999)
  .map(([share, value]) => ({ name: row.name, share: 1 / (1 - share), value }))), {
  height: 200,
  mark: { type: 'line', interpolate: 'step-after' },
  encoding: {
    x: { field: 'share', type: 'quantitative', title: 'percentile', scale: { type: 'log', domain: [1, 10000], clamp: true }, axis: { values: [1, 2, 10, 100, 1000, 10000], labelExpr: '"p" + format(100 - 100 / datum.value, ".2~f")' } },
    y: times('value', 'latency'), color: lines,
  },
}];
const along = values => [values.flatMap(row => row.timeline.map(([at, p50, p99, max]) => ({ name: row.name, at, p99, max }))), {
  height: 160,
  mark: { type: 'line', interpolate: 'step-after' },
  encoding: { x: number('at', 'seconds of the last round'), y: times('max', 'slowest operation'), color: lines },
}];

function groups(rows, key) {
  const found = new Map();
  rows.forEach(row => found.set(key(row), [...found.get(key(row)) ?? [], row]));
  return found;
}

function bySide(charts, more, rows) {
  for (const [label, values] of groups(rows, row => row.label)) {
    draw(charts, label, values, bars);
    draw(charts, `${label}: latency`, values, spans);
    draw(more(), `${label}: latency by percentile`, ...percentiles(values));
    if (values.some(row => row.timeline.length > 2)) draw(more(), `${label}: over time`, ...along(values));
  }
}

function byX(charts, rows, title, log) {
  // A case that is found at several x is a chart; where each x is a case of its own, all are one.
  const recurs = new Set(rows.map(row => row.label)).size < new Set(rows.map(row => row.label + row.x)).size;
  for (const [label, values] of groups(rows, row => recurs ? row.label : '')) {
    const points = values.flatMap(row => [['p50', row.p50], ['p99', row.p99]].map(([of, value]) => ({ name: row.name, x: row.x, of, value })));
    draw(charts, label || 'Latency', points, {
      height: 220,
      mark: { type: 'line', point: true, tooltip: true },
      encoding: {
        x: number('x', title, log ? { scale: { type: 'log' } } : {}), y: times('value', 'latency'), color: lines,
        strokeDash: { field: 'of', type: 'nominal', legend: {} },
      },
    });
  }
}

function matrix(charts, rows) {
  for (const [label, values] of groups(rows, row => `${row.name}, ${row.connections} connection${row.connections > 1 ? 's' : ''}`)) {
    const cells = values.map(row => {
      const [line, column] = row.case.split(', ');
      return { line, column: column ?? 'no j', p50: row.p50, doubt: row.target.slice(row.name.length), text: row.p50 < 1000 ? `${row.p50.toPrecision(3)} µs` : `${(row.p50 / 1000).toPrecision(3)} ms` };
    });
    draw(charts, `${label}: p50`, cells, {
      width: { step: 84 }, height: { step: 26 },
      encoding: { x: { field: 'column', type: 'nominal', title: null, axis: { orient: 'top', labelAngle: 0 }, sort: ['no j', 'j true', 'j false'] }, y: { field: 'line', type: 'nominal', title: null, sort: null } },
      layer: [
        { mark: { type: 'rect', tooltip: true }, encoding: { color: { field: 'p50', type: 'quantitative', scale: { type: 'log', scheme: 'blues', domain: extent(rows) }, legend: null } } },
        { mark: { type: 'text' }, transform: [{ calculate: 'datum.text + datum.doubt', as: 'shown' }], encoding: { text: { field: 'shown' }, color: { condition: { test: `datum.p50 > ${Math.sqrt(extent(rows)[0] * extent(rows)[1])}`, value: '#fff' }, value: '#000' } } },
      ],
    });
  }
}

function extent(rows) {
  const values = rows.map(row => row.p50);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return [low, high > low ? high : low * 1.01];
}

function changes(charts, rows) {
  for (const [label, values] of groups(rows, row => `${row.label}: ${row.metric}`)) {
    const x = (field, more) => ({ field, type: 'quantitative', title: 'change (line: 90 % confidence)', axis: { format: '+.0%', tickCount: 5 }, ...more });
    const verdict = { field: 'verdict', type: 'nominal', scale: { domain: ['better', 'worse', 'not sure'], range: ['#2e8540', '#c4302b', '#8a949e'] }, legend: {} };
    draw(charts, label, values, {
      height: { step: 20 },
      layer: [
        { mark: { type: 'rule', strokeWidth: 2 }, encoding: { y: target, x: x('low'), x2: { field: 'high' }, color: verdict } },
        { mark: { type: 'point', filled: true, size: 70, tooltip: true }, encoding: { y: target, x: x('change'), color: verdict } },
      ],
    });
  }
}

function section(parent, section) {
  const element = add(parent, 'section');
  element.id = section.id;
  add(element, 'h2', section.title);
  if (section.about) add(element, 'p', section.about, 'dim');
  const charts = add(element, 'div', undefined, 'charts');
  let folded;
  const more = () => {
    if (!folded) {
      const details = add(element, 'details');
      add(details, 'summary', 'Percentiles and course');
      folded = add(details, 'div', undefined, 'charts');
    }
    return folded;
  };
  const xs = section.rows.map(row => row.x).filter(x => x);
  const kinds = {
    growth: () => byX(charts, section.rows, 'size', Math.max(...xs) > 30 * Math.min(...xs)),
    rates: () => byX(charts, section.rows, 'operations offered per second'),
    matrix: () => matrix(charts, section.rows),
    changes: () => changes(charts, section.rows),
  };
  if (section.rows.length) (kinds[section.kind] ?? (() => bySide(charts, more, section.rows)))();
  const numbers = add(element, 'details', undefined, 'numbers');
  add(numbers, 'summary', 'All numbers');
  const { heads, lines, notes } = section.table;
  table(numbers, ['case', 'target', ...heads], lines);
  notes.forEach((note, at) => add(numbers, 'p', `[${at + 1}] ${note}`, 'notes'));
}

add(main, 'h1', data.title);
add(main, 'p', data.about);
for (const [title, items] of data.lists ?? []) {
  if (!items.length) continue;
  const list = add(main, 'ul', undefined, title.split(' ').pop());
  items.forEach(item => add(list, 'li', item));
}
let part;
for (const each of data.sections) {
  if (each.experiment && each.experiment !== part) {
    part = each.experiment;
    const found = (data.parts ?? []).find(known => known.experiment === part);
    add(main, 'h1', found?.title ?? part);
    add(main, 'p', found?.about ?? '');
  }
  section(main, each);
}
if (data.targets) {
  add(main, 'h2', 'Targets');
  table(main, ['target', 'what it is', 'address'], data.targets, true);
  const details = add(main, 'details');
  add(details, 'summary', 'Reported properties of the targets');
  table(details, ['target', 'setting', 'value'], data.details, true);
  add(main, 'h2', 'Run');
  add(add(main, 'p'), 'code', data.command);
  add(main, 'p', data.run, 'dim');
  table(main, ['environment', ''], data.environment, true);
}
