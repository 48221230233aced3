"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const page = JSON.parse($("data").textContent);
  const SIDES = ["sparse", "dense"];
  const KEPT_LAYERS = 6; // decoded at a time: a page of 30 layers would fill memory
  const LISTED = 200; // keys in the list below a text; all of them are marked in the text
  const state = { layer: 0, head: 0, query: null, held: false };

  // ---- small tools ----

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function fail(message) {
    $("problem").textContent = message;
    $("problem").hidden = false;
  }

  const number = (value, digits = 3) =>
    value === 0 ? "0" : Math.abs(value) >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(digits)));
  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
  const digits = Math.round(Math.log10(page.units)) - 2; // of a weight in percent
  const least = `${(100 / page.units).toFixed(digits)} %`;
  const weight = (units) => (units === 0 ? `<${least}` : `${((100 * units) / page.units).toFixed(digits)} %`);
  const strength = (units) => Math.max(0.08, Math.sqrt(units / page.units)); // small weights stay visible
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // ---- data ----

  async function inflate(id) {
    const text = atob($(id).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /** The rows of a layer, as `Rows.packed` in rows.py wrote them. */
  function unpacked(bytes, rows) {
    let at = 0;
    const read = (array) => {
      for (let i = 0; i < array.length; i++) {
        let value = 0;
        for (let shift = 0; ; shift += 7) {
          const byte = bytes[at++];
          value |= (byte & 127) << shift;
          if (byte < 128) break;
        }
        array[i] = value;
      }
      return array;
    };
    const kept = read(new Uint16Array(rows));
    const unlisted = read(new Uint16Array(rows));
    const rest = read(new Uint16Array(rows));
    const starts = new Uint32Array(rows + 1);
    for (let row = 0; row < rows; row++) starts[row + 1] = starts[row] + kept[row];
    const keys = read(new Uint16Array(starts[rows]));
    const units = read(new Uint16Array(starts[rows]));
    for (let row = 0; row < rows; row++) for (let i = starts[row] + 1; i < starts[row + 1]; i++) keys[i] += keys[i - 1];
    return { starts, unlisted, rest, keys, units };
  }

  const loaded = new Map(); // layer -> promise of its rows
  function load(index) {
    if (loaded.has(index)) {
      const found = loaded.get(index);
      loaded.delete(index); // the last one used goes last
      loaded.set(index, found);
      return found;
    }
    const layer = page.layers[index];
    const rows = layer.heads * page.streams[layer.queries].labels.length;
    const made = (async () => {
      const found = {};
      for (const side of SIDES) found[side] = unpacked(await inflate(`rows-${side}-${index}`), rows);
      if (layer.energy) found.energy = new Float32Array((await inflate(`energies-${index}`)).buffer);
      return found;
    })();
    loaded.set(index, made);
    if (loaded.size > KEPT_LAYERS) loaded.delete(loaded.keys().next().value);
    return made;
  }

  let rowsNow = null; // of the layer that is shown
  function row(side, query) {
    const queries = page.streams[page.layers[state.layer].queries].labels.length;
    const data = rowsNow[side];
    const at = state.head * queries + query;
    const span = [data.starts[at], data.starts[at + 1]];
    return {
      keys: data.keys.subarray(...span),
      units: data.units.subarray(...span),
      unlisted: data.unlisted[at],
      rest: data.rest[at],
    };
  }

  function seenBy(query) {
    const seen = page.layers[state.layer].seen;
    return (seen.length > 1 ? seen[state.head] : seen[0])[query];
  }

  // ---- the names of layers ----

  /** Layers that read the same stream from the same stream are one group. */
  const groups = [];
  page.layers.forEach((layer, index) => {
    const [queries, keys] = [page.streams[layer.queries].name, page.streams[layer.keys].name];
    const title = layer.queries === layer.keys ? queries : `${queries} reads ${keys}`;
    let group = groups.find((other) => other.title === title);
    if (!group) groups.push((group = { title, layers: [], labels: [] }));
    group.layers.push(index);
  });
  const labels = [];
  for (const group of groups) {
    const numbers = group.layers.map((index) => page.layers[index].name.match(/\.(\d+)(\.|$)/)?.[1]);
    const unique = !numbers.includes(undefined) && new Set(numbers).size === numbers.length;
    group.layers.forEach((index, place) => (labels[index] = unique ? numbers[place] : String(place)));
  }
  const order = groups.flatMap((group) => group.layers);
  const groupOf = (index) => groups.find((group) => group.layers.includes(index));
  const headName = (layer, head) =>
    `${groups.length > 1 ? `${groupOf(layer).title}, ` : ""}layer ${labels[layer]}, head ${head}`;

  // ---- the map ----

  const METRICS = [
    { id: "support", name: "keys read", of: (l, h) => l.support[h] / l.visible[h], show: percent, log: true, words: "of the keys that it sees" },
    { id: "entropy", name: "entropy", of: (l, h) => l.entropy.sparse[h], show: (v) => `${number(v)} nats` },
    { id: "beta", name: "beta", of: (l, h) => l.beta[h], show: number, log: true },
    { id: "alpha", name: "alpha", of: (l, h) => l.alpha[h], show: number },
    { id: "length_power", name: "length power", of: (l, h) => l.length_power[h], show: number },
    { id: "first", name: "weight on the first key", of: (l, h) => l.first.sparse[h], show: percent },
    { id: "itself", name: "weight on itself", of: (l, h) => l.itself.sparse[h], show: percent },
    { id: "previous", name: "weight on the previous", of: (l, h) => l.previous.sparse[h], show: percent },
    { id: "equal", name: "weight on equal tokens", of: (l, h) => l.equal.sparse[h], show: percent },
  ].filter((metric) => page.layers.some((layer) => layer.beta.some((_, head) => metric.of(layer, head) !== null)));
  let metric = METRICS[0];

  // cividis: its order is clear to every eye, and in grey
  const CIVIDIS = [[0, 34, 78], [26, 56, 111], [67, 78, 108], [97, 101, 111], [125, 124, 120], [155, 148, 118], [188, 174, 108], [222, 201, 88], [254, 232, 56]];
  function colour(share) {
    const place = Math.min(1, Math.max(0, share)) * (CIVIDIS.length - 1);
    const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
    return CIVIDIS[low].map((value, i) => Math.round(value + (place - low) * (CIVIDIS[low + 1][i] - value)));
  }
  const rgb = (values) => `rgb(${values.join(" ")})`;
  $("scale-bar").style.background = `linear-gradient(90deg, ${CIVIDIS.map(rgb).join(", ")})`;

  const cells = []; // layer -> head -> element
  function buildMap() {
    const most = Math.max(...page.layers.map((layer) => layer.heads));
    const map = $("map");
    map.style.setProperty("--heads", most);
    map.style.setProperty("--cell-height", `${order.length > 48 ? 12 : order.length > 30 ? 15 : order.length > 14 ? 18 : 26}px`);
    for (const group of groups) {
      const block = element("div", "group");
      block.setAttribute("role", "rowgroup");
      if (groups.length > 1) {
        block.append(element("p", "group-title", group.title));
        block.setAttribute("aria-label", group.title);
      }
      if (group === groups[0]) {
        const heads = element("div", "map-heads");
        heads.setAttribute("aria-hidden", "true");
        const numbers = element("div");
        const step = most > 24 ? 4 : 1;
        for (let head = 0; head < most; head++) numbers.append(element("span", "", head % step ? "" : String(head)));
        heads.append(element("span"), numbers);
        block.append(heads);
      }
      for (const index of group.layers) {
        const line = element("div", "map-row");
        line.setAttribute("role", "row");
        const label = element("span", "map-label", labels[index]);
        label.setAttribute("aria-hidden", "true");
        const row = element("div", "cells");
        row.setAttribute("role", "presentation");
        cells[index] = [];
        for (let head = 0; head < page.layers[index].heads; head++) {
          const cell = element("div", "cell");
          cell.id = `cell-${index}-${head}`;
          cell.dataset.layer = index;
          cell.dataset.head = head;
          cell.setAttribute("role", "gridcell");
          cell.setAttribute("aria-selected", "false");
          cells[index].push(cell);
          row.append(cell);
        }
        line.append(label, row);
        block.append(line);
      }
      map.append(block);
    }
    const find = (event) => event.target.closest(".cell");
    map.addEventListener("pointerover", (event) => describe(find(event)));
    map.addEventListener("pointerleave", () => describe(cells[state.layer][state.head]));
    map.addEventListener("click", (event) => {
      const cell = find(event);
      if (cell) select(Number(cell.dataset.layer), Number(cell.dataset.head));
    });
    map.addEventListener("keydown", (event) => {
      const line = order.indexOf(state.layer);
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -Infinity], End: [0, Infinity] };
      const move = moves[event.key];
      if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const layer = order[clamp(line + move[0], order.length)];
      select(layer, clamp(state.head + move[1], page.layers[layer].heads), true);
      cells[state.layer][state.head].scrollIntoView({ block: "nearest" });
    });
    for (const each of METRICS) $("metric").append(new Option(each.name, each.id));
    $("metric").addEventListener("change", () => colourMap($("metric").value));
  }
  const clamp = (value, count) => Math.min(count - 1, Math.max(0, value));

  const MARKS = { dead: "×", copying: "=" };
  const markOf = (layer, head) => (layer.dead[head] ? MARKS.dead : layer.copying[head] ? MARKS.copying : "");

  function colourMap(id) {
    metric = METRICS.find((each) => each.id === id) ?? METRICS[0];
    $("metric").value = metric.id;
    const values = page.layers.map((layer) => layer.beta.map((_, head) => metric.of(layer, head)));
    const all = values.flat().filter((value) => value !== null && (!metric.log || value > 0));
    const scale = metric.log ? Math.log : (value) => value;
    const [low, high] = all.length ? [Math.min(...all), Math.max(...all)] : [0, 0];
    const [from, to] = [scale(low), scale(high)];
    page.layers.forEach((layer, index) => {
      values[index].forEach((value, head) => {
        const cell = cells[index][head];
        const share = value === null ? null : to > from ? (scale(Math.max(value, low)) - from) / (to - from) : 0.5;
        const shade = share === null ? null : colour(share);
        cell.classList.toggle("none", shade === null);
        cell.style.background = shade === null ? "" : rgb(shade);
        cell.style.color = shade && 0.3 * shade[0] + 0.59 * shade[1] + 0.11 * shade[2] > 110 ? "#000" : "#fff";
        cell.textContent = markOf(layer, head);
        cell.setAttribute("aria-label", description(index, head));
      });
    });
    $("scale-low").textContent = metric.show(low);
    $("scale-high").textContent = metric.show(high);
    describe(cells[state.layer][state.head]);
  }

  function description(index, head) {
    const layer = page.layers[index];
    const value = metric.of(layer, head);
    const named = value === null ? "" : `, ${metric.name} ${metric.show(value)}`;
    const kind = layer.dead[head] ? ", dead" : layer.copying[head] ? `, copies ${COPIED[layer.copying[head]]}` : "";
    return `${headName(index, head)}${named}${kind}`;
  }

  function describe(cell) {
    if (!cell) return;
    const [index, head] = [Number(cell.dataset.layer), Number(cell.dataset.head)];
    const layer = page.layers[index];
    $("map-caption").textContent =
      `${description(index, head)}: reads ${number(layer.support[head])} of ${number(layer.visible[head])} keys on average.`;
  }

  // ---- one head ----

  const COPIED = { itself: "itself", previous: "the position before", equal: "tokens equal to its own" };
  const DEAD = {
    first: `it gives at least ${percent(page.criteria.first)} of its weight to the first key, whatever it is asked`,
    sink: `it gives at least ${percent(page.criteria.sink)} of its weight to its learned sink, and so reads nothing`,
    uniform: "it gives every key the same weight, whatever it is asked",
  };

  async function select(index, head, spoken = false) {
    const before = page.layers[state.layer];
    cells[state.layer][state.head].setAttribute("aria-selected", "false");
    const [oldQueries, oldKeys] = built;
    state.layer = index;
    state.head = head;
    const cell = cells[index][head];
    cell.setAttribute("aria-selected", "true");
    $("map").setAttribute("aria-activedescendant", cell.id);
    describe(cell);
    const layer = page.layers[index];
    if (before.queries !== layer.queries || oldQueries === null) {
      state.query = clamp(state.query ?? Infinity, page.streams[layer.queries].labels.length);
      state.held = oldQueries === null && state.held;
    }
    const data = await load(index);
    if (state.layer !== index || state.head !== head) return; // another one was chosen in the meantime
    rowsNow = data;
    showHead(layer, head);
    if (oldQueries !== layer.queries || oldKeys !== layer.keys) buildViews(layer);
    drawMatrices();
    showQuery(state.query);
    if (spoken) $("status").textContent = $("map-caption").textContent;
  }

  function showHead(layer, head) {
    $("head-title").textContent = headName(state.layer, head).replace(/^./, (letter) => letter.toUpperCase());
    $("head-path").textContent = layer.name;
    const badges = [];
    if (layer.dead[head]) badges.push(`Dead head: ${DEAD[layer.dead[head]]}.`);
    if (layer.copying[head]) {
      const share = percent(layer[layer.copying[head]].sparse[head]);
      badges.push(`Copying head: it gives ${share} of its weight to ${COPIED[layer.copying[head]]}.`);
    }
    $("badges").replaceChildren(...badges.map((text) => element("li", "", text)));
    const power = layer.length_power[head];
    const facts = [
      ["alpha", number(layer.alpha[head]), layer.alpha[head] === 1 ? "softmax" : layer.alpha[head] === 2 ? "sparsemax" : "entmax"],
      ["beta", number(layer.beta[head]), power ? "for 256 keys" : "for any length"],
      ["length power", number(power), power ? "beta grows with the keys^power" : "beta is constant"],
      ["keys read", number(layer.support[head]), `of ${number(layer.visible[head])}: ${percent(layer.support[head] / layer.visible[head])}`],
      ["entropy", number(layer.entropy.sparse[head]), `nats; dense ${number(layer.entropy.dense[head])}`],
    ];
    if (layer.steps > 1) facts.push(["steps", String(layer.steps), "of retrieval"]);
    if (power) facts[2][2] = power > 0 ? "beta rises with the keys" : "beta falls with the keys";
    $("facts").replaceChildren(
      ...facts.map(([name, value, note]) => {
        const box = element("div");
        const shown = element("dd", "", value);
        shown.append(element("small", "", note));
        box.append(element("dt", "", name), shown);
        return box;
      }),
    );
    const table = $("where-table");
    table.replaceChildren();
    for (const [id, name] of [["first", "first key"], ["itself", "itself"], ["previous", "previous"], ["equal", "equal tokens"]]) {
      if (layer[id].sparse[head] === null) continue;
      const line = table.insertRow();
      const title = element("th", "", name);
      title.scope = "row";
      line.append(title);
      const cell = line.insertCell();
      for (const side of SIDES) {
        const bar = element("div", `bar ${side}-side`);
        const part = element("i");
        part.style.setProperty("--part", layer[id][side][head]);
        bar.title = `${side}: ${percent(layer[id][side][head])}`;
        bar.append(part, element("span", "", percent(layer[id][side][head])));
        cell.append(bar);
      }
    }
    $("where").hidden = !table.rows.length;
  }

  // ---- charts ----

  const SVG = "http://www.w3.org/2000/svg";
  function svg(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /** A line chart in a figure: each line is a list of points, with a class, and `dots` are single points. */
  function chart(figure, name, lines, { dots = [], log = false, xName, legend }) {
    const [width, height, left, right, top, bottom] = [260, 150, 46, 10, 8, 30];
    const all = [...lines.flatMap((line) => line.points), ...dots.map((dot) => dot.point)];
    const x = log ? Math.log : (value) => value;
    const [x0, x1] = [Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0]))];
    let [y0, y1] = [Math.min(...all.map((p) => p[1])), Math.max(...all.map((p) => p[1]))];
    if (y1 - y0 < 1e-12) [y0, y1] = [y0 - 0.5, y1 + 0.5];
    const px = (value) => left + ((x(value) - x(x0)) / (x(x1) - x(x0) || 1)) * (width - left - right);
    const py = (value) => top + (1 - (value - y0) / (y1 - y0)) * (height - top - bottom);
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": name });
    for (const y of [y0, y1]) {
      drawn.append(svg("line", { x1: left, x2: width - right, y1: py(y), y2: py(y) }));
      drawn.append(svg("text", { x: left - 6, y: py(y) + 3, "text-anchor": "end" }, number(y)));
    }
    for (const value of [x0, x1]) drawn.append(svg("text", { x: px(value), y: height - 16, "text-anchor": "middle" }, number(value)));
    drawn.append(svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, xName));
    for (const line of lines) {
      const path = line.points.map((point, i) => `${i ? "L" : "M"}${px(point[0]).toFixed(1)} ${py(point[1]).toFixed(1)}`).join("");
      drawn.append(svg("path", { d: path, class: line.class ?? "" }));
    }
    for (const dot of dots) drawn.append(svg("circle", { cx: px(dot.point[0]), cy: py(dot.point[1]), r: 4, class: dot.class ?? "" }));
    figure.replaceChildren(figure.querySelector("figcaption"), drawn);
    if (legend) figure.append(element("p", "legend", legend));
    figure.hidden = false;
  }

  function drawCharts(query) {
    const layer = page.layers[state.layer];
    const [power, beta] = [layer.length_power[state.head], layer.beta[state.head]];
    const at = (n) => beta * (n / 256) ** power;
    const most = Math.max(...layer.seen.flat());
    $("length-chart").hidden = !power || most < 2;
    if (!$("length-chart").hidden) {
      const points = [];
      for (let n = 1; n < most; n *= 1.15) points.push([n, at(n)]);
      points.push([most, at(most)]);
      const seen = query === null ? 0 : seenBy(query);
      const dots = seen ? [{ point: [seen, at(seen)], class: "one" }] : [];
      const legend = seen ? `This position sees ${seen} keys: beta ${number(at(seen))}.` : "";
      chart($("length-chart"), "beta by the number of keys that a query sees", [{ points }], { dots, log: true, xName: "keys that it sees", legend });
    }
    $("energy-chart").hidden = !layer.energy;
    if (layer.energy) {
      const energies = layer.energy[state.head];
      const lines = [{ points: energies.map((value, step) => [step + 1, value - energies[0]]) }];
      let legend = `Mean of all positions: ${number(energies[0], 4)} before, ${number(energies.at(-1), 4)} at the read-out.`;
      if (query !== null) {
        const queries = page.streams[layer.queries].labels.length;
        const own = energies.map((_, step) => rowsNow.energy[(step * layer.heads + state.head) * queries + query]);
        if (!own.some(Number.isNaN)) {
          lines.push({ points: own.map((value, step) => [step + 1, value - own[0]]), class: "one" });
          legend += ` Dashed: this position, ${number(own[0], 4)} to ${number(own.at(-1), 4)}.`;
        }
      }
      chart($("energy-chart"), "energy at each step of retrieval", lines, { xName: "step", legend });
    }
  }

  // ---- matrices ----

  const PIXELS = 400; // of a side, at most: a pixel shows the largest weight of its rows and keys
  function drawMatrices() {
    const layer = page.layers[state.layer];
    const [queries, keys] = [layer.queries, layer.keys].map((stream) => page.streams[stream].labels.length);
    const [height, width] = [Math.min(queries, PIXELS), Math.min(keys, PIXELS)];
    for (const side of SIDES) {
      const box = $(`matrix-${side}`);
      const canvas = box.firstElementChild;
      canvas.width = width;
      canvas.height = height;
      canvas.style.aspectRatio = String(Math.min(4, Math.max(0.5, width / height)));
      const shown = element("span");
      shown.style.color = `var(--${side})`;
      document.body.append(shown);
      const tint = getComputedStyle(shown).color.match(/[\d.]+/g).slice(0, 3).map(Number);
      shown.remove();
      const largest = new Uint16Array(width * height);
      const data = rowsNow[side];
      for (let query = 0; query < queries; query++) {
        const at = state.head * queries + query;
        const line = Math.floor((query * height) / queries) * width;
        for (let i = data.starts[at]; i < data.starts[at + 1]; i++) {
          const place = line + Math.floor((data.keys[i] * width) / keys);
          largest[place] = Math.max(largest[place], data.units[i] || 1);
        }
      }
      const image = new ImageData(width, height);
      largest.forEach((units, place) => {
        if (units) image.data.set([...tint, 255 * Math.max(0.12, strength(units))], 4 * place);
      });
      canvas.getContext("2d").putImageData(image, 0, 0);
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${side} weights of ${headName(state.layer, state.head)}: one line for each query, one column for each key`);
    }
  }

  function matrixLine(query) {
    const queries = page.streams[page.layers[state.layer].queries].labels.length;
    for (const side of SIDES) {
      const line = $(`matrix-${side}`).lastElementChild;
      line.hidden = query === null;
      line.style.top = `${(100 * (query ?? 0)) / queries}%`;
      line.style.height = `max(3px, ${100 / queries}%)`;
    }
  }

  for (const side of SIDES) {
    const box = $(`matrix-${side}`);
    const queryAt = (event) => {
      const area = box.getBoundingClientRect();
      const queries = page.streams[page.layers[state.layer].queries].labels.length;
      return clamp(Math.floor(((event.clientY - area.top) / area.height) * queries), queries);
    };
    box.addEventListener("pointermove", (event) => state.held || soon(() => showQuery(queryAt(event))));
    box.addEventListener("click", (event) => hold(queryAt(event), true));
  }

  // ---- texts, pictures and positions ----

  let built = [null, null]; // the streams that the views show
  let queryViews = [];
  const keyViews = {};

  function buildViews(layer) {
    built = [layer.queries, layer.keys];
    const same = layer.queries === layer.keys;
    const noun = page.streams[layer.queries].text ? "token" : page.streams[layer.queries].grid ? "patch" : "position";
    $("reads-title").textContent = same
      ? `What each ${noun} reads`
      : `What each ${noun} of the ${page.streams[layer.queries].name} reads in the ${page.streams[layer.keys].name}`;
    queryViews = [];
    $("query-view").hidden = same;
    $("query-view").replaceChildren();
    if (!same) {
      const view = makeView(layer.queries, "query", true, `Positions of the ${page.streams[layer.queries].name}`);
      $("query-view").append(element("p", "view-title", `Choose in the ${page.streams[layer.queries].name}:`), view.element);
      queryViews.push(view);
    }
    for (const side of SIDES) {
      const view = makeView(layer.keys, side, same, `${side} weights in the ${page.streams[layer.keys].name}`);
      $(`${side}-view`).replaceChildren(view.element);
      keyViews[side] = view;
      if (same) queryViews.push(view);
    }
    const [one, other] = SIDES.map((side) => keyViews[side].element);
    for (const [from, to] of [[one, other], [other, one]]) from.addEventListener("scroll", () => (to.scrollTop = from.scrollTop), { passive: true });
  }

  function makeView(index, prefix, asks, name) {
    const stream = page.streams[index];
    const block = element("div", `stream ${stream.grid ? "image" : "text"}${asks ? " queries" : ""}`);
    const special = new Set(stream.special);
    const first = stream.grid ? stream.labels.length - stream.grid[0] * stream.grid[1] : stream.labels.length;
    const made = stream.labels.map((label, place) => {
      const patch = place >= first;
      const text = patch ? "" : stream.text || stream.grid ? label : ` ${label}`;
      const one = element("span", `${patch ? "patch" : "token"}${special.has(place) ? " special" : ""}`, text.replaceAll("\n", "↵\n"));
      one.id = `${prefix}-${place}`;
      one.dataset.place = place;
      one.setAttribute("role", asks ? "option" : "listitem");
      if (asks) one.setAttribute("aria-selected", "false");
      if (patch || !label.trim()) one.setAttribute("aria-label", label.trim() || "space");
      return one;
    });
    if (stream.grid) {
      const before = element("div");
      before.append(...made.slice(0, first));
      const picture = element("div", "picture");
      const canvas = element("canvas");
      [canvas.width, canvas.height] = stream.picture;
      picture.style.aspectRatio = `${stream.picture[0]} / ${stream.picture[1]}`;
      const over = element("div", "patches");
      over.style.gridTemplate = `repeat(${stream.grid[0]}, 1fr) / repeat(${stream.grid[1]}, 1fr)`;
      over.append(...made.slice(first));
      picture.append(canvas, over);
      block.append(...(first ? [before] : []), picture);
      inflate(`pixels-${index}`).then((bytes) => {
        const image = new ImageData(...stream.picture);
        for (let i = 0; i < bytes.length / 3; i++) image.data.set([bytes[3 * i], bytes[3 * i + 1], bytes[3 * i + 2], 255], 4 * i);
        canvas.getContext("2d").putImageData(image, 0, 0);
      });
    } else block.append(...made);
    block.setAttribute("aria-label", name);
    block.setAttribute("role", asks ? "listbox" : "list");
    block.tabIndex = 0;
    const view = { element: block, places: made, stream, first, marked: [] };
    if (asks) {
      const find = (event) => event.target.closest("[data-place]");
      block.addEventListener("pointerover", (event) => {
        const one = find(event);
        if (one && !state.held && event.pointerType !== "touch") soon(() => showQuery(Number(one.dataset.place)));
      });
      block.addEventListener("click", (event) => {
        const one = find(event);
        if (one) hold(Number(one.dataset.place), true);
      });
      block.addEventListener("keydown", (event) => moveQuery(event, view));
    }
    return view;
  }

  function moveQuery(event, view) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const last = view.places.length - 1;
    const now = state.query ?? last;
    const columns = view.stream.grid?.[1];
    const moves = {
      ArrowLeft: () => now - 1,
      ArrowRight: () => now + 1,
      ArrowUp: () => (columns ? (now >= view.first ? Math.max(now - columns, view.first - 1) : now - 1) : nextLine(view, now, -1)),
      ArrowDown: () => (columns ? (now >= view.first ? now + columns : now + 1) : nextLine(view, now, 1)),
      Home: () => 0,
      End: () => last,
    };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      hold(now, true);
    } else if (moves[event.key]) {
      event.preventDefault();
      hold(clamp(moves[event.key](), last + 1), false);
      view.places[state.query].scrollIntoView({ block: "nearest" });
    }
  }

  /** The token of the next or previous line of a text that is nearest to straight below or above. */
  function nextLine(view, now, direction) {
    const from = view.places[now].getBoundingClientRect();
    let best = now;
    let line = null;
    for (let place = now + direction; place >= 0 && place < view.places.length; place += direction) {
      const box = view.places[place].getBoundingClientRect();
      if (Math.abs(box.top - from.top) < 4) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > 4) break;
      const off = (area) => Math.abs(area.left + area.width / 2 - from.left - from.width / 2);
      if (best === now || off(box) < off(view.places[best].getBoundingClientRect())) best = place;
    }
    return best;
  }

  /** Show a position and hold it; a second time lets it go. */
  function hold(query, toggle) {
    state.held = !(toggle && state.held && state.query === query);
    showQuery(query);
    const stream = page.streams[page.layers[state.layer].queries];
    $("status").textContent = `${named(stream, query)}: ${$("sparse-count").textContent} ${[...$("sparse-list").children].slice(0, 3).map((line) => line.innerText).join("; ")}`;
  }

  function letGo() {
    state.held = false;
    showQuery(state.query);
  }

  let waiting = null;
  let frame = 0;
  /** Do the last of several things at the next frame: the pointer moves faster than the page is drawn. */
  function soon(work) {
    waiting = work;
    if (!frame) frame = requestAnimationFrame(() => ((frame = 0), waiting()));
  }

  function named(stream, place) {
    const label = stream.labels[place];
    return stream.text ? `“${label.trim() || "␣"}”, token ${place}` : stream.grid || !/^\d+$/.test(label) ? label : `position ${label}`;
  }

  function showQuery(query) {
    const layer = page.layers[state.layer];
    const before = state.query;
    state.query = query;
    for (const view of queryViews) {
      for (const place of [before, query]) {
        const one = view.places[place];
        if (!one) continue;
        one.classList.toggle("query", place === query);
        one.setAttribute("aria-selected", String(place === query));
      }
      if (query !== null) view.element.setAttribute("aria-activedescendant", view.places[query].id);
    }
    for (const side of SIDES) showSide(side, query);
    matrixLine(query);
    drawCharts(query);
    showState(layer, query);
    remember();
  }

  function showState(layer, query) {
    const text = query === null ? "Point at a position." : `${named(page.streams[layer.queries], query)}${state.held ? ", held" : ""}`;
    $("state").replaceChildren(document.createTextNode(text));
    if (!state.held) return;
    const button = element("button", "", "Let go");
    button.type = "button";
    button.addEventListener("click", letGo);
    $("state").append(button);
  }

  function showSide(side, query) {
    const view = keyViews[side];
    for (const one of view.marked) {
      one.classList.remove("read");
      one.removeAttribute("title");
      delete one.dataset.weight;
    }
    view.marked = [];
    view.element.classList.toggle("active", query !== null);
    const list = $(`${side}-list`);
    if (query === null) {
      list.replaceChildren();
      $(`${side}-count`).textContent = "";
      return;
    }
    const { keys, units, unlisted, rest } = row(side, query);
    keys.forEach((key, i) => {
      const one = view.places[key];
      const value = strength(units[i]);
      one.classList.add("read");
      one.style.setProperty("--strength", value.toFixed(3));
      one.dataset.weight = weight(units[i]);
      one.title = `${named(view.stream, key)}: ${weight(units[i])}`;
      view.marked.push(one);
    });
    const ranked = [...keys.keys()].sort((a, b) => units[b] - units[a] || keys[a] - keys[b]);
    const shown = ranked.slice(0, LISTED);
    const hidden = ranked.slice(LISTED);
    const lines = shown.map((i) => {
      const line = element("li");
      line.dataset.key = keys[i];
      const part = element("i");
      part.style.setProperty("--part", units[i] / page.units);
      const word = element("span", "word", view.stream.labels[keys[i]].replaceAll("\n", "↵").trim() || "␣");
      line.append(word, element("span", "place", String(keys[i])), part, element("span", "weight", weight(units[i])));
      return line;
    });
    const others = unlisted + hidden.length;
    if (others) {
      const together = rest + hidden.reduce((sum, i) => sum + units[i], 0);
      lines.push(element("li", "rest", `and ${others} more ${others > 1 ? "keys, together" : "key,"} ${weight(together)}`));
    }
    const total = units.reduce((sum, value) => sum + value, 0) + rest;
    const seen = seenBy(query);
    const toSink = page.units - total;
    if (seen && toSink > page.units * 0.01 + keys.length) lines.push(element("li", "rest", `${weight(toSink)} goes to the sink of the head, or to no key`));
    list.replaceChildren(...lines);
    showCount(side, keys.length + unlisted, seen, ranked.map((i) => units[i]), total);
  }

  function showCount(side, support, seen, ranked, total) {
    const count = $(`${side}-count`);
    if (!seen) {
      count.textContent = "Sees no key (padding).";
      return;
    }
    let sum = 0;
    const enough = ranked.findIndex((units) => (sum += units) >= 0.9 * total) + 1;
    count.replaceChildren(element("b", "", `${support} of ${seen}`), document.createTextNode(` keys have weight; ${support === seen ? "none is zero" : `${seen - support} are exactly zero`}.`));
    if (enough) count.append(document.createTextNode(` ${enough} ${enough > 1 ? "hold" : "holds"} 90 % of it.`));
  }

  // ---- the page ----

  function remember() {
    const parts = { layer: state.layer, head: state.head, token: state.query, held: state.held ? 1 : null, colour: metric.id === METRICS[0].id ? null : metric.id };
    const text = Object.entries(parts).filter(([, value]) => value !== null).map(([key, value]) => `${key}=${value}`).join("&");
    clearTimeout(remember.timer); // browsers limit how often the address changes
    remember.timer = setTimeout(() => history.replaceState(null, "", `#${text}`), 150);
  }

  function recall() {
    const given = new URLSearchParams(location.hash.slice(1));
    const asNumber = (name, count, otherwise) => {
      const value = Number.parseInt(given.get(name), 10);
      return Number.isInteger(value) && value >= 0 && value < count ? value : otherwise;
    };
    const layer = asNumber("layer", page.layers.length, order[0]);
    const queries = page.streams[page.layers[layer].queries].labels.length;
    state.query = asNumber("token", queries, queries - 1);
    state.held = given.get("held") === "1";
    return [layer, asNumber("head", page.layers[layer].heads, 0), given.get("colour")];
  }

  function step(direction) {
    const all = order.flatMap((layer) => cells[layer].map((_, head) => [layer, head]));
    const now = all.findIndex(([layer, head]) => layer === state.layer && head === state.head);
    select(...all[(now + direction + all.length) % all.length], true);
  }

  function switchTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("hf-sparse-hopfield-theme", root.dataset.theme);
    } catch {} // pages from a file may have no storage
    drawMatrices();
  }

  function words() {
    const c = page.criteria;
    const all = {
      "key, query": "each position (the query) reads other positions (the keys)",
      "keys read": "how many keys have weight. All others have a weight of exactly zero: sparse attention does not read them at all",
      dense: "the same model with softmax in place of entmax, run on the same input. Softmax gives every key some weight",
      entropy: "how spread out the weights of a row are, in nats: 0 for a single key",
      alpha: "member of the entmax family: 1 is softmax, 2 is sparsemax; the larger, the sparser",
      beta: "factor of the scores: the larger, the fewer keys have weight",
      "length power": "in a row that sees n keys, beta is multiplied by (n / 256) to this power",
      energy: "what retrieval with several steps minimises: each step moves the query to a lower energy, towards stored patterns",
      "dead head": `its output is the same whatever the query: it gives at least ${percent(c.first)} of its weight to the first key or to a learned sink, or the same weight to every key (its entropy is ${percent(c.uniform)} of the largest). Rows that see one key do not count`,
      "copying head": `at least ${percent(c.copying)} of its weight goes to itself, to the position before, or to tokens equal to its own (elsewhere in the text), on average over the rows that see such a key and another one, of which there must be ${c.rows}`,
      weights: `are rounded to ${least}. “<${least}” is a weight that is not zero and rounds to it`,
    };
    for (const [name, text] of Object.entries(all)) $("words").append(element("dt", "", name), element("dd", "", text));
  }

  function summary() {
    const every = (of) => page.layers.flatMap((layer) => layer.beta.map((_, head) => of(layer, head)));
    const [read, seen] = [every((l, h) => l.support[h]), every((l, h) => l.visible[h])].map(mean);
    const dead = every((l, h) => l.dead[h]).filter(Boolean).length;
    const copies = every((l, h) => !l.dead[h] && l.copying[h]).filter(Boolean).length;
    const inputs = page.streams.map((stream) =>
      stream.text ? `${stream.name} (${stream.labels.length} tokens)` : stream.grid ? `${stream.name} (${stream.grid.join(" × ")} patches)` : `${stream.labels.length} ${stream.name}`,
    );
    const share = element("b", "", percent(read / seen));
    $("summary").append(
      `${page.model}: ${every(() => 1).length} heads in ${page.layers.length} attention layers. Input: ${inputs.join(", ")}. On average a head reads `,
      share,
      ` of the keys that it sees.`,
    );
    const marks = $("marks");
    const mark = (sign, count, name) => marks.append(...(marks.childNodes.length ? [" · "] : []), element("b", "", sign), ` ${count} ${name}${count === 1 ? "" : "s"}`);
    mark(MARKS.dead, dead, "dead head");
    mark(MARKS.copying, copies, "copying head");
    const cuts = SIDES.filter((side) => page.cut[side]).map((side) => `the ${page.most[side]} largest ${side} weights`);
    $("footer").textContent =
      `Weights are rounded to ${least}; of the dense ones, those that round to zero are given as a sum.${cuts.length ? ` To keep the page small, of each row ${cuts.join(" and ")} are listed, and the others as a sum.` : ""} Made by hf-sparse-hopfield ${page.version}. This page loads nothing from the network.`;
  }

  function start() {
    if (typeof DecompressionStream === "undefined" || !CSS.supports("color", "light-dark(red, red)")) {
      fail("This browser is too old for this page: Chrome 123, Firefox 120 or Safari 17.5 show it.");
      return;
    }
    try {
      const theme = localStorage.getItem("hf-sparse-hopfield-theme");
      if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    } catch {} // as above
    summary();
    words();
    buildMap();
    const [layer, head, shade] = recall();
    [state.layer, state.head] = [layer, head];
    colourMap(shade);
    $("theme").addEventListener("click", switchTheme);
    $("help-button").addEventListener("click", () => $("help").showModal());
    $("help").addEventListener("click", (event) => event.target === $("help") && $("help").close());
    $("previous-head").addEventListener("click", () => step(-1));
    $("next-head").addEventListener("click", () => step(1));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => rowsNow && drawMatrices());
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || $("help").open || event.target.matches("select")) return;
      const actions = { "?": () => $("help").showModal(), "[": () => step(-1), "]": () => step(1), d: switchTheme, Escape: letGo };
      if (!actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    });
    window.addEventListener("hashchange", async () => {
      const [toLayer, toHead, toShade] = recall();
      colourMap(toShade);
      await select(toLayer, toHead);
    });
    select(layer, head).then(() => document.documentElement.setAttribute("data-ready", ""), (error) => fail(`The page is damaged: ${error}`));
  }

  start();
})();
