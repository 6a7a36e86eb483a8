// The page: asks the API each few seconds and shows what it says. Elements stay where they are and
// only their text changes, so that nothing jumps and nothing loses the focus.

const EVERY = 5000;
const SHOWN = 200;
const byId = (id) => document.getElementById(id);

// How things are written.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
function bytes(value) {
  if (value == null) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${UNITS[unit]}`;
}
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const number = (value) => (value == null ? "–" : whole.format(value));
const rate = (value) => (value == null ? "–" : value > 0 && value < 10 ? value.toFixed(1) : whole.format(value));
const byteRate = (value) => (value == null ? "–" : `${bytes(value)}/s`);
const percent = (part) => (part == null ? "–" : `${(100 * part).toFixed(part < 0.1 && part > 0 ? 1 : 0)} %`);
function milliseconds(value) {
  if (value == null) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 10) return `${value.toFixed(0)} ms`;
  return value >= 0.1 ? `${value.toFixed(1)} ms` : `${(1000 * value).toFixed(0)} µs`;
}
/** The time of the console, whose clock may be another one. */
let ahead = 0;
const now = () => Date.now() / 1000 + ahead;
function age(seconds) {
  if (seconds == null) return "–";
  seconds = Math.max(0, Math.round(seconds));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${whole.format(Math.floor(seconds / 86400))} days`;
}
const count = (value, one, many) => `${number(value)} ${value === 1 ? one : many}`;
const yes = (value) => (value ? "yes" : "no");
const WORDS = { ok: "OK", note: "note", warning: "warning", error: "error", starting: "reading" };

// Small pieces of the page.

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function mark(element, state) {
  if (element.dataset.state !== state) element.dataset.state = state;
}
function make(name, parent, className) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (parent) parent.append(element);
  return element;
}
/** Makes the children of `parent` those of `items`, in their order; keeps those that are there. */
function keyed(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = 0;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
    update(child, item);
    at += 1;
  }
  while (parent.children.length > at) parent.lastElementChild.remove();
}
/** Fills a table: `columns` say what a cell shows. The first heads its row. */
function table(body, items, key, columns) {
  keyed(body, items, key, () => {
    const row = document.createElement("tr");
    columns.forEach((column, at) => {
      const cell = make(at === 0 ? "th" : "td", row, column.className);
      if (at === 0) cell.scope = "row";
      if (column.meter) make("meter", cell);
    });
    return row;
  }, (row, item) => {
    columns.forEach((column, at) => {
      const cell = row.children[at];
      if (column.meter) gauge(cell.firstElementChild, column.meter(item), column.label(item), column.limits);
      else put(cell, column.text(item));
      if (column.title && cell.title !== column.title(item)) cell.title = column.title(item);
      if (column.state) mark(cell, column.state(item));
    });
  });
}
function gauge(meter, part, label, limits) {
  if (limits) { meter.low = 0.8; meter.high = 0.9; meter.optimum = 0.1; }
  meter.value = Math.min(1, part);
  if (meter.getAttribute("aria-label") !== label) meter.setAttribute("aria-label", label);
  meter.title = label;
}
function facts(list, pairs) {
  keyed(list, pairs.flatMap(([name, text]) => [["dt", name, name], ["dd", name, text]]),
    ([kind, name]) => kind + name,
    ([kind]) => document.createElement(kind),
    (element, [, , text]) => put(element, text));
}
function empty(name, isEmpty, text) {
  const note = byId(`${name}-empty`);
  if (text) put(note, text);
  note.hidden = !isEmpty;
  const scroll = note.parentElement.querySelector(".scroll");
  if (scroll) scroll.hidden = isEmpty;
}

// The head.

let selected = Number(new URLSearchParams(location.search).get("volume")) || null;

const SEVERITIES = ["error", "warning", "note", "ok", "starting"];
function worst(volumes) {
  return volumes.reduce((worst, volume) =>
    (SEVERITIES.indexOf(volume.state) < SEVERITIES.indexOf(worst.state) ? volume : worst), volumes[0]);
}
function showOverview(overview) {
  ahead = overview.now - Date.now() / 1000;
  mark(byId("headline"), overview.state === "note" ? "ok" : overview.state);
  put(byId("headline"), overview.headline);
  put(byId("version"), `Version ${overview.version}.`);
  if (!overview.volumes.some((volume) => volume.id === selected)) selected = worst(overview.volumes)?.id;
  const problem = overview.state === "error" || overview.state === "warning";
  document.title = `${problem ? "! " : ""}${overview.headline} – Sluice`;
  keyed(byId("volumes"), overview.volumes, (volume) => volume.id, (volume) => {
    const item = document.createElement("li");
    const button = make("button", item);
    button.type = "button";
    const head = make("b", button);
    make("span", head);
    make("em", head);
    make("small", button);
    button.addEventListener("click", () => {
      selected = volume.id;
      history.replaceState(null, "", `?volume=${volume.id}${location.hash}`);
      refresh();
    });
    return item;
  }, (item, volume) => {
    const button = item.firstElementChild;
    mark(button, volume.state);
    button.setAttribute("aria-pressed", String(volume.id === selected));
    put(button.querySelector("span"), volume.name);
    put(button.querySelector("em"), WORDS[volume.state]);
    put(button.querySelector("small"), volume.space
      ? `${bytes(volume.space.used_bytes)}, ${count(volume.clients, "client", "clients")}, ${rate(volume.requests)} requests/s`
      : volume.failing_since ? `not readable for ${age(now() - volume.failing_since)}` : "not read yet");
  });
}

// One volume.

function showState(volume) {
  put(byId("state-title"), `State of ${volume.name}`);
  const problems = volume.problems.length > 0 ? volume.problems : [volume.state === "starting"
    ? { severity: "starting", text: "The volume is being read.", advice: "" }
    : { severity: "ok", text: "Nothing is wrong.", advice: "" }];
  keyed(byId("problems"), problems, (problem) => problem.severity + problem.text, () => {
    const item = document.createElement("li");
    make("b", item);
    make("span", item);
    item.append(" ");
    make("small", item);
    return item;
  }, (item, problem) => {
    mark(item, problem.severity);
    const [word, text, advice] = item.children;
    put(word, WORDS[problem.severity]);
    put(text, problem.text);
    put(advice, problem.advice);
  });
}
function showTiles({ space, clients, live }) {
  const tile = (name, text, more) => {
    put(byId(`tile-${name}`), text);
    put(byId(`tile-${name}-more`), more || "\u00a0");
  };
  const of = (used, limit, write) => (limit ? `${percent(used / limit)} of ${write(limit)}` : "no limit");
  tile("space", bytes(space.used_bytes), of(space.used_bytes, space.max_bytes, bytes));
  tile("inodes", number(space.used_inodes), of(space.used_inodes, space.max_inodes, number));
  tile("clients", number(clients.total), clients.stale ? `${clients.stale} stale` : "all alive");
  const known = live.clients > 0;
  const rates = known ? live.rates : {};
  tile("requests", known ? `${rate(rates.requests)}/s` : "–", known ? `${rate(rates.meta_operations)}/s metadata` : "not known");
  tile("read", byteRate(rates.read_bytes), known ? `${byteRate(rates.object_get_bytes)} fetched` : "not known");
  tile("written", byteRate(rates.written_bytes), known ? `${byteRate(rates.object_put_bytes)} stored` : "not known");
  tile("time", milliseconds(live.request_ms), `99 % within ${milliseconds(live.request_p99_ms)}`);
  tile("hits", percent(live.cache_hit_part), "of bytes read");
}

const activity = (client, name) => client.activity?.rates?.[name];
const CLIENTS = [
  { name: "Client", className: "name", text: (client) => client.name, order: (client) => client.name, title: (client) => `Session ${client.session}, process ${client.process}\n${client.addresses.join(" ")}` },
  { name: "State", className: "badge", text: (client) => (client.stale ? "stale" : "alive"), state: (client) => (client.stale ? "warning" : "ok"), order: (client) => (client.stale ? 0 : 1) },
  { name: "Requests/s", className: "n", text: (client) => rate(activity(client, "requests")), order: (client) => -(activity(client, "requests") ?? -1) },
  { name: "Read", className: "n", text: (client) => byteRate(activity(client, "read_bytes")), order: (client) => -(activity(client, "read_bytes") ?? -1) },
  { name: "Written", className: "n", text: (client) => byteRate(activity(client, "written_bytes")), order: (client) => -(activity(client, "written_bytes") ?? -1) },
  { name: "Time", explain: "Mean time of a request", className: "n", text: (client) => milliseconds(client.activity?.request_ms), order: (client) => -(client.activity?.request_ms ?? -1) },
  { name: "Hits", explain: "Part of the bytes read that the cache had", className: "n", text: (client) => percent(client.activity?.cache_hit_part), order: (client) => client.activity?.cache_hit_part ?? 2 },
  { name: "Open", explain: "Open files", className: "n", text: (client) => (client.activity && !client.activity.silent ? number(client.activity.open_files) : "–"), order: (client) => -(client.activity?.open_files ?? -1) },
  { name: "Staged", explain: "Bytes on the local disk that wait for their upload", className: "n", text: (client) => (client.activity && !client.activity.silent ? bytes(client.activity.staged_bytes) : "–"), order: (client) => -(client.activity?.staged_bytes ?? -1) },
  { name: "Age", explain: "How long it has been mounted", className: "n", text: (client) => (client.mounted ? age(now() - client.mounted) : "–"), order: (client) => client.mounted ?? 0 },
  { name: "Version", text: (client) => client.version || "–", order: (client) => client.version },
  { name: "Remarks", className: "reason", text: remarks, order: remarks },
];
function remarks(client) {
  const parts = [];
  if (client.stale) parts.push(client.expires > 0 ? `expired ${age(now() - client.expires)} ago` : "its locks are released");
  else if (!client.activity) parts.push("not asked");
  else if (client.activity.silent) parts.push(client.activity.silent);
  if (client.console_url) parts.push(`console: ${client.console_url}`);
  return parts.join("; ");
}
let sort = { column: null, reversed: false };
let lastClients = null;

function makeClientsHead() {
  CLIENTS.forEach((column, at) => {
    const head = make("th", byId("clients-head"), column.className === "n" ? "n" : "");
    head.scope = "col";
    const button = make("button", head);
    button.type = "button";
    button.textContent = column.name;
    if (column.explain) button.title = column.explain;
    button.addEventListener("click", () => {
      sort = { column: at, reversed: sort.column === at && !sort.reversed };
      showClients(lastClients);
    });
  });
}
function showClients(clients) {
  lastClients = clients;
  if (!clients) return;
  [...byId("clients-head").children].forEach((head, at) => {
    if (at === sort.column) head.setAttribute("aria-sort", sort.reversed ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  const wanted = byId("find").value.trim().toLowerCase();
  const fits = (client) => `${client.name} ${client.version} ${client.addresses.join(" ")}`.toLowerCase().includes(wanted);
  const found = clients.shown.filter(fits);
  const order = sort.column == null
    ? (client) => (client.stale ? 0 : 1)
    : CLIENTS[sort.column].order;
  found.sort((a, b) => {
    const [x, y] = [order(a), order(b)];
    const by = x < y ? -1 : x > y ? 1 : a.session - b.session;
    return sort.reversed ? -by : by;
  });
  const shown = found.slice(0, SHOWN);
  put(byId("clients-note"), shown.length === clients.total
    ? count(clients.total, "client", "clients")
    : `${number(shown.length)} of ${count(clients.total, "client", "clients")}`);
  table(byId("clients-body"), shown, (client) => client.session, CLIENTS);
}

const LAYERS = { kernel: "file system", metadata: "database", objects: "object store" };
function showSlow(slow) {
  table(byId("slow-body"), slow, (one) => `${one.layer} ${one.operation}`, [
    { text: (one) => one.operation },
    { text: (one) => LAYERS[one.layer] },
    { className: "n", text: (one) => rate(one.rate) },
    { className: "n", text: (one) => milliseconds(one.mean_ms) },
    { text: (one) => one.slowest },
    { className: "n", text: (one) => milliseconds(one.slowest_ms) },
  ]);
  empty("slow", slow.length === 0);
}
function showDirectories(directories, space) {
  const used = Math.max(1, space.used_bytes);
  table(byId("directories-body"), directories.shown, (one) => one.path, [
    { text: (one) => one.path, title: (one) => one.path },
    { className: "n", text: (one) => bytes(one.bytes) },
    { meter: (one) => one.bytes / used, label: (one) => percent(one.bytes / used) },
    { className: "n", text: (one) => number(one.entries) },
  ]);
  put(byId("directories-caption"), directories.complete
    ? `Directories of the root, with all below them, counted ${age(now() - directories.at)} ago`
    : `At least so much: only ${number(directories.counted)} directories of the volume were counted`);
  empty("directories", directories.shown.length === 0, directories.statistics
    ? "The root has no directories."
    : "The volume keeps no statistics of directories; sluice config META-URL --dir-stats=true has them kept.");
}
function showQuotas(quotas) {
  const of = (used, limit, write) => (limit ? `${write(used)} of ${write(limit)}` : write(used));
  table(byId("quotas-body"), quotas.shown, (one) => `${one.kind} ${one.of}`, [
    { text: (one) => (one.kind === "directory" ? one.of : `${one.kind} ${one.of}`), title: (one) => one.of },
    { meter: (one) => one.used, label: (one) => percent(one.used), limits: true },
    { className: "n", text: (one) => of(one.used_bytes, one.max_bytes, bytes) },
    { className: "n", text: (one) => of(one.used_inodes, one.max_inodes, number) },
  ]);
  put(byId("quotas-caption"), quotas.shown.length === quotas.total
    ? "Limits, the fullest first"
    : `The fullest ${number(quotas.shown.length)} of ${number(quotas.total)} limits`);
  empty("quotas", quotas.shown.length === 0);
}
function showRemoval(trash, deletions) {
  const tally = (one) => `${one.more ? "more than " : ""}${number(one.count)} (${bytes(one.bytes)})`;
  facts(byId("removal-facts"), [
    ["Deleted files are kept", trash.days > 0 ? count(trash.days, "day", "days") : "not at all"],
    ["In the trash", trash.entries == null ? "not known" : `${count(trash.entries, "entry", "entries")}, ${bytes(trash.bytes)}`],
    ["Oldest", trash.hours > 0 ? `${age(trash.oldest_seconds)} ago` : "–"],
    ["Overdue", trash.overdue_hours > 0 ? count(trash.overdue_hours, "hour", "hours") : "nothing"],
    ["Deleted files with objects left", tally(deletions.files)],
    ["Replaced slices", tally(deletions.replaced_slices)],
  ]);
}
function showChecks(reports) {
  const report = (one, name, found) => (one == null
    ? `no run of sluice ${name} is on record`
    : `${age(Math.max(0, Date.now() / 1000 - one.at))} ago: ${found(one)}`);
  const tally = (one) => `${number(one.count)} (${bytes(one.bytes)})`;
  facts(byId("checks-facts"), [
    ["fsck", report(reports.fsck, "fsck", (one) => one.errors + one.blocks + one.leaked === 0
      ? `no errors among ${number(one.inodes)} inodes and ${number(one.slices)} slices`
      : `${count(one.errors, "error", "errors")} in the metadata, ${number(one.blocks)} blocks missing or damaged, `
        + `${number(one.leaked)} chunks or slices leaked${one.repaired ? "; repaired what could be" : ""}`)],
    ["gc", report(reports.gc, "gc", (one) => `${number(one.scanned)} objects, leaked ${tally(one.leaked)}`
      + `${one.deleted && one.leaked.count > 0 ? ", deleted" : ""}`)],
  ]);
}
function showSettings(settings, volume) {
  const limit = (mbps) => (mbps > 0 ? `${number(mbps)} Mbps` : "no limit");
  facts(byId("settings-facts"), [
    ["Metadata", volume.url],
    ["Objects", `${settings.storage}: ${settings.bucket}`],
    ["UUID", settings.uuid],
    ["Block size", bytes(settings.block_size_kib * 1024)],
    ["Compression", settings.compression],
    ["Encryption", settings.encryption ?? "no"],
    ["Storage class", settings.storage_class ?? "of the store"],
    ["Buckets", settings.shards > 1 ? number(settings.shards) : "1"],
    ["Hashed object names", yes(settings.hash_prefix)],
    ["Statistics of directories", yes(settings.directory_statistics)],
    ["Quotas of users and groups", yes(settings.user_group_quota)],
    ["ACLs", yes(settings.acl)],
    ["Change log", yes(settings.change_log)],
    ["Upload", limit(settings.upload_limit_mbps)],
    ["Download", limit(settings.download_limit_mbps)],
    ["Versions of clients", `${settings.min_client_version ?? "any"} to ${settings.max_client_version ?? "any"}`],
  ]);
}
function showGroup(group, clients) {
  const of = (member) => clients.shown.find((client) => client.session === member.session);
  table(byId("group-body"), group.members, (one) => one.session, [
    { text: (one) => one.address },
    { text: (one) => one.group },
    { text: (one) => of(one)?.name ?? `session ${one.session}` },
    { className: "n", text: (one) => (one.weight > 0 ? number(one.weight) : "0, drained") },
    { text: (one) => yes(one.encrypted) },
    { className: "n", text: (one) => bytes(of(one)?.activity?.cache_bytes) },
    { className: "n", text: (one) => byteRate(of(one)?.activity?.rates?.served_bytes) },
    { className: "n", text: (one) => percent(of(one)?.activity?.served_hit_part) },
    { className: "n", text: (one) => `${age(now() - one.joined)} ago` },
  ]);
  empty("group", group.members.length === 0);
}
function showVolume(volume) {
  showState(volume);
  for (const element of document.querySelectorAll("main section:not(#state), .tiles")) element.hidden = !volume.settings;
  if (!volume.settings) return;
  showTiles(volume);
  showClients(volume.clients);
  showSlow(volume.live.slow);
  showDirectories(volume.directories, volume.space);
  showQuotas(volume.quotas);
  showRemoval(volume.trash, volume.deletions);
  showGroup(volume.group, volume.clients);
  showChecks(volume.reports);
  showSettings(volume.settings, volume);
  const live = volume.live;
  put(byId("rates-note"), live.clients > 0
    ? `Sums over ${count(live.clients, "client", "clients")}${live.silent ? `; ${live.silent} without metrics` : ""}.`
    : "No client shows metrics.");
}

// Graphs.

// Steps of an axis of bytes: round in units of 1024.
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const GRAPHS = [
  { title: "Requests per second", series: [["requests", "file system"], ["meta_operations", "metadata"]], write: rate },
  { title: "Throughput", series: [["read_bytes", "read"], ["written_bytes", "written"]], write: byteRate, steps: BINARY },
  { title: "Time of a request", series: [["request_ms", "mean"], ["request_p99_ms", "99 %"], ["meta_ms", "metadata"]], write: milliseconds },
  { title: "Object store and cache group", series: [["object_get_bytes", "got"], ["object_put_bytes", "put"], ["group_bytes", "from the group"]], write: byteRate, steps: BINARY },
];
let plots = [];
let points = { volume: null, names: [], rows: [] };

/** Times of the axis, with seconds while they are close to each other. */
function clock(_, splits) {
  const form = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (splits.length > 1 && splits[1] - splits[0] < 60) form.second = "2-digit";
  return splits.map((at) => new Date(1000 * at).toLocaleTimeString([], form));
}
function makeGraphs() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  plots.forEach((plot) => plot.chart.destroy());
  byId("graphs").replaceChildren();
  plots = GRAPHS.map((graph) => {
    const figure = make("figure", byId("graphs"));
    figure.tabIndex = 0;
    const caption = make("figcaption", figure);
    make("b", caption).textContent = graph.title;
    const values = graph.series.map((_, at) => make("span", caption, `series-${at + 1}`));
    const place = make("div", figure, "plot");
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const say = (at) => graph.series.forEach(([name, text], n) => {
      const value = points.rows[at]?.[1][points.names.indexOf(name)];
      put(values[n], `${text} ${graph.write(value)}`);
    });
    const last = () => points.rows.length - 1;
    const chart = new uPlot({
      width: place.clientWidth || 300,
      height: 160,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { y: { range: (_, __, most) => [0, most > 0 ? 1.1 * most : 1] } },
      axes: [
        { ...axis, space: 70, size: 30, values: clock },
        { ...axis, size: 78, space: 36, ...(graph.steps && { incrs: graph.steps }), values: (_, splits) => splits.map(graph.write) },
      ],
      series: [{}, ...graph.series.map((_, at) => ({ stroke: colour(`--series-${at + 1}`), width: 1.5, points: { show: false }, spanGaps: false }))],
      hooks: { setCursor: [(chart) => say(chart.cursor.idx ?? last())] },
    }, [[]], place);
    const plot = { chart, figure, place, graph, say: () => say(chart.cursor.idx ?? last()) };
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (step == null || points.rows.length === 0) return;
      event.preventDefault();
      const at = Math.min(last(), Math.max(0, (chart.cursor.idx ?? last()) + step));
      chart.setCursor({ left: chart.valToPos(points.rows[at][0] / 1000, "x"), top: 0 });
    });
    figure.addEventListener("blur", () => chart.setCursor({ left: -10, top: -10 }));
    return plot;
  });
  showPoints();
}
function showPoints() {
  const times = points.rows.map((row) => row[0] / 1000);
  for (const { chart, graph, say } of plots) {
    const columns = graph.series.map(([name]) => {
      const at = points.names.indexOf(name);
      return points.rows.map((row) => row[1][at] ?? null);
    });
    chart.setData([times, ...columns]);
    say();
  }
}
function takePoints(volume, rates) {
  if (points.volume !== volume) points = { volume, names: rates.series, rows: [] };
  const begin = rates.now - 3600000;
  points.rows = [...points.rows, ...rates.points].filter((row) => row[0] > begin);
  showPoints();
}
new ResizeObserver(() => {
  for (const { chart, place } of plots) {
    if (place.clientWidth > 0 && place.clientWidth !== chart.width) chart.setSize({ width: place.clientWidth, height: 160 });
  }
}).observe(byId("graphs"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", makeGraphs);

// The round: asks, shows, waits.

let paused = false;
let readAt = null;
let asked = 0;

async function ask(path) {
  const answer = await fetch(`/api/v1/${path}`, { signal: AbortSignal.timeout(10000) });
  if (answer.status === 401) throw new Error("This browser is not let in any more. Open the address that the console prints.");
  if (!answer.ok) throw new Error(`The console answers with an error (${answer.status}).`);
  return answer.json();
}
async function refresh() {
  const number = ++asked;
  try {
    const overview = await ask("overview");
    if (number !== asked) return;
    showOverview(overview);
    const volume = selected;
    const since = points.volume === volume && points.rows.length > 0 ? points.rows.at(-1)[0] : 0;
    const [details, rates] = await Promise.all([ask(`volumes/${volume}`), ask(`volumes/${volume}/rates?since=${since}`)]);
    if (number !== asked) return;
    showVolume(details);
    takePoints(volume, rates);
    readAt = details.read_at;
    showAge();
  } catch (error) {
    if (number !== asked) return;
    mark(byId("headline"), "error");
    put(byId("headline"), error instanceof TypeError || error.name === "TimeoutError"
      ? "The console does not answer. What is shown is old."
      : error.message);
  }
}
function showAge() {
  if (readAt) put(byId("age"), `read ${age(now() - readAt)} ago`);
}
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  put(byId("pause"), paused ? "Go on" : "Pause");
  if (!paused) refresh();
});
byId("find").addEventListener("input", () => showClients(lastClients));
setInterval(showAge, 1000);
setInterval(() => { if (!paused && !document.hidden) refresh(); }, EVERY);
document.addEventListener("visibilitychange", () => { if (!paused && !document.hidden) refresh(); });
makeClientsHead();
makeGraphs();
refresh();
