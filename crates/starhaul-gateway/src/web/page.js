'use strict';
// Follows /events, each of which is the object of `starhaul status --json` without its lists of streams.

const SPAN = 120; // seconds that a plot shows
const PATIENCE = 10000; // ms without an event after which the connection is made anew
const RECENT = 300; // seconds for which "what is wrong" counts
const counts = new Map(); // values of counters at earlier times, by name
const paths = new Map(); // what is drawn of each path, by peer, side and name
let latest = null;
let heard = 0;

const $ = (selector, from = document) => from.querySelector(selector);
const probe = document.body.appendChild(document.createElement('i'));
probe.hidden = true;

/// A colour of the style sheet, as a canvas takes it.
function color(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// --- figures as text

function scaled(value, unit, steps) {
  for (const [size, prefix] of steps) {
    if (value >= size) return `${trim(value / size)} ${prefix}${unit}`;
  }
  return `${trim(value)} ${unit}`;
}
const trim = value => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : String(+value.toFixed(2));
const rate = bits => bits == null ? '–' : scaled(bits, 'bit/s', [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]);
const size = bytes => bytes == null ? '–' : scaled(bytes, 'B', [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]);
const time = ms => ms == null ? '–' : ms >= 1000 ? `${trim(ms / 1000)} s` : `${trim(ms)} ms`;
const share = part => part == null ? '–' : `${nearlyAll(part) ? Math.floor(part * 1e4) / 100 : trim(part * 100)} %`;
// Almost all is not all.
const nearlyAll = part => part > 0.99 && part < 1;
function age(seconds) {
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min` : `${Math.floor(seconds)} s`;
}

// --- paths

/// One entry per path name of a peer: its totals, and the path of the newest session that has it.
function* pathsOf(status) {
  for (const peer of status.peers) {
    const place = name => peer.configured_paths.indexOf(name);
    // Those out of service come last.
    const order = totals => place(totals.name) < 0 ? peer.configured_paths.length : place(totals.name);
    for (const totals of peer.paths.sort((a, b) => order(a) - order(b))) {
      const sessions = status.sessions.filter(s => s.peer === peer.name && s.opened_by === totals.opened_by);
      const now = sessions.reverse().map(s => s.paths.findLast(p => p.name === totals.name)).find(Boolean);
      const configured = totals.opened_by === 'us' && peer.configured_paths.includes(totals.name);
      const service = totals.opened_by === 'us' ? (peer.service ?? []).find(one => one.path === totals.name) : undefined;
      const key = `${totals.opened_by}/${peer.name}/${totals.name}`;
      if (now || configured || service?.out) yield { key, peer, totals, now, configured, service };
    }
  }
}

/// Why a path is out of service on purpose.
function whyOut({ out, hours, quota }) {
  const opens = hours?.changes_in_s == null ? '' : `; they begin in ${age(hours.changes_in_s)}`;
  const ends = quota ? `; the month ends in ${age(quota.ends_in_s)}` : '';
  const why = { ordered: 'ordered down', hours: `outside its hours (${hours?.hours})${opens}`,
    quota: `its quota of the month is reached${ends}`, uncounted: `its quota is not counted reliably: ${quota?.problem ?? ''}` };
  return why[out] ?? out;
}

function card(entry) {
  const element = $('#path').content.cloneNode(true).firstElementChild;
  element.dataset.path = entry.totals.name;
  $('#paths').append(element);
  return { element, points: [], marks: [], reconfigurations: null };
}

function showPath(entry, at) {
  const { peer, totals, now, service } = entry;
  let known = paths.get(entry.key);
  if (!known) paths.set(entry.key, known = card(entry));
  const state = now ? now.state : service?.out ? 'out' : 'down';
  const out = now?.traffic.sent_bit_per_s, back = now?.traffic.received_bit_per_s;
  known.points.push({ at, out, in: back, rtt: now?.rtt_ms, loss: now?.loss });
  // A mark stands where packets passed again.
  if (known.reconfigurations != null && totals.reconfigurations > known.reconfigurations) {
    known.marks.push(at - (now?.reconfigurations.last?.ago_s ?? 0));
  }
  known.reconfigurations = totals.reconfigurations;
  known.points = known.points.filter(point => at - point.at <= SPAN + 2);
  known.marks = known.marks.filter(mark => at - mark <= SPAN);

  const element = known.element;
  element.classList.toggle('bad', !['up', 'out'].includes(state));
  element.classList.toggle('out-of-service', state === 'out');
  element.dataset.state = state;
  $('h3', element).textContent = totals.name;
  $('.state', element).textContent = { up: 'up', suspect: 'silent', down: 'down', out: 'out of service' }[state] ?? state;
  const to = totals.opened_by === 'us' ? `to ${peer.name}` : `from ${peer.name}`;
  const remote = now ? ` at ${now.remote}` : '';
  const controller = now?.controller ? ` · ${now.controller}, ${now.controller_state}` : '';
  $('.about', element).textContent = to + remote + controller;
  const facts = {
    out: rate(out), in: rate(back), capacity: rate(now?.rate_bit_per_s),
    RTT: time(now?.rtt_ms), 'least RTT': time(now?.min_rtt_ms), 'one way': time(now?.one_way_delay_ms),
    loss: share(now?.loss), reconfigured: `${totals.reconfigurations} ×`, cost: now?.cost ?? '–',
    'sent': size(totals.bytes_sent), 'received': size(totals.bytes_received), 'in flight': size(now?.bytes_in_flight),
  };
  if (now?.limit_bit_per_s != null) facts.limit = rate(now.limit_bit_per_s);
  const quota = service?.quota;
  if (quota) facts['of the month'] = `${share(quota.share)} of ${size(quota.monthly_bytes)}`;
  const raw = { limit: now?.limit_bit_per_s, 'of the month': quota?.used_bytes, out, in: back, capacity: now?.rate_bit_per_s, RTT: now?.rtt_ms, loss: now?.loss,
    reconfigured: totals.reconfigurations, sent: totals.bytes_sent, received: totals.bytes_received };
  $('dl', element).replaceChildren(...Object.entries(facts).map(([name, text]) => {
    const [div, dt, dd] = ['div', 'dt', 'dd'].map(tag => document.createElement(tag));
    dt.textContent = name;
    dd.textContent = text;
    dd.dataset.name = name;
    if (raw[name] != null) dd.dataset.value = raw[name];
    div.append(dt, dd);
    return div;
  }));
  const error = $('.error', element);
  error.textContent = state === 'out' ? whyOut(service) : now?.last_error ?? (now ? '' : peer.last_error ?? 'no session');
  error.hidden = error.textContent === '';
}

function plot(canvas, known, lines, show, least) {
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return;
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const end = performance.now() / 1000;
  const x = at => width - (end - at) / SPAN * width;
  let most = least;
  for (const point of known.points) for (const [name] of lines) most = Math.max(most, point[name] ?? 0);
  const y = value => height - 2 - value / most * (height - 6);
  context.lineWidth = 1;
  context.strokeStyle = color('--mark');
  for (const mark of known.marks) {
    context.beginPath();
    context.moveTo(x(mark), 0);
    context.lineTo(x(mark), height);
    context.stroke();
  }
  context.lineWidth = 1.6;
  context.lineJoin = 'round';
  for (const [name, tint] of lines) {
    context.strokeStyle = color(tint);
    context.beginPath();
    let drawing = false;
    for (const point of known.points) {
      if (point[name] == null) { drawing = false; continue; }
      context[drawing ? 'lineTo' : 'moveTo'](x(point.at), y(point[name]));
      drawing = true;
    }
    context.stroke();
  }
  $('span', canvas.parentElement).textContent = `up to ${show(most)}`;
}

function draw() {
  for (const known of paths.values()) {
    plot($('[data-plot=rate]', known.element), known, [['out', '--out'], ['in', '--in']], rate, 1000);
    plot($('[data-plot=rtt]', known.element), known, [['rtt', '--text']], time, 1);
    plot($('[data-plot=loss]', known.element), known, [['loss', '--bad']], share, 0.01);
  }
}

// --- tables

function table(section, rows) {
  $(section).hidden = rows.length === 0;
  $(`${section} tbody`).replaceChildren(...rows.map(cells => {
    const row = document.createElement('tr');
    for (const cell of cells) {
      const td = document.createElement('td');
      if (cell instanceof Node) td.append(cell);
      else if (cell && typeof cell === 'object') { td.textContent = cell.text; td.className = cell.kind; }
      else td.textContent = cell;
      row.append(td);
    }
    return row;
  }));
}
const words = text => ({ text, kind: 'text' });
const alarm = count => ({ text: String(count), kind: count ? 'bad' : '' });
function bar(part, text) {
  const [div, meter] = [document.createElement('div'), document.createElement('meter')];
  div.className = 'bar';
  meter.value = part ?? 0;
  div.append(meter, text);
  if (part != null) div.dataset.value = part;
  return div;
}

/// Over which paths the bytes of each class went, by priority: what the last minutes added, or else all since the start.
function waysOf(status, direction) {
  const ways = new Map();
  const many = status.peers.length > 1;
  for (const peer of status.peers) {
    for (const path of peer.paths) {
      for (const of of path.by_class ?? []) {
        if (of.priority == null) continue;
        const name = many ? `${path.name} (${peer.name})` : path.name;
        const bytes = of[direction];
        const added = recent(`${peer.name}/${path.opened_by}/${path.name}/${of.priority}/${direction}`, bytes, heard / 1000);
        const all = ways.get(of.priority) ?? ways.set(of.priority, new Map()).get(of.priority);
        const known = all.get(name) ?? { bytes: 0, added: 0 };
        all.set(name, { bytes: known.bytes + bytes, added: known.added + added });
      }
    }
  }
  return ways;
}

function waysText(ways, priority) {
  const all = [...(ways.get(priority) ?? [])];
  const isRecent = all.some(([, way]) => way.added > 0);
  const bytes = way => isRecent ? way.added : way.bytes;
  const sum = all.reduce((sum, [, way]) => sum + bytes(way), 0);
  const cell = document.createElement('div');
  cell.className = 'ways';
  for (const [name, way] of all.sort(([, a], [, b]) => bytes(b) - bytes(a)).slice(0, 8)) {
    if (!way.bytes) continue;
    const span = document.createElement('span');
    span.textContent = `${name} ${share(bytes(way) / sum)}`;
    span.title = `${size(way.bytes)} since the start`;
    span.dataset.path = name;
    span.dataset.value = way.bytes;
    cell.append(cell.childElementCount ? ' · ' : '', span);
  }
  return cell;
}

function showClasses(status) {
  table('#classes', status.classes.map(flow => {
    const { blocks, traffic } = flow;
    const { capacity, loss, unreachable } = blocks.expired;
    const ended = blocks.on_time + blocks.late + capacity + loss + unreachable;
    const onTime = ended ? blocks.on_time / ended : null;
    return [words(`${flow.priority}`), ended ? bar(onTime, share(onTime)) : 'no deadlines', blocks.blocks_sent,
      alarm(blocks.late), alarm(capacity), alarm(loss), alarm(unreachable),
      blocks.recovered.redundancy + blocks.recovered.retransmission,
      rate(traffic.sent_bit_per_s), rate(traffic.received_bit_per_s)];
  }));
}

function showWays(status) {
  const [out, back] = [waysOf(status, 'bytes_sent'), waysOf(status, 'bytes_received')];
  table('#ways', status.classes.map(({ priority }) =>
    [words(`${priority}`), waysText(out, priority), waysText(back, priority)]));
}

function showRules(status) {
  const flows = status.peers.flatMap(peer => peer.flows.map(flow => ({ peer: peer.name, ...flow })));
  const bytes = flow => flow.traffic.sent_bytes + flow.traffic.received_bytes;
  const all = flows.reduce((sum, flow) => sum + bytes(flow), 0);
  flows.sort((a, b) => a.priority - b.priority || bytes(b) - bytes(a));
  table('#rules', flows.slice(0, 50).map(flow => {
    const part = all ? bytes(flow) / all : 0;
    const rule = (flow.rule ?? '(no rule)') + (flow.rule_of === 'peer' ? ' of the peer' : '');
    return [words(`${flow.priority}`), words(rule), words(flow.peer), `${flow.streams} of ${flow.streams_total}`,
      rate(flow.traffic.sent_bit_per_s), rate(flow.traffic.received_bit_per_s),
      size(flow.traffic.sent_bytes), size(flow.traffic.received_bytes), bar(part, share(part))];
  }));
}

function showLimits(status) {
  const reached = status.limits.filter(limit => limit.count > 0);
  table('#limits', reached.map(limit =>
    [words(limit.name), words(limit.rule ?? 'the gateway'), alarm(limit.count), limit.limit, words(limit.key)]));
}

function serviceProblems(status) {
  // Orders and hours are as they are meant to be.
  const why = { quota: 'its quota of the month is reached', uncounted: 'its quota is not counted reliably' };
  return status.peers.flatMap(peer => (peer.service ?? []).flatMap(({ path, out, quota }) => {
    const used = quota ? ` (${share(quota.share)} of ${size(quota.monthly_bytes)} used)` : '';
    if (why[out]) return [`path ${path} to ${peer.name} is out of service: ${why[out]}${used}`];
    if (quota && quota.level !== 'below') return [`path ${path} to ${peer.name}: its quota is ${quota.level === 'nearly' ? 'nearly ' : ''}used up${used}`];
    return [];
  }));
}

/// What is wrong with tunnels, relays and the bundle node.
function carrierProblems(status) {
  const problems = [];
  for (const tunnel of status.tunnels) if (!tunnel.device) problems.push(`tunnel ${tunnel.rule}: its device is gone`);
  for (const neighbour of status.leotp?.neighbours ?? []) {
    if (!neighbour.has_been_heard) problems.push(`LEOTP neighbour ${neighbour.name} has not been heard since the start`);
  }
  if (status.bundle && !status.bundle.endpoint) problems.push('the bundle node does not answer');
  if (status.bundle?.node_is_full) problems.push('the bundle node is full');
  return problems;
}

/// By how much a counter rose in the last minutes, as far as this page has seen.
function recent(name, value, at) {
  let kept = counts.get(name);
  // A gateway that was started again counts from 0. What rose while nothing came is of nobody knows when.
  if (!kept || value < kept.at(-1).value || at - kept.at(-1).at > RECENT) counts.set(name, kept = [{ at, value }]);
  if (at - kept.at(-1).at >= 2) kept.push({ at, value });
  while (kept.length > 1 && at - kept[1].at > RECENT) kept.shift();
  return value - kept[0].value;
}

function countedProblems(status) {
  const problems = [];
  const tell = (of, value, what) => {
    const count = recent(`${of}: ${what}`, value ?? 0, heard / 1000);
    if (count) problems.push(`${of}: ${count} ${what}`);
  };
  for (const rule of status.ingress) {
    const of = `rule ${rule.rule}`;
    const { not_allowed, connection_refused, unreachable } = rule.refusals;
    tell(of, rule.dropped.no_session, 'datagrams dropped while no session was open');
    tell(of, rule.dropped.too_many_clients, 'datagrams dropped, too many clients');
    tell(of, rule.dropped.refused, 'datagrams dropped, the session was full');
    tell(of, not_allowed, 'connections refused: [egress] of the peer does not allow their target');
    tell(of, connection_refused, 'connections refused by their target: nothing listens there');
    tell(of, unreachable, 'connections to a target that is not found or does not answer');
    tell(of, rule.failed_connections - not_allowed - connection_refused - unreachable, 'connections failed or broke off');
  }
  for (const peer of status.peers) {
    const sessions = status.sessions.filter(session => session.peer === peer.name);
    const refused = sessions.reduce((sum, session) => sum + session.refused_streams, 0);
    tell(`peer ${peer.name}`, refused, 'streams refused: a target that is not allowed or not found, or too many');
  }
  const { limited, dropped } = status.bundle ?? {};
  tell('bundles', limited, 'streams or flows refused by max_flows');
  tell('bundles', dropped, 'datagrams dropped: too many waited, or the node refuses them');
  return problems;
}

function showProblems(status, entries) {
  const problems = serviceProblems(status);
  for (const peer of status.peers) {
    const opens = peer.configured_paths.length > 0;
    if (opens && peer.sessions === 0) problems.push(`no session with ${peer.name}: ${peer.last_error ?? 'not tried yet'}`);
  }
  // A side to which its peers come.
  const opens = peer => peer.configured_paths.length > 0 || (peer.service ?? []).length > 0;
  if (status.peers.length > 0 && !status.peers.some(opens) && status.sessions.length === 0) {
    problems.push(`no session is open: nothing has come from ${status.peers.map(peer => peer.name).join(', ')}`);
  }
  for (const { totals, peer, now, configured } of entries) {
    if (!now && configured && peer.sessions > 0) problems.push(`path ${totals.name} to ${peer.name} is not there`);
    if (now && now.state === 'down') problems.push(`path ${totals.name} to ${peer.name} is down: ${now.last_error ?? 'no answer'}`);
    if (now && now.state === 'suspect') problems.push(`path ${totals.name} to ${peer.name} is silent for longer than expected`);
  }
  problems.push(...carrierProblems(status), ...countedProblems(status));
  $('#problems').hidden = problems.length === 0;
  $('#problems ul').replaceChildren(...problems.slice(0, 30).map(text => {
    const item = document.createElement('li');
    item.textContent = text;
    return item;
  }));
}

// --- events

function show(status) {
  // Another version has another page.
  if (latest && latest.version !== status.version) return location.reload();
  latest = status;
  heard = performance.now();
  const entries = [...pathsOf(status)];
  for (const entry of entries) showPath(entry, heard / 1000);
  const present = new Set(entries.map(entry => entry.key));
  for (const [key, known] of paths) {
    if (!present.has(key)) {
      known.element.remove();
      paths.delete(key);
    }
  }
  showProblems(status, entries);
  showClasses(status);
  showWays(status);
  showRules(status);
  showLimits(status);
  draw();
  tell();
}

function tell() {
  const summary = $('#summary');
  const silent = heard && performance.now() - heard > 2500;
  summary.classList.toggle('lost', silent);
  document.body.classList.toggle('stale', silent);
  if (silent) summary.textContent = `no answer from the gateway for ${age((performance.now() - heard) / 1000)}`;
  else if (latest) {
    const { version, uptime_s, process, sessions } = latest;
    const open = sessions.length === 1 ? '1 session' : `${sessions.length} sessions`;
    const memory = process.resident_bytes ? ` · ${size(process.resident_bytes)} of memory` : '';
    summary.textContent = `${version} · up ${age(uptime_s)} · ${open}${memory}`;
  }
}

let events = null;
let asked = 0;

function follow() {
  events?.close();
  const own = events = new EventSource('events');
  asked = performance.now();
  own.onmessage = event => show(JSON.parse(event.data));
  // Where the server refused, the browser does not try again by itself.
  own.onerror = () => {
    if (own !== events || own.readyState !== EventSource.CLOSED) return;
    if (!heard) $('#summary').textContent = 'the gateway refuses another page: it has as many as it may';
    setTimeout(() => { if (own === events) follow(); }, 2000);
  };
}

/// A connection that was cut without a word is never ended by the browser.
function look() {
  tell();
  if (performance.now() - Math.max(heard, asked) > PATIENCE) follow();
}

setInterval(look, 1000);
addEventListener('resize', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
follow();
