"use strict";
// Links lines, kernels and nodes of the open page, searches, and moves the drawing.
// All text comes into the page by textContent.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const $ = (id) => document.getElementById(id);
  // page.py writes kernels as [name, lines, title, steps], nodes as [what, line, kernels, outcome, title, steps]
  const kernels = data.kernels.map(([name, lines, title, steps]) => ({ name, lines, title, steps }));
  const nodes = new Map(Object.entries(data.nodes).map(([key, [what, line, inside, outcome, title, steps]]) =>
    [key, { key, what: data.texts[what], line, kernels: inside, outcome, title, steps }]));
  const lines = data.lines.map(([name, whole]) => ({ name, whole, kernels: [], nodes: [] }));
  kernels.forEach((kernel, number) => kernel.lines.forEach((line) => lines[line].kernels.push(number)));
  nodes.forEach((node) => { if (node.line >= 0) lines[node.line].nodes.push(node.key); });
  // the ids of nodes repeat from schedule to schedule
  const schedules = new Set([...nodes.keys()].map((key) => key.replace("b", "").split(":")[0]));

  // `parts` are texts and elements
  function make(tag, className, ...parts) {
    const element = document.createElement(tag);
    if (tag === "button") element.type = "button";
    if (className) element.className = className;
    element.append(...parts);
    return element;
  }

  // *** what belongs together

  const kernelsOf = (box) => (box.dataset.kernels || "").split(" ").filter(Boolean).map(Number);
  // what belongs to a thing that can be selected; nothing if the page does not have it
  const relatedTo = {
    line: (number) => lines[number] && { lines: [number], kernels: lines[number].kernels, nodes: lines[number].nodes },
    kernel: (number) => kernels[number] && { lines: kernels[number].lines, kernels: [number], nodes: [] },
    node: (key) => {
      const node = nodes.get(key);
      return node && { lines: node.line >= 0 ? [node.line] : [], kernels: node.kernels, nodes: [key] };
    },
    // a box of a drawing that is several kernels
    box: (box) => ({ lines: kernelsOf(box).flatMap((number) => kernels[number].lines), kernels: kernelsOf(box), nodes: [] }),
  };

  function select(kind, id, from) {
    const found = relatedTo[kind](id);
    if (!found) return;
    clearMarks();
    const isLine = new Set(found.lines), isKernel = new Set(found.kernels), isNode = new Set(found.nodes);
    if (kind === "kernel" || (kind === "node" && found.kernels.length === 1)) openKernel(found.kernels[0]);
    all("tr[data-line]").forEach((row) => mark(row, isLine.has(+row.dataset.line), kind === "line"));
    all("details[data-kernel]").forEach((row) => mark(row, isKernel.has(+row.dataset.kernel), kind === "kernel"));
    all(".link[data-node], .nodes button[data-node]").forEach((row) => mark(row, isNode.has(row.dataset.node), kind === "node"));
    all(".box").forEach((box) => {
      const inside = kernelsOf(box);
      const lit = isNode.has(box.dataset.node) || inside.some((number) => isKernel.has(number));
      mark(box, lit, kind === "node" ? box.dataset.node === id : box === id || (kind === "kernel" && inside.length === 1));
    });
    explain(kind, id);
    for (const panel of ["source", "kernels"]) {
      if (from?.closest(".panel") !== $(panel)) scrollToLit($(panel));
    }
    showLitBox(from);
    // a box has no name
    writeAddress(kind === "box" ? "" : `${kind}=${id}`);
  }

  function writeAddress(place) {
    history.replaceState(null, "", `#${place}`);
  }

  function mark(element, isLit, isChosen) {
    if (!isLit) return;
    element.classList.add("lit");
    if (isChosen) element.classList.add("chosen");
  }

  function clearMarks() {
    all(".lit").forEach((element) => element.classList.remove("lit", "chosen"));
  }

  function clear() {
    clearMarks();
    $("why").replaceChildren(make("p", "muted", "Nothing is selected."));
    writeAddress("");
  }

  const firstLit = (root) => root.querySelector(".chosen") || root.querySelector(".lit");

  function scrollToLit(panel) {
    const first = firstLit(panel);
    if (!first) return;
    // to the start of the line: a long line may be scrolled to the side
    panel.scrollLeft = 0;
    const row = (first.querySelector("summary") || first).getBoundingClientRect(), frame = panel.getBoundingClientRect();
    const above = row.top - (frame.top + 70), below = row.bottom - (frame.bottom - 30);
    if (above < 0) panel.scrollTop += above;
    else if (below > 0) panel.scrollTop += Math.min(below, above);
  }

  // *** why

  function explain(kind, id) {
    let title, parts;
    if (kind === "line") {
      title = lines[id].whole;
      parts = [listKernels(lines[id].kernels), listNodes(lines[id].nodes, "nodes with a buffer first")];
    } else if (kind === "box") {
      title = id.getAttribute("aria-label");
      parts = [listKernels(kernelsOf(id), "kernels inside")];
    } else {
      const subject = kind === "kernel" ? kernels[id] : nodes.get(id);
      title = subject.title >= 0 ? data.texts[subject.title] : `node ${numberOf(id)}  ${subject.what}`;
      parts = [make("p", "muted", "It has no buffer. The page would be too large with more reasons: vmapdbg why has them.")];
      if (subject.steps) parts = [make("dl", "", ...subject.steps.flatMap(listStep))];
    }
    $("why").replaceChildren(make("h4", "", title), ...parts);
    $("why").scrollTop = 0;
  }

  const listStep = ([topic, ...sentences]) => sentences.flatMap((sentence, position) =>
    [make("dt", "", position ? "" : data.texts[topic]), make("dd", "", data.texts[sentence])]);

  // on a page of two runs, `b0:48` is a node that only before has
  function numberOf(key) {
    const plain = key.replace("b", ""), number = schedules.size > 1 ? plain : plain.split(":")[1];
    return plain === key ? number : `${number} before`;
  }

  function listKernels(numbers, title = "computed in") {
    const buttons = numbers.map((number) => {
      const button = make("button", "to", kernels[number].name);
      button.dataset.kernels = String(number);
      return button;
    });
    return make("p", "from", make("span", "muted", numbers.length ? title : "no kernel computes a value of it"), ...buttons);
  }

  function listNodes(keys, title) {
    if (!keys.length) return make("div", "list");
    const rank = { kept: 0, removed: 1 };
    const sorted = keys.map((key) => nodes.get(key)).sort((a, b) => (rank[a.outcome] ?? 2) - (rank[b.outcome] ?? 2));
    const rows = sorted.map(({ key, what, outcome }) => {
      const said = make("span", outcome, outcome && `buffer ${outcome}`);
      const button = make("button", "", make("span", "id", numberOf(key)), make("span", "", what), said);
      button.dataset.node = key;
      return make("li", "", button);
    });
    const count = `${keys.length} ${keys.length === 1 ? "node" : "nodes"}`;
    return make("div", "list", make("p", "muted", `${count}: ${title}`), make("ul", "", ...rows));
  }

  function openKernel(number) {
    const details = $(`k${number}`), place = details.querySelector(".nodes");
    details.open = true;
    if (place.firstChild) return;
    const inside = [...nodes.values()].filter((node) => node.kernels.includes(number)).map((node) => node.key);
    place.append(listNodes(inside, "computed in it"));
  }

  // *** the drawing

  const zooms = new Map();
  // both, on a page of two runs
  const shown = () => all(".drawing:not([hidden]) .part:not([hidden]) .graph");
  const wholeBox = (svg) => svg.dataset.box.split(/[\s,]+/).map(Number);

  function setView(svg, view) {
    zooms.set(svg, view);
    svg.setAttribute("viewBox", view.join(" "));
  }

  // at first the width is filled, from the top: a tall drawing shown whole is too small to read
  function startView(svg, isWhole = false) {
    const [x, y, width, height] = wholeBox(svg), size = svg.getBoundingClientRect();
    if (!size.width || !size.height) return;
    const least = Math.max(size.width / width, 0.6);
    const scale = isWhole ? Math.min(size.width / width, size.height / height) : Math.min(least, 1.6);
    const [w, h] = [size.width / scale, size.height / scale];
    setView(svg, [x + (width - w) / 2, h > height ? y + (height - h) / 2 : y, w, h]);
  }

  const startNewViews = () => shown().filter((svg) => !zooms.has(svg)).forEach((svg) => startView(svg));
  const startViews = () => { zooms.clear(); startNewViews(); };

  function zoom(svg, factor, at) {
    const [x, y, w, h] = zooms.get(svg), whole = wholeBox(svg);
    const limited = Math.min(Math.max(w * factor, 60), Math.max(whole[2], whole[3]) * 4) / w;
    const [px, py] = at || [x + w / 2, y + h / 2];
    setView(svg, [px - (px - x) * limited, py - (py - y) * limited, w * limited, h * limited]);
  }

  function pointIn(svg, x, y) {
    const point = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
    return [point.x, point.y];
  }

  function showLitBox(from) {
    const graph = from?.closest(".graph");
    // the drawing with the most; of several, the drawing that is shown
    const countLit = (drawing) => all("[data-part='0'] .lit", drawing).length - drawing.hidden / 2;
    const drawings = all(".drawing"), best = [...drawings].sort((a, b) => countLit(b) - countLit(a))[0];
    if (!best || countLit(best) <= 0) return;
    if (!graph) showPicture(drawings.indexOf(best));
    // close an open box if nothing inside it is lit
    for (const open of all(".part:not([hidden])", best)) {
      if (+open.dataset.part && !open.querySelector(".lit") && !open.contains(from)) openPart(open.parentElement, []);
    }
    // the clicked drawing stays in place; the other one moves to what is lit
    for (const other of shown()) if (other !== graph && firstLit(other)) moveTo(firstLit(other));
  }

  function moveTo(element) {
    const graph = element.closest(".graph"), box = element.getBoundingClientRect(), frame = graph.getBoundingClientRect();
    if (box.top >= frame.top && box.bottom <= frame.bottom && box.left >= frame.left && box.right <= frame.right) return;
    const [px, py] = pointIn(graph, (box.left + box.right) / 2, (box.top + box.bottom) / 2);
    const [, , w, h] = zooms.get(graph);
    setView(graph, [px - w / 2, py - h / 2, w, h]);
  }

  function showPicture(number) {
    all(".drawing").forEach((drawing, position) => { drawing.hidden = position !== number; });
    if ($("schedule")) $("schedule").value = String(number);
    startNewViews();
  }

  // *** the inside of a box

  const ways = new Map();

  // `way` has the numbers of the opened parts, outermost first; an empty way shows the whole
  function openPart(figure, way) {
    ways.set(figure, way);
    const number = way.length ? way[way.length - 1] : 0;
    const parts = all(".part", figure), trail = figure.querySelector(".trail");
    parts.forEach((part, position) => { part.hidden = position !== number; });
    trail.hidden = !way.length;
    trail.replaceChildren(...[0, ...way].map((part, depth) => {
      const button = make("button", "", parts[part].dataset.title);
      button.disabled = depth === way.length;
      button.addEventListener("click", () => closeTo(figure, depth));
      return button;
    }));
    startNewViews();
  }

  function openBox(box) {
    const figure = box.closest("figure"), way = [...(ways.get(figure) || []), +box.dataset.opens];
    select("box", box, box);
    openPart(figure, way);
    // the box is hidden now: Tab continues inside it
    figure.querySelector(".trail button:not(:disabled)").focus();
  }

  function closeTo(figure, depth) {
    const way = ways.get(figure), left = way[depth];
    openPart(figure, way.slice(0, depth));
    all(".part:not([hidden]) .box", figure).find((box) => +box.dataset.opens === left)?.focus();
  }

  function closePart() {
    const figure = all(".drawing:not([hidden]) figure").find((each) => ways.get(each)?.length);
    if (figure) closeTo(figure, ways.get(figure).length - 1);
  }

  const zoomAll = (factor) => shown().forEach((svg) => zoom(svg, factor));
  const tools = {
    in: () => zoomAll(0.8),
    out: () => zoomAll(1.25),
    fit: () => shown().forEach((svg) => startView(svg, true)),
    wide: () => {
      $("wide").setAttribute("aria-pressed", String(document.querySelector("main").classList.toggle("wide")));
      startViews();
    },
  };
  const toolKeys = { "+": "in", "=": "in", "-": "out", 0: "fit", w: "wide" };

  function watchDrawing(svg) {
    let last = null, moved = 0;
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(svg, Math.exp(Math.sign(event.deltaY) * 0.15), pointIn(svg, event.clientX, event.clientY));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => { last = [event.clientX, event.clientY]; moved = 0; });
    svg.addEventListener("pointermove", (event) => {
      if (!last || !event.buttons) return;
      const dx = event.clientX - last[0], dy = event.clientY - last[1];
      moved += Math.abs(dx) + Math.abs(dy);
      if (moved < 4) return;
      svg.classList.add("moving");
      const [x, y, w, h] = zooms.get(svg), scale = w / svg.getBoundingClientRect().width;
      setView(svg, [x - dx * scale, y - dy * scale, w, h]);
      last = [event.clientX, event.clientY];
    });
    const end = () => { last = null; svg.classList.remove("moving"); };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointerleave", end);
    // Tab brings a box into view
    svg.addEventListener("focusin", (event) => moveTo(event.target));
    // dragging the drawing does not select a box
    svg.addEventListener("click", (event) => { if (moved >= 4) event.stopPropagation(); }, true);
  }

  // *** search

  const MOST_HITS = 40;

  function* find(asked) {
    const codeOfLine = new Map(all("tr[data-line]").map((row) => [+row.dataset.line, row.querySelector("code")?.textContent || ""]));
    for (const [number, line] of lines.entries()) {
      const text = `${line.name}  ${(codeOfLine.get(number) || "").trim()}`;
      if (text.toLowerCase().includes(asked)) yield ["line", number, text];
    }
    for (const [number, kernel] of kernels.entries()) {
      const source = $(`k${number}`)?.querySelector(".code")?.textContent || "";
      if (kernel.name.toLowerCase().includes(asked)) yield ["kernel", number, kernel.name];
      else if (source.toLowerCase().includes(asked)) yield ["kernel", number, `${kernel.name}  (in its source)`];
    }
    for (const node of nodes.values()) {
      const text = `${numberOf(node.key)}  ${node.what}`;
      if (text.toLowerCase().includes(asked)) yield ["node", node.key, text];
    }
  }

  function search() {
    const asked = $("search").value.trim().toLowerCase(), list = $("hits");
    list.replaceChildren();
    list.hidden = !asked;
    if (!asked) return;
    let count = 0;
    for (const [kind, id, text] of find(asked)) {
      count += 1;
      if (count > MOST_HITS) continue;
      const button = make("button", "", make("span", "kind", kind), make("span", "what", text));
      button.addEventListener("click", () => { list.hidden = true; select(kind, id); });
      list.append(make("li", "", button));
    }
    if (!count) list.append(make("li", "none", "nothing found"));
    if (count > MOST_HITS) list.append(make("li", "none", `and ${count - MOST_HITS} more`));
  }

  // *** what is typed and clicked

  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) $("hits").hidden = true;
    const from = event.target.closest("[data-node], [data-line], [data-opens], [data-kernels], summary.row");
    if (!from) return;
    const { node, line, opens, kernels: inside } = from.dataset;
    if (node !== undefined) select("node", node, from);
    else if (line !== undefined) select("line", +line, from);
    else if (opens !== undefined) openBox(from);
    else if (kernelsOf(from).length > 1) select("box", from, from);
    else if (inside !== undefined) select("kernel", +inside, from);
    else if (!from.parentElement.open) {
      // to close a kernel does not select it; select() opens it, so the browser must not close it again
      event.preventDefault();
      select("kernel", +from.parentElement.dataset.kernel, from);
    }
  });

  function step(by) {
    const row = document.activeElement.closest("#hits li, tr.has, details.kernel, .nodes li, .list li");
    const panel = row?.closest("#hits, .lines, #kernels, ul");
    if (!panel) return false;
    const group = all("tr.has, details.kernel, li", panel).filter((item) => item.tagName === row.tagName);
    group[group.indexOf(row) + by]?.querySelector("summary, button")?.focus();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("input, select");
    const { key, target } = event, firstHit = $("hits").querySelector("button"), isSearch = target === $("search");
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    let isDone = true;
    if (key === "Escape" && $("hits").hidden && !isTyping) clear();
    else if (key === "Escape") { $("hits").hidden = true; $("search").blur(); }
    else if (key === "/" && !isTyping) { $("search").focus(); $("search").select(); }
    else if (key === "ArrowDown" && isSearch) firstHit?.focus();
    else if (key === "Enter" && isSearch) firstHit?.click();
    else if (moves[key] && !isTyping) isDone = step(moves[key]);
    else if ((key === "Enter" || key === " ") && target.matches(".box, .link")) target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    else if (key === "Backspace" && !isTyping) closePart();
    else if (toolKeys[key] && !isTyping) $(toolKeys[key])?.click();
    else isDone = false;
    // the browser does nothing more; Escape empties the search
    if (isDone && key !== "Escape") event.preventDefault();
  });

  $("search").addEventListener("input", search);
  $("search").addEventListener("focus", search);
  window.addEventListener("resize", startViews);

  // *** at first

  Object.entries(tools).forEach(([id, run]) => $(id).addEventListener("click", run));
  $("schedule")?.addEventListener("change", (event) => showPicture(+event.target.value));
  all(".graph").forEach(watchDrawing);
  if (document.querySelector(".drawing")) showPicture(0);
  const asked = /^#(line|kernel|node)=(b?[\d:]+)$/.exec(location.hash);
  if (asked) select(asked[1], asked[1] === "node" ? asked[2] : +asked[2]);
})();
