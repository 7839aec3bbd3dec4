// Drawing a domain: polygons whose sides are straight or curved, and are wall, slip wall, moving wall, inlet or outlet.
// A shape is a list of corners {x, y, role, curved}; role and curved belong to the side from there to the next corner.
// The first shape is the outline, the others are bodies in it. Everything can be done with the pointer and with keys.
(function () {
  "use strict";

  const ROLES = ["wall", "slip", "moving", "inlet", "outlet"];
  const KEYS = { w: "wall", s: "slip", m: "moving", i: "inlet", o: "outlet" };
  const SMOOTH = Math.PI / 9;  // by which the line may turn at a corner of a curve
  const KEPT = 7;              // of the corners of a curve, one in so many becomes a corner to drag
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

  const corner = (x, y, role = "wall", curved = false) => ({ x, y, role, curved });
  const at = (shape, index) => shape[(index + shape.length) % shape.length];
  const round = (value) => Number(value.toFixed(4));

  // Geometry

  // The direction of the line at a corner; where a straight side comes to it, the curve is free there.
  function slope(shape, index, other) {
    const here = at(shape, index), [before, after] = [at(shape, index - 1), at(shape, index + 1)];
    if (here.curved && before.curved) return [(after.x - before.x) / 2, (after.y - before.y) / 2];
    return other && [1.5 * (other.to[0] - other.from[0]) - 0.5 * other.slope[0], 1.5 * (other.to[1] - other.from[1]) - 0.5 * other.slope[1]];
  }

  // Places on a side from its corner on, without the next one: of a curved side on Hermite's cubic, finely enough for
  // a mesh of this spacing.
  function side(shape, index, spacing) {
    const [a, b] = [at(shape, index), at(shape, index + 1)];
    const [from, to] = [[a.x, a.y], [b.x, b.y]], straight = [to[0] - from[0], to[1] - from[1]];
    if (!a.curved) return [from];
    let [first, second] = [slope(shape, index), slope(shape, index + 1)];
    if (!first && !second) return [from];
    first = first || slope(shape, index, { from, to, slope: second });
    second = second || slope(shape, index + 1, { from, to, slope: first });
    const count = Math.min(16, Math.max(2, Math.round(1.5 * Math.hypot(...straight) / spacing)));
    return Array.from({ length: count }, (_, k) => {
      const t = k / count, [t2, t3] = [t * t, t * t * t];
      return [0, 1].map((axis) => round((2 * t3 - 3 * t2 + 1) * from[axis] + (t3 - 2 * t2 + t) * first[axis]
        + (3 * t2 - 2 * t3) * to[axis] + (t3 - t2) * second[axis]));
    });
  }

  // {corners, roles}, as the server takes them.
  function polygon(shape, spacing) {
    const sides = shape.map((_, index) => side(shape, index, spacing));
    return { corners: sides.flat(), roles: sides.flatMap((places, index) => places.map(() => shape[index].role)) };
  }

  const area = (corners) => Math.abs(corners.reduce((sum, [x, y], k) => {
    const [nextX, nextY] = corners[(k + 1) % corners.length];
    return sum + x * nextY - y * nextX;
  }, 0)) / 2;

  // Of a mesh with so many points.
  function spacingOf(shapes, points) {
    const [outline, ...bodies] = shapes.map((shape) => area(shape.map(({ x, y }) => [x, y])));
    return Math.sqrt(Math.max(0.1 * outline, outline - bodies.reduce((sum, each) => sum + each, 0)) / points);
  }

  function isInside([x, y], corners) {
    let odd = false;
    for (let k = 0, last = corners.length - 1; k < corners.length; last = k++) {
      const [[ax, ay], [bx, by]] = [corners[k], corners[last]];
      if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
    }
    return odd;
  }

  // Why no mesh can fill the polygons, in words; "" where one can.
  function fault(polygons) {
    const turn = ([ax, ay], [bx, by], [cx, cy]) => Math.sign((bx - ax) * (cy - ay) - (by - ay) * (cx - ax));
    const sides = polygons.flatMap(({ corners }, own) => corners.map((from, k) => {
      const to = corners[(k + 1) % corners.length];
      return { own, k, last: corners.length - 1, from, to, low: Math.min(from[0], to[0]), high: Math.max(from[0], to[0]) };
    })).sort((one, other) => one.low - other.low);
    for (let i = 0; i < sides.length; i++)
      for (let j = i + 1; j < sides.length && sides[j].low <= sides[i].high; j++) {
        const [a, b] = [sides[i], sides[j]], apart = Math.abs(a.k - b.k);
        if (a.own === b.own && (apart <= 1 || apart === a.last)) continue;
        if (turn(a.from, a.to, b.from) * turn(a.from, a.to, b.to) <= 0 && turn(b.from, b.to, a.from) * turn(b.from, b.to, a.to) <= 0)
          return "Two sides cross or touch each other.";
      }
    if (polygons.slice(1).some(({ corners }) => !isInside(corners[0], polygons[0].corners))) return "A body lies outside of the outline.";
    const roles = new Set(polygons.flatMap((each) => each.roles));
    if (roles.has("inlet") !== roles.has("outlet")) return `There is no ${roles.has("inlet") ? "outlet" : "inlet"}: choose a side.`;
    return roles.has("inlet") || roles.has("moving") ? "" : "Nothing moves the fluid: choose an inlet and an outlet, or a moving wall.";
  }

  // A polygon of a design as a shape: of its curves a few corners stay, which can be dragged.
  function traced({ corners, roles }) {
    const size = corners.length, shape = [];
    const places = corners.map(([x, y], k) => {
      const [before, after] = [corners[(k + size - 1) % size], corners[(k + 1) % size]];
      const [dx, dy, toX, toY] = [x - before[0], y - before[1], after[0] - x, after[1] - y];
      const turn = Math.abs(Math.atan2(dx * toY - dy * toX, dx * toX + dy * toY));
      const ratio = Math.hypot(dx, dy) / Math.hypot(toX, toY);
      const smooth = turn < SMOOTH && ratio < 3 && ratio > 1 / 3 && roles[k] === roles[(k + size - 1) % size];
      return { x: round(x), y: round(y), role: roles[k], smooth };
    });
    const first = Math.max(0, places.findIndex((each) => !each.smooth));
    let run = KEPT - 1;
    for (const { x, y, role, smooth } of [...places.slice(first), ...places.slice(0, first)]) {
      run = smooth ? run + 1 : 0;
      if (run % KEPT) at(shape, -1).curved = true;
      else shape.push(corner(x, y, role, smooth));
    }
    return shape;
  }

  // A round body, or one with four corners, in the middle of the outline.
  function body(outline, curved) {
    const [xs, ys] = [outline.map(({ x }) => x), outline.map(({ y }) => y)];
    const [low, high] = [Math.min(...ys), Math.max(...ys)];
    const [x, y] = [Math.min(...xs) + 0.35 * (Math.max(...xs) - Math.min(...xs)), (low + high) / 2];
    const [count, radius] = [curved ? 8 : 4, 0.13 * Math.min(high - low, Math.max(...xs) - Math.min(...xs))];
    return Array.from({ length: count }, (_, k) => {
      const angle = 2 * Math.PI * (k + (curved ? 0 : 0.5)) / count;
      return corner(round(x + radius * Math.cos(angle)), round(y + radius * Math.sin(angle)), "wall", curved);
    });
  }

  function boxOf(shapes) {
    const [xs, ys] = ["x", "y"].map((axis) => shapes.flat().map((each) => each[axis]));
    const box = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
    const margin = 0.04 * Math.max(box[2] - box[0], box[3] - box[1]);
    return [box[0] - margin, box[1] - margin, box[2] + margin, box[3] + margin];
  }

  // For a link: numbers only.
  const packed = (shapes) => shapes.map((shape) => shape.map(({ x, y, role, curved }) => [x, y, ROLES.indexOf(role), Number(curved)]));
  function unpacked(given) {
    const whole = (each) => Array.isArray(each) && each.length === 4 && each.every(Number.isFinite) && each[2] in ROLES;
    const fits = Array.isArray(given) && given.length > 0 && given.length <= 20
      && given.every((shape) => Array.isArray(shape) && shape.length > 2 && shape.length <= 400 && shape.every(whole));
    return fits ? given.map((shape) => shape.map(([x, y, role, curved]) => corner(x, y, ROLES[role], curved === 1))) : null;
  }

  // The layer over the picture. It changes nothing itself: `change` brings the new shapes, `begin` and `end` say when
  // something is being dragged. chosen: {shape, corner} or {shape, side} or {shape}.
  const Layer = {
    props: { shapes: Array, chosen: Object, frame: Object, pen: Boolean, spacing: Number, wrong: Boolean },
    emits: ["change", "choose", "begin", "end", "drawn"],
    data: () => ({ line: [], pointer: null }),
    template: `
      <svg class="penn-layer" :class="{ 'penn-wrong': wrong, 'penn-pen': pen }" role="group" data-test="layer"
           aria-label="Drawing: Tab goes from one corner or side to the next">
        <g v-for="(shape, s) in shapes" :key="s">
          <path v-if="s" :d="path(s)" :class="['penn-inner', { 'penn-chosen': is({ shape: s }) }]" tabindex="0" role="button"
                :aria-label="'Body ' + s + '; arrow keys move it, Delete removes it'" :data-test="'body-' + s"
                @pointerdown="grab($event, { shape: s })" @keydown="key($event, { shape: s })" @focus="choose({ shape: s })"></path>
          <path v-for="(each, k) in shape" :key="'s' + k" :d="sidePath(s, k)" tabindex="0" role="button"
                :class="['penn-side', 'penn-' + each.role, { 'penn-chosen': is({ shape: s, side: k }) }]"
                :data-test="'side-' + s + '-' + k"
                :aria-label="name(s) + ', side ' + (k + 1) + ': ' + each.role + (each.curved ? ', curved' : '') + '; Enter for the next kind'"
                @click="click({ shape: s, side: k })" @dblclick="split(s, k, $event)" @keydown="key($event, { shape: s, side: k })"
                @focus="choose({ shape: s, side: k })"></path>
          <circle v-for="(each, k) in shape" :key="'c' + k" :cx="screen(each)[0]" :cy="screen(each)[1]" r="5" tabindex="0"
                  role="button" :class="['penn-corner', { 'penn-chosen': is({ shape: s, corner: k }) }]"
                  :data-test="'corner-' + s + '-' + k"
                  :aria-label="name(s) + ', corner ' + (k + 1) + ' at ' + each.x + ', ' + each.y + '; arrow keys move it, Delete removes it'"
                  @pointerdown="grab($event, { shape: s, corner: k })" @keydown="key($event, { shape: s, corner: k })"
                  @focus="choose({ shape: s, corner: k })"></circle>
        </g>
        <template v-if="pen">
          <rect x="0" y="0" width="100%" height="100%" class="penn-sheet" tabindex="0" role="button" ref="sheet" data-test="sheet"
                aria-label="Click from corner to corner; Enter closes the line, Escape gives it up"
                @click="place" @dblclick="close" @pointermove="pointer = $event" @keydown.enter.prevent="close"
                @keydown.escape="$emit('drawn', null)" @keydown.backspace.prevent="line.pop()"></rect>
          <polyline v-if="line.length" class="penn-line-drawn" :points="penPoints"></polyline>
          <circle v-for="(each, k) in line" :key="k" :cx="screen(each)[0]" :cy="screen(each)[1]" r="4" class="penn-dot"></circle>
        </template>
      </svg>`,
    watch: {
      pen(now) { this.line = []; this.pointer = null; if (now) this.$nextTick(() => this.$refs.sheet.focus()); },
    },
    computed: {
      // Of what a corner is moved by: round numbers, about four pixels.
      step() {
        const least = 4 * this.frame.pixel, power = 10 ** Math.floor(Math.log10(least));
        return power * [1, 2, 5, 10].find((each) => each * power >= least);
      },
      sides() { return this.shapes.map((shape) => shape.map((_, k) => side(shape, k, this.spacing))); },
      penPoints() {
        const tip = this.pointer ? [this.mesh(this.pointer)] : [];
        return [...this.line, ...tip].map((each) => this.screen(each).join(",")).join(" ");
      },
    },
    methods: {
      name: (s) => (s ? `Body ${s}` : "Outline"),
      screen({ x, y }) {
        const { width, height, pixel, centre } = this.frame;
        return [(x - centre[0]) / pixel + width / 2, -(y - centre[1]) / pixel + height / 2];
      },
      mesh(event) {
        const { width, height, pixel, centre } = this.frame, box = this.$el.getBoundingClientRect();
        const place = [centre[0] + (event.clientX - box.left - width / 2) * pixel, centre[1] - (event.clientY - box.top - height / 2) * pixel];
        const [x, y] = place.map((each) => round(Math.round(each / this.step) * this.step));
        return { x, y };
      },
      sidePath(s, k) {
        const places = [...this.sides[s][k], this.sides[s][(k + 1) % this.shapes[s].length][0]];
        return "M" + places.map(([x, y]) => this.screen({ x, y }).map((each) => each.toFixed(1)).join(",")).join("L");
      },
      path(s) { return this.shapes[s].map((_, k) => this.sidePath(s, k).replace(/^M/, k ? "L" : "M")).join("") + "Z"; },
      is(what) { return JSON.stringify(what) === JSON.stringify(this.chosen); },
      choose(what) { if (!this.is(what)) this.$emit("choose", what); },
      // A second click on a side makes it the next kind.
      click(what) {
        if (this.clicked === JSON.stringify(what)) this.paint(what, 1);
        this.clicked = JSON.stringify(what);
        this.choose(what);
      },
      paint({ shape, side: k }, step) {
        this.edit((shapes) => { const each = shapes[shape][k]; each.role = ROLES[(ROLES.indexOf(each.role) + step + ROLES.length) % ROLES.length]; });
      },
      edit(act) { const shapes = copy(this.shapes); if (act(shapes) !== false) this.$emit("change", shapes); },
      move(what, dx, dy) {
        this.edit((shapes) => {
          const moved = what.corner === undefined ? shapes[what.shape] : [shapes[what.shape][what.corner]];
          for (const each of moved) { each.x = round(each.x + dx); each.y = round(each.y + dy); }
        });
      },
      grab(event, what) {
        if (event.button || this.pen) return;
        event.preventDefault();
        const element = event.currentTarget, start = this.mesh(event), before = copy(this.shapes);
        element.focus({ preventScroll: true });
        element.setPointerCapture(event.pointerId);
        let dragging = false;
        const move = (now) => {
          const here = this.mesh(now), [dx, dy] = [here.x - start.x, here.y - start.y];
          if (!dragging && !dx && !dy) return;
          if (!dragging) { dragging = true; this.$emit("begin"); }
          const shapes = copy(before), moved = what.corner === undefined ? shapes[what.shape] : [shapes[what.shape][what.corner]];
          for (const each of moved)
            [each.x, each.y] = what.corner === undefined ? [round(each.x + dx), round(each.y + dy)] : [here.x, here.y];
          this.$emit("change", shapes);
        };
        const end = () => {
          element.removeEventListener("pointermove", move);
          if (dragging) this.$emit("end");
        };
        element.addEventListener("pointermove", move);
        for (const kind of ["pointerup", "pointercancel"]) element.addEventListener(kind, end, { once: true });
      },
      key(event, what) {
        const arrow = ARROWS[event.key], isSide = what.side !== undefined;
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        this.choose(what);  // a window without the focus tells nobody that something in it has it
        if (arrow && !isSide) this.move(what, ...arrow.map((each) => each * this.step * (event.shiftKey ? 10 : 1)));
        else if (isSide && (event.key === "Enter" || event.key === " ")) this.paint(what, event.shiftKey ? -1 : 1);
        else if (isSide && KEYS[event.key]) this.edit((shapes) => { shapes[what.shape][what.side].role = KEYS[event.key]; });
        else if (isSide && event.key === "c") this.edit((shapes) => { const each = shapes[what.shape][what.side]; each.curved = !each.curved; });
        else if (isSide && event.key === "+") this.split(what.shape, what.side);
        else if (!isSide && ["Delete", "Backspace"].includes(event.key)) this.$emit("change", without(this.shapes, what));
        else return;
        event.preventDefault();
      },
      split(s, k, event) {
        const places = this.sides[s][k], next = this.sides[s][(k + 1) % this.shapes[s].length][0];
        const [x, y] = places.length > 1 ? places[places.length >> 1] : [(places[0][0] + next[0]) / 2, (places[0][1] + next[1]) / 2];
        const here = event && places.length === 1 ? this.mesh(event) : { x: round(x), y: round(y) };
        this.edit((shapes) => { shapes[s].splice(k + 1, 0, { ...shapes[s][k], ...here }); });
        this.$emit("choose", { shape: s, corner: k + 1 });
      },
      place(event) {
        const here = this.mesh(event), first = this.line[0];
        if (this.line.length > 2 && Math.hypot(here.x - first.x, here.y - first.y) < 10 * this.frame.pixel) { this.close(); return; }
        const last = this.line[this.line.length - 1];
        if (!last || last.x !== here.x || last.y !== here.y) this.line.push(here);
      },
      close() { if (this.line.length > 2) this.$emit("drawn", this.line.map(({ x, y }) => corner(x, y))); },
    },
  };

  const copy = (shapes) => shapes.map((shape) => shape.map((each) => ({ ...each })));

  // Without a corner, or without a body; the outline and a triangle stay.
  function without(shapes, { shape, corner: k }) {
    const rest = copy(shapes);
    if (k === undefined || (shape && rest[shape].length < 4)) { if (shape) rest.splice(shape, 1); }
    else if (rest[shape].length > 3) rest[shape].splice(k, 1);
    return rest;
  }

  const MOST_STEPS = 200;  // that can be undone

  // What the page does with the drawing of a pane: its shapes, what is wrong with them, and the last ones without fault,
  // which are predicted.
  const Drawing = {
    data: () => ({ chosen: null, pen: "", frames: {}, roles: ROLES }),
    computed: {
      isDrawing() { return !!this.pane && this.pane.source === "drawing" && !!this.pane.shapes; },
      chosenSide() {
        const { chosen, pane } = this, shape = chosen && pane.shapes && pane.shapes[chosen.shape];
        return (shape && shape[chosen.side]) || null;
      },
      chosenCorner() {
        const { chosen, pane } = this, shape = chosen && pane.shapes && pane.shapes[chosen.shape];
        return (shape && shape[chosen.corner]) || null;
      },
      spacing() { return this.isDrawing ? spacingOf(this.pane.shapes, this.pane.values.drawing.points) : 0; },
    },
    watch: { spacing(now) { if (this.isDrawing && now) this.sample(this.pane); } },
    mounted() {
      window.addEventListener("keydown", (event) => {
        if (!this.start || !this.panes.length || !this.isDrawing || !(event.ctrlKey || event.metaKey)) return;
        if (/^(input|textarea)$/i.test(event.target.tagName) && event.target.type !== "range") return;
        const step = { z: event.shiftKey ? "redo" : "undo", y: "redo" }[event.key.toLowerCase()];
        if (step) { event.preventDefault(); this[step](); }
      });
    },
    methods: {
      // The first drawing is the design in view, with the same fluid.
      async startDrawing() {
        const { pane } = this;
        if (!pane.shapes) {
          const values = pane.values[pane.kind];
          const answer = await fetch("outline", { method: "POST", headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ source: "template", name: pane.kind, values }) });
          if (!answer.ok) { pane.message = await answer.text(); return; }
          for (const name of ["speed", "viscosity"]) pane.values.drawing[name] = values[name];
          this.setShapes(pane, (await answer.json()).map(traced));
        }
        pane.source = "drawing";
        this.chosen = null;
      },
      setShapes(pane, shapes) {
        pane.shapes = shapes;
        this.sample(pane);
        if (!this.dragging) this.fit(pane);
      },
      sample(pane) {
        const spacing = spacingOf(pane.shapes, pane.values.drawing.points);
        const polygons = pane.shapes.map((shape) => polygon(shape, spacing));
        pane.fault = fault(polygons);
        if (!pane.fault || !pane.polygons) pane.polygons = polygons;
      },
      // The view stays while all of the drawing is in it.
      fit(pane, anew = false) {
        const box = boxOf(pane.shapes), [left, low, right, high] = pane.hold || [0, 0, 0, 0];
        const width = box[2] - box[0];
        if (anew || !pane.hold || box[0] < left || box[1] < low || box[2] > right || box[3] > high || width < 0.6 * (right - left)) pane.hold = box;
      },
      note() { this.pane.past = [...this.pane.past, JSON.stringify(this.pane.shapes)].slice(-MOST_STEPS); this.pane.future = []; },
      change(shapes) {
        if (!this.dragging) this.note();
        const gone = this.chosen && (!shapes[this.chosen.shape] || (this.chosen.corner ?? this.chosen.side ?? 0) >= shapes[this.chosen.shape].length);
        if (gone) this.chosen = null;
        this.setShapes(this.pane, shapes);
      },
      beginDrag() { this.note(); this.drag(true); },
      endDrag() { this.drag(false); this.fit(this.pane); },
      undo() { this.travel("past", "future"); },
      redo() { this.travel("future", "past"); },
      travel(from, to) {
        const { pane } = this;
        if (!pane[from].length) return;
        pane[to] = [...pane[to], JSON.stringify(pane.shapes)];
        const shapes = JSON.parse(pane[from][pane[from].length - 1]);
        pane[from] = pane[from].slice(0, -1);
        this.chosen = null;
        this.setShapes(pane, shapes);
      },
      setSide(what) {
        const shapes = copy(this.pane.shapes);
        Object.assign(shapes[this.chosen.shape][this.chosen.side], what);
        this.change(shapes);
      },
      setCorner(what) {
        const shapes = copy(this.pane.shapes);
        Object.assign(shapes[this.chosen.shape][this.chosen.corner], what);
        this.change(shapes);
      },
      remove() { this.change(without(this.pane.shapes, this.chosen)); this.chosen = null; },
      addBody(curved) {
        this.change([...this.pane.shapes, body(this.pane.shapes[0], curved)]);
        this.chosen = { shape: this.pane.shapes.length - 1 };
      },
      // A line that was drawn corner by corner. Of a new outline the left end is the inlet, the right end the outlet.
      penDrawn(shape) {
        const pen = this.pen;
        this.pen = "";
        if (!shape) return;
        if (pen === "body") { this.change([...this.pane.shapes, shape]); return; }
        const middle = (k) => shape[k].x + at(shape, k + 1).x;
        const order = shape.map((_, k) => k).sort((one, other) => middle(one) - middle(other));
        shape[order[0]].role = "inlet"; shape[order[order.length - 1]].role = "outlet";
        this.change([shape]);
      },
    },
  };

  window.pennDrawing = { Layer, Drawing, polygon, spacingOf, packed, unpacked };
})();
