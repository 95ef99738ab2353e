"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { kinds, lanes, names, tasks, details, links, pieces, zone } = data;
  const find = (selector) => document.querySelector(selector);
  const plot = find(".plot"), axis = find(".axis"), tip = find(".tip"), picked = find(".picked");
  if (!lanes.length) return;
  find(".tools").hidden = find("figure").hidden = false;

  // Drawn time: real time without the stretches that are cut.
  const drawn = pieces.reduce((sum, [from, to]) => sum + to - from, 0);
  const gap = drawn * data.gap, whole = drawn + gap * (pieces.length - 1);
  const toDrawn = (real) => {
    let passed = 0;
    for (const [from, to] of pieces) {
      if (real <= to) return passed + Math.max(real - from, 0);
      passed += to - from + gap;
    }
    return passed - gap;
  };
  const bars = data.bars.map(([task, token, lane, track, start, known, end, kind, detail], at) => ({
    at, task, token, lane, track, start, known, end, kind: kinds[kind], detail,
    from: toDrawn(start), until: toDrawn(known), to: toDrawn(end),
  }));
  const tracks = lanes.map((lane) => Array.from({ length: lane.tracks }, () => []));
  const byTask = new Map();
  for (const bar of bars) {
    tracks[bar.lane][bar.track].push(bar);
    byTask.set(bar.task, [...(byTask.get(bar.task) || []), bar]);
  }
  for (const runs of byTask.values()) runs.sort((one, other) => one.token - other.token);

  let view = [0, whole], only = new Set(), wanted = "", chosen = null, hovered = null, dragged = null;
  let colour = {}, size = {}, signs = {};
  for (const kind of kinds) if (data.looks[kind].mark) signs[kind] = new Path2D(data.looks[kind].mark);

  // --- words: only ever as text, never as markup

  const two = (number, digits = 2) => String(number).padStart(digits, "0");
  const local = (real) => new Date(data.start + real + zone * 60000);
  const clock = (real, step = 1) => {
    const day = local(real), hm = `${two(day.getUTCHours())}:${two(day.getUTCMinutes())}`;
    if (step >= 864e5) return `${two(day.getUTCMonth() + 1)}-${two(day.getUTCDate())} ${hm}`;
    if (step >= 6e4) return hm;
    return `${hm}:${two(day.getUTCSeconds())}` + (step >= 1e3 ? "" : `.${two(day.getUTCMilliseconds(), 3)}`);
  };
  const duration = (ms) => {
    if (ms < 1e3) return `${Math.round(ms)} ms`;
    if (ms < 6e4) return `${Number((ms / 1e3).toPrecision(3))} s`;
    for (const [name, unit, lower, part] of [["d", 864e5, "h", 36e5], ["h", 36e5, "min", 6e4], ["min", 6e4, "s", 1e3]])
      if (ms >= unit) return `${Math.floor(ms / unit)} ${name} ${Math.floor((ms % unit) / part)} ${lower}`;
  };
  const isBroken = (bar) => data.looks[bar.kind].shape === "broken";
  const nameOf = (bar) => names[tasks[bar.task][1]];
  const told = (bar) => {
    const [id, , key] = tasks[bar.task], lines = [`${nameOf(bar)} · ${bar.kind}`, `task ${id}, token ${bar.token}`];
    if (key !== null) lines.push(`key ${key}`);
    lines.push(`on ${lanes[bar.lane].label}`, `began ${clock(bar.start)}, ran for ${duration(bar.known - bar.start)}`);
    if (bar.known < bar.end)
      lines.push(`last sign of life ${clock(bar.known)}, noticed ${duration(bar.end - bar.known)} later`);
    if (bar.detail >= 0) lines.push(details[bar.detail]);
    return lines.join("\n");
  };

  // --- places

  const measure = () => {
    const style = getComputedStyle(document.documentElement);
    colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const width = plot.clientWidth, narrow = width < 640, count = tracks.flat().length;
    const step = count <= 60 ? 14 : count <= 160 ? 9 : 6, label = narrow ? 0 : Math.min(190, width * 0.2);
    let top = 2;
    size = { width, label, step, thick: step - (step > 9 ? 3 : 2), narrow, tops: [] };
    for (const lane of lanes) {
      size.tops.push(top + (narrow ? 16 : 0));
      top += (narrow ? 16 : 0) + Math.max(lane.tracks * step, 18) + 10;
    }
    size.height = top;
    size.plot = width - label - 14;
  };
  const x = (at) => size.label + ((at - view[0]) / (view[1] - view[0])) * size.plot;
  const instant = (px) => view[0] + ((px - size.label) / size.plot) * (view[1] - view[0]);
  const y = (bar) => size.tops[bar.lane] + 4 + bar.track * size.step;
  const firstIn = (track) => {
    let low = 0, high = track.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (track[middle].to < view[0]) low = middle + 1; else high = middle;
    }
    return low;
  };
  const inView = function* (track) {
    for (let at = firstIn(track); at < track.length && track[at].from <= view[1]; at++) yield track[at];
  };
  const under = (px, py) => {
    const lane = size.tops.findLastIndex((top) => py >= top);
    const track = lane < 0 ? undefined : tracks[lane][Math.floor((py - size.tops[lane] - 4) / size.step)];
    let near = null, best = 5;
    for (const bar of track || []) {
      const away = Math.max(x(bar.from) - px, px - x(bar.to), 0) - data.looks[bar.kind].rank / 100;
      if (away < best && shown(bar)) [near, best] = [bar, away];
    }
    return near;
  };
  const shown = (bar) => (!only.size || only.has(bar.kind)) && (!wanted || matches(bar));
  const found = new Map();
  const matches = (bar) => {
    if (!found.has(bar)) {
      const [id, name, key] = tasks[bar.task];
      found.set(bar, `${id}\n${names[name]}\n${key ?? ""}\n${lanes[bar.lane].label}`.toLowerCase().includes(wanted));
    }
    return found.get(bar);
  };

  // --- drawing

  const fitted = (canvas, height) => {
    const ratio = Math.min(window.devicePixelRatio || 1, 16000 / height), pen = canvas.getContext("2d");
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(size.width * ratio);
    canvas.height = Math.round(height * ratio);
    pen.scale(ratio, ratio);
    pen.font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    return pen;
  };
  const hatch = (tone) => {
    const tile = document.createElement("canvas"), pen = tile.getContext("2d");
    tile.width = tile.height = 6;
    pen.strokeStyle = tone;
    pen.lineWidth = 1.4;
    for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
    pen.stroke();
    return pen.createPattern(tile, "repeat");
  };
  const clipped = (pen, text, most) => {
    if (pen.measureText(text).width <= most) return text;
    let end = text.length;
    while (end && pen.measureText(text.slice(0, end) + "…").width > most) end--;
    return text.slice(0, end) + "…";
  };
  const shape = (pen, bar, silence) => {
    const { shape: form } = data.looks[bar.kind], tone = colour(bar.kind), top = y(bar), high = size.thick;
    const from = Math.max(x(bar.from), size.label), to = Math.min(x(bar.to), size.label + size.plot);
    const wide = Math.max(to - from - (to - from > 4 ? 0.6 : 0), 1.2);
    pen.fillStyle = pen.strokeStyle = tone;
    if (form === "full") pen.fillRect(from, top, wide, high);
    else if (form === "half") pen.fillRect(from, top + high / 2, wide, high / 2);
    else if (form === "broken") {
      const known = Math.min(Math.max(x(bar.until), from), to);
      pen.fillStyle = silence;
      pen.fillRect(known, top, Math.max(to - known, 0), high);
      pen.fillStyle = tone;
      pen.fillRect(from, top, Math.max(known - from, 1.2), high);
    } else {
      pen.lineWidth = 1.2;
      pen.strokeRect(from + 0.6, top + 0.6, Math.max(wide - 1.2, 0.6), high - 1.2);
      if (form === "struck") { pen.beginPath(); pen.moveTo(from, top + high / 2); pen.lineTo(from + wide, top + high / 2); pen.stroke(); }
    }
  };
  const sign = (pen, bar) => {
    const scale = size.step > 9 ? 0.9 : 0.6, at = x(bar.until) + (isBroken(bar) ? 0 : 5 * scale);
    pen.save();
    if (at < size.label) return pen.restore();
    pen.translate(at, y(bar) + size.thick / 2);
    pen.scale(scale, scale);
    pen.lineCap = pen.lineJoin = "round";
    for (const [tone, wide] of [[colour("paper"), 5], [colour(bar.kind), 1.9]]) {
      pen.strokeStyle = tone;
      pen.lineWidth = wide;
      pen.stroke(signs[bar.kind]);
    }
    pen.restore();
  };
  const link = (pen, before, after) => {
    const from = x(before.until), to = x(after.from), top = y(before) + size.thick / 2, low = y(after) + size.thick / 2;
    if (Math.max(from, to) < size.label || Math.min(from, to) > size.width) return;
    const bend = Math.max(Math.min(Math.abs(to - from) / 2, 60), 12);
    pen.strokeStyle = pen.fillStyle = colour(before.kind);
    pen.beginPath();
    pen.moveTo(from, top);
    pen.bezierCurveTo(from + bend, top, to - bend, low, to, low);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(to - 7, low - 4);
    pen.lineTo(to, low);
    pen.lineTo(to - 7, low + 4);
    pen.fill();
  };
  const draw = () => {
    measure();
    const pen = fitted(plot, size.height), silence = hatch(colour("dim"));
    pen.textBaseline = "middle";
    lanes.forEach((lane, at) => {
      const top = size.tops[at], high = Math.max(lane.tracks * size.step, 18) + 6;
      pen.fillStyle = colour("floor");
      pen.globalAlpha = at % 2 ? 0.55 : 1;
      pen.fillRect(size.label, top, size.plot, high);
      pen.globalAlpha = 1;
      pen.fillStyle = colour("ink");
      pen.textAlign = size.narrow ? "left" : "right";
      if (size.narrow) pen.fillText(clipped(pen, lane.label, size.width - 8), 0, top - 8);
      else pen.fillText(clipped(pen, lane.label, size.label - 14), size.label - 10, top + Math.min(high / 2, 40));
    });
    drawAxis(pen);
    pen.save();
    pen.beginPath();
    pen.rect(size.label - 1, 0, size.plot + 8, size.height);
    pen.clip();
    const seen = tracks.flat().map((track) => [...inView(track)]);
    // What ended badly lies above what did not.
    for (const worse of [false, true])
      for (const track of seen)
        for (const bar of track)
          if (data.looks[bar.kind].rank > 1 === worse) {
            pen.globalAlpha = shown(bar) && (chosen === null || chosen === bar.task) ? 1 : 0.13;
            shape(pen, bar, silence);
          }
    const handed = links.map(([one, other]) => [bars[one], bars[other]]).filter(([one, other]) => shown(one) || shown(other));
    pen.lineWidth = 1.4;
    for (const [before, after] of handed) {
      const mine = chosen === before.task || (hovered !== null && hovered.task === before.task);
      const many = handed.length > 40 ? (isBroken(before) ? 0.5 : 0.3) : 0.75;
      pen.globalAlpha = mine ? 1 : chosen !== null ? 0.06 : many;
      link(pen, before, after);
    }
    for (const track of seen) {
      let last = -99, rank = 0;
      for (const bar of track) {
        const look = data.looks[bar.kind], at = x(bar.until), pale = !shown(bar) || (chosen !== null && chosen !== bar.task);
        if (!signs[bar.kind] || pale || (at - last < 9 && look.rank <= rank)) continue;
        if (look.rank < 7 && x(bar.to) - x(bar.from) < 3 && bars.length > 2000) continue;
        pen.globalAlpha = 1;
        sign(pen, bar);
        [last, rank] = [at, look.rank];
      }
    }
    pen.globalAlpha = 1;
    if (chosen !== null || hovered !== null)
      for (const bar of byTask.get(chosen ?? hovered.task)) {
        pen.strokeStyle = colour("ink");
        pen.lineWidth = 1.5;
        pen.strokeRect(x(bar.from) - 1.5, y(bar) - 1.5, Math.max(x(bar.to) - x(bar.from), 1) + 3, size.thick + 3);
      }
    if (dragged !== null && Math.abs(dragged.to - dragged.from) > 3) {
      pen.globalAlpha = 0.18;
      pen.fillStyle = colour("ink");
      pen.fillRect(Math.min(dragged.from, dragged.to), 0, Math.abs(dragged.to - dragged.from), size.height);
    }
    pen.restore();
  };
  const drawAxis = (below) => {
    const pen = fitted(axis, 30), shownTime = view[1] - view[0];
    const step = data.steps.find((one) => shownTime / one <= size.plot / 95) ?? data.steps.at(-1);
    pen.fillStyle = colour("dim");
    pen.textBaseline = "alphabetic";
    let taken = size.label - 1, passed = 0;
    pieces.forEach(([from, to], at) => {
      if (at) {
        const left = x(passed - gap), right = x(passed), middle = Math.min(Math.max((left + right) / 2, size.label), size.width);
        below.fillStyle = colour("grid");
        if (right > size.label && left < size.width) {
          below.globalAlpha = 0.6;
          below.fillRect(Math.max(left, size.label), 0, right - Math.max(left, size.label), size.height);
          below.globalAlpha = 1;
          const text = `+${duration(from - pieces[at - 1][1])}`, wide = pen.measureText(text).width;
          pen.fillText(text, Math.max(middle - wide / 2, taken), 18);
          taken = Math.max(middle - wide / 2, taken) + wide + 8;
        }
      }
      const shift = data.start + zone * 60000, lowest = Math.max(from, view[0] - passed + from);
      for (let tick = Math.ceil((lowest + shift) / step) * step - shift; tick <= to; tick += step) {
        const px = x(passed + tick - from);
        if (px > size.width) break;
        below.fillStyle = colour("grid");
        below.fillRect(px, 0, 1, size.height);
        const text = clock(tick, step), wide = pen.measureText(text).width;
        if (px < taken || px + wide > size.width) continue;
        pen.fillText(text, px, 18);
        taken = px + wide + 10;
      }
      passed += to - from + gap;
    });
    pen.fillStyle = colour("rule");
    pen.fillRect(size.label, 27, size.plot, 1);
  };

  // --- what a person does

  let planned = false;
  const redraw = () => {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => { planned = false; draw(); });
  };
  const look = (from, to) => {
    const wide = Math.min(Math.max(to - from, 5), whole), left = Math.min(Math.max(from, 0), whole - wide);
    view = [left, left + wide];
    redraw();
  };
  const zoom = (factor, around = (view[0] + view[1]) / 2) =>
    look(around - (around - view[0]) * factor, around + (view[1] - around) * factor);
  const pan = (share) => look(view[0] + share * (view[1] - view[0]), view[1] + share * (view[1] - view[0]));
  const acts = { in: () => zoom(0.5), out: () => zoom(2), all: () => look(0, whole) };
  const keys = { "+": acts.in, "=": acts.in, "-": acts.out, 0: acts.all, ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), };

  const choose = (task) => {
    chosen = task;
    picked.hidden = task === null;
    picked.replaceChildren();
    if (task !== null) {
      const title = document.createElement("h2"), runs = byTask.get(task);
      title.textContent = `${names[tasks[task][1]]} · ${runs.length === 1 ? "1 attempt" : `${runs.length} attempts`}`;
      picked.append(title);
      for (const bar of runs) {
        const told_ = document.createElement("p");
        told_.textContent = told(bar).split("\n").slice(1).join(" · ") + ` · ${bar.kind}`;
        picked.append(told_);
      }
      const close = document.createElement("button");
      close.type = "button";
      close.textContent = "Close";
      close.onclick = () => choose(null);
      picked.append(close);
    }
    redraw();
  };
  const point = (event) => {
    const box = plot.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const hover = (event) => {
    const bar = dragged === null ? under(...point(event)) : null;
    if (bar !== hovered) { hovered = bar; redraw(); }
    tip.hidden = bar === null;
    if (bar === null) return;
    tip.textContent = told(bar);
    const right = event.clientX + 14 + tip.offsetWidth > innerWidth, low = event.clientY + 16 + tip.offsetHeight > innerHeight;
    tip.style.left = `${Math.max(right ? event.clientX - tip.offsetWidth - 10 : event.clientX + 14, 4)}px`;
    tip.style.top = `${Math.max(low ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16, 4)}px`;
  };
  plot.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const [px] = point(event);
    dragged = { from: px, to: px };
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    if (dragged !== null) { dragged.to = point(event)[0]; redraw(); }
    hover(event);
  });
  plot.addEventListener("pointerup", (event) => {
    if (dragged === null) return;
    const [from, to] = [dragged.from, dragged.to].sort((one, other) => one - other);
    dragged = null;
    if (to - from > 6) look(instant(from), instant(to));
    else choose(under(...point(event))?.task ?? null);
  });
  plot.addEventListener("pointercancel", () => { dragged = null; redraw(); });
  plot.addEventListener("pointerleave", () => { hovered = null; tip.hidden = true; redraw(); });
  plot.addEventListener("dblclick", acts.all);
  plot.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), instant(point(event)[0]));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 800);
    else return;
    event.preventDefault();
  }, { passive: false });
  plot.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && chosen !== null) choose(null); });
  for (const button of document.querySelectorAll("[data-do]")) button.onclick = acts[button.dataset.do];
  for (const button of document.querySelectorAll("[data-kind]"))
    button.onclick = () => {
      const on = !only.delete(button.dataset.kind);
      if (on) only.add(button.dataset.kind);
      button.setAttribute("aria-pressed", String(on));
      redraw();
    };
  find(".find input").addEventListener("input", (event) => {
    wanted = event.target.value.trim().toLowerCase();
    found.clear();
    redraw();
  });
  for (const button of document.querySelectorAll("[data-bar]"))
    button.onclick = () => {
      const runs = byTask.get(bars[button.dataset.bar].task), from = runs[0].from, to = runs.at(-1).to;
      look(from - (to - from) * 0.3, to + (to - from) * 0.3);
      choose(runs[0].task);
      find("figure").scrollIntoView({ block: "nearest" });
    };
  new ResizeObserver(redraw).observe(find("figure"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  draw();
})();
