"use strict";
// Links lines, kernels and nodes of the open page, searches, and opens the boxes of a drawing.
// All text comes into the page by textContent.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const $ = (id) => document.getElementById(id);
  // page.py writes kernels as [name, lines, title, steps, computes, costs], nodes as [what, line, kernels, outcome, title, steps]
  const kernels = data.kernels.map(([name, lines, title, steps, computes, costs]) => ({ name, lines, title, steps, computes, costs }));
  const nodes = new Map(Object.entries(data.nodes).map(([key, [what, line, inside, outcome, title, steps]]) =>
    [key, { key, what: data.texts[what], line, kernels: inside, outcome, title, steps }]));
  const lines = data.lines.map(([name, whole]) => ({ name, whole, kernels: [], nodes: [] }));
  kernels.forEach((kernel, number) => kernel.lines.forEach((line) => lines[line].kernels.push(number)));
  nodes.forEach((node) => { if (node.line >= 0) lines[node.line].nodes.push(node.key); });

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
    history.replaceState(null, "", kind === "box" ? "#" : `#${kind}=${id}`);
  }

  function mark(element, isLit, isChosen) {
    if (!isLit) return;
    element.classList.add("lit");
    if (isChosen) element.classList.add("chosen");
  }

  const clearMarks = () => all(".lit").forEach((element) => element.classList.remove("lit", "chosen"));

  function clear() {
    clearMarks();
    $("why").hidden = true;
    history.replaceState(null, "", "#");
  }

  function scrollToLit(frame) {
    const first = frame.querySelector(".chosen") || frame.querySelector(".lit");
    if (first) scrollTo(frame, first.querySelector("summary") || first);
  }

  // not scrollIntoView: it also scrolls a narrow page away from what was clicked
  function scrollTo(frame, element) {
    const at = element.getBoundingClientRect(), area = frame.getBoundingClientRect();
    const isAcross = at.left >= area.left && at.right <= area.right;
    if (isAcross && at.top >= area.top + 70 && at.bottom <= area.bottom - 30) return;
    frame.scrollLeft += (at.left + at.right - area.left - area.right) / 2;
    frame.scrollTop += (at.top + at.bottom - area.top - area.bottom) / 2;
  }

  // *** why

  function explain(kind, id) {
    let title, parts;
    // a kernel unfolds in its place
    $("why").hidden = kind === "kernel";
    if (kind === "kernel") return;
    if (kind === "line") {
      title = lines[id].whole;
      parts = [listKernels(lines[id].kernels), listNodes(lines[id].nodes, "nodes with a buffer first")];
    } else if (kind === "box") {
      title = id.getAttribute("aria-label");
      parts = [listKernels(kernelsOf(id), "kernels inside")];
    } else {
      const subject = nodes.get(id);
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
    const plain = key.replace("b", ""), number = plain.replace(":", "/");
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
    details.querySelector(".reasons").append(make("dl", "", ...kernels[number].steps.flatMap(listStep)));
    place.append(listNodes(inside, "computed in it"));
  }

  // *** the drawing

  let scale = 1;
  // both, on a page of two runs
  const shown = () => all(".drawing:not([hidden]) .part:not([hidden]) .sheet:has(.graph)");

  function zoom(next) {
    scale = Math.min(Math.max(next, 0.1), 8);
    $("middle").style.setProperty("--zoom", scale);
    shown().forEach(scrollToLit);
  }

  // at first a large drawing is no smaller than can be read
  function fit(least = 0) {
    const scales = shown().map((sheet) => {
      const { width, height } = sheet.querySelector(".graph").viewBox.baseVal;
      return Math.min(sheet.clientWidth / width, sheet.clientHeight / height);
    });
    zoom(Math.max(Math.min(...scales, least ? 1 : 8), least));
    if (least) shown().forEach((sheet) => {
      const heavy = [".w5", ".w4", ".w3", ".box"].map((style) => sheet.querySelector(style)).find(Boolean);
      if (heavy) scrollTo(sheet, heavy);
    });
  }

  function showLitBox(from) {
    const sheet = from?.closest(".sheet");
    // the drawing with the most; of several, the drawing that is shown
    const countLit = (drawing) => all("[data-part='0'] .lit", drawing).length - drawing.hidden / 2;
    const drawings = all(".drawing"), best = [...drawings].sort((a, b) => countLit(b) - countLit(a))[0];
    if (!best || countLit(best) <= 0) return;
    if (!sheet) showPicture(drawings.indexOf(best));
    // close an open box if nothing inside it is lit
    for (const open of all(".part:not([hidden])", best)) {
      if (+open.dataset.part && !open.querySelector(".lit") && !open.contains(from)) openPart(open.parentElement, 0);
    }
    // the clicked drawing stays in place; the other one moves to what is lit
    shown().filter((other) => other !== sheet).forEach(scrollToLit);
  }

  const showOnly = (elements, number) => elements.forEach((element, position) => { element.hidden = position !== number; });
  // part 0 of a figure is the whole drawing, each other part is the inside of a box
  const openPart = (figure, number) => showOnly(all(".part", figure), number);

  function showPicture(number) {
    showOnly(all(".drawing"), number);
    if ($("schedule")) $("schedule").value = String(number);
  }

  // `opener` is a box, or the button that leads out of its inside
  function openInside(opener) {
    const figure = opener.closest("figure"), left = opener.closest(".part").dataset.part;
    if (opener.matches(".box")) select("box", opener, opener);
    openPart(figure, +opener.dataset.opens);
    // the opener is hidden now: Tab continues at what leads back
    figure.querySelector(`.part:not([hidden]) [data-opens="${left}"]`).focus();
  }

  // *** search

  const MOST_HITS = 40;

  // each word is asked for, in any order
  function* find(words) {
    const matches = (text) => words.every((word) => text.toLowerCase().includes(word));
    const codeOfLine = new Map(all("tr[data-line]").map((row) => [+row.dataset.line, row.querySelector("code")?.textContent || ""]));
    const things = [
      ...lines.map((line, number) => ["line", number, `${line.name}  ${(codeOfLine.get(number) || "").trim()}`]),
      ...kernels.map((kernel, number) => ["kernel", number, `${kernel.name}  ${kernel.computes}`]),
      ...[...nodes.values()].map((node) => ["node", node.key, `${numberOf(node.key)}  ${node.what}`]),
    ];
    for (const [kind, id, text] of things) {
      const source = (kind === "kernel" && $(`k${id}`)?.querySelector(".code")?.textContent) || "";
      if (matches(text)) yield [kind, id, text];
      else if (matches(source)) yield [kind, id, `${kernels[id].name}  (in its source)`];
    }
  }

  function search() {
    const asked = $("search").value.trim().toLowerCase(), list = $("hits");
    list.replaceChildren();
    list.hidden = !asked;
    if (!asked) return;
    let count = 0;
    for (const [kind, id, text] of find(asked.split(/\s+/))) {
      count += 1;
      if (count > MOST_HITS) continue;
      const button = make("button", "", make("span", "kind", kind), make("span", "what", text));
      button.addEventListener("click", () => { list.hidden = true; select(kind, id); });
      list.append(make("li", "", button));
    }
    if (!count) list.append(make("li", "none", "nothing found"));
    if (count > MOST_HITS) list.append(make("li", "none", `and ${count - MOST_HITS} more`));
  }

  // *** the list of kernels

  function sortBy(button) {
    const { by } = button.dataset, isAgain = button.classList.contains("by"), sign = isAgain && !button.classList.contains("up") ? 1 : -1;
    all(".sort").forEach((other) => other.classList.remove("by", "up"));
    button.classList.add("by");
    button.classList.toggle("up", sign > 0);
    const compare = by === "name" ? (one, other) => other.name.localeCompare(one.name) : (one, other) => one.costs[by] - other.costs[by];
    const rows = all("details[data-kernel]").sort((one, other) => sign * compare(kernels[one.dataset.kernel], kernels[other.dataset.kernel]));
    $("kernels").append(...rows);
  }

  function copySource(button) {
    const whole = make("textarea", "", all("code:not(.old, .none)", button.closest(".body")).map((line) => line.textContent).join("\n"));
    document.body.append(whole);
    whole.select();
    button.textContent = document.execCommand("copy") ? "copied" : "the browser does not copy";
    whole.remove();
  }

  // *** what is typed and clicked

  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) $("hits").hidden = true;
    if (event.target.matches(".sort")) return sortBy(event.target);
    if (event.target.matches(".copy")) return copySource(event.target);
    const from = event.target.closest("[data-node], [data-line], [data-opens], [data-kernels], summary.row");
    if (!from) return;
    const { node, line, opens, kernels: inside } = from.dataset;
    if (node !== undefined) select("node", node, from);
    else if (line !== undefined) select("line", +line, from);
    else if (opens !== undefined) openInside(from);
    else if (kernelsOf(from).length > 1) select("box", from, from);
    else if (inside !== undefined) select("kernel", +inside, from);
    else if (!from.parentElement.open) {
      // to close a kernel does not select it; select() opens it, so the browser must not close it again
      event.preventDefault();
      select("kernel", +from.parentElement.dataset.kernel, from);
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("input, select");
    const { key, target } = event, firstHit = $("hits").querySelector("button"), isSearch = target === $("search");
    let isDone = true;
    if (key === "Escape" && $("hits").hidden && !isTyping) clear();
    else if (key === "Escape") { $("hits").hidden = true; $("search").blur(); }
    else if (key === "/" && !isTyping) { $("search").focus(); $("search").select(); }
    else if (key === "Enter" && isSearch) firstHit?.click();
    else if ((key === "Enter" || key === " ") && target.matches(".box, .link")) target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    else isDone = false;
    // the browser does nothing more; Escape empties the search
    if (isDone && key !== "Escape") event.preventDefault();
  });

  $("search").addEventListener("input", search);
  $("search").addEventListener("focus", search);

  // *** at first

  $("in").addEventListener("click", () => zoom(scale * 1.25));
  $("out").addEventListener("click", () => zoom(scale / 1.25));
  $("fit").addEventListener("click", () => fit());
  $("schedule")?.addEventListener("change", (event) => showPicture(+event.target.value));
  fit(0.85);
  const asked = /^#(line|kernel|node)=(b?[\d:]+)$/.exec(location.hash);
  if (asked) select(asked[1], asked[1] === "node" ? asked[2] : +asked[2]);
})();
