// A field on a plane mesh in a canvas: colours by WebGL, cells, streamlines, a value under the pointer, zoom and pan.
// No library: the same file serves the self-contained page that `penn demo` writes and the page of `penn view`, where
// pieces of the boundary can be pointed at, too.
(function () {
  "use strict";

  const VERTEX = `
    attribute vec2 position; attribute float value;
    uniform vec2 scale, shift; uniform vec2 limits; varying float shade;
    void main() {
      gl_Position = vec4(position * scale + shift, 0.0, 1.0);
      shade = (value - limits.x) / max(limits.y - limits.x, 1e-30);
    }`;
  const FRAGMENT = `
    precision mediump float; varying float shade; uniform sampler2D colours; uniform vec4 line;
    void main() {
      gl_FragColor = line.a > 0.0 ? line : texture2D(colours, vec2(clamp(shade, 0.002, 0.998), 0.5));
    }`;

  const ROLES = { wall: "#8a94a6", inlet: "#0072b2", outlet: "#d55e00", moving: "#00795a" };
  const LEGEND = 52;  // pixels below the picture

  function decode(text, Type) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new Type(bytes.buffer);
  }

  // The part of the diverging colours that the limits take of it, as in `pictures.py`: white is zero.
  function section(name, colours, [low, high]) {
    if (name !== "RdBu_r" || low > 0 || high < 0 || low === high || -low === high) return colours;
    const half = 2 * Math.max(-low, high), last = colours.length / 3 - 1;
    const cut = new Uint8Array(colours.length);
    for (let k = 0; k <= last; k++) {
      const from = 3 * Math.round(last * (0.5 + (low + (k / last) * (high - low)) / half));
      cut.set(colours.subarray(from, from + 3), 3 * k);
    }
    return cut;
  }

  // Round numbers between two limits, about so many.
  function ticks([low, high], count) {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 2.5, 5, 10].find((each) => each * power >= 0.999 * raw);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-6); k * step <= high + 1e-6 * step; k++) found.push(k * step);
    return found.length && isFinite(step) ? found : [low, high];
  }

  class Locator {
    // Finds the triangle under a point: triangles are listed in the squares of a grid that they touch.
    constructor(points, triangles, box) {
      this.points = points; this.triangles = triangles; this.box = box;
      const count = triangles.length / 3;
      const size = Math.sqrt(((box[2] - box[0]) * (box[3] - box[1])) / Math.max(count, 1)) * 1.5 || 1;
      this.size = size;
      this.columns = Math.max(1, Math.ceil((box[2] - box[0]) / size));
      this.rows = Math.max(1, Math.ceil((box[3] - box[1]) / size));
      this.squares = Array.from({ length: this.columns * this.rows }, () => []);
      for (let t = 0; t < count; t++) {
        let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
        for (let k = 0; k < 3; k++) {
          const p = 2 * triangles[3 * t + k];
          x0 = Math.min(x0, points[p]); x1 = Math.max(x1, points[p]);
          y0 = Math.min(y0, points[p + 1]); y1 = Math.max(y1, points[p + 1]);
        }
        for (let r = this.row(y0); r <= this.row(y1); r++)
          for (let c = this.column(x0); c <= this.column(x1); c++) this.squares[r * this.columns + c].push(t);
      }
    }
    column(x) { return Math.min(this.columns - 1, Math.max(0, Math.floor((x - this.box[0]) / this.size))); }
    row(y) { return Math.min(this.rows - 1, Math.max(0, Math.floor((y - this.box[1]) / this.size))); }
    find(x, y) {
      const { points: p, triangles } = this;
      if (!(x >= this.box[0] && x <= this.box[2] && y >= this.box[1] && y <= this.box[3])) return null;
      for (const t of this.squares[this.row(y) * this.columns + this.column(x)]) {
        const [a, b, c] = [triangles[3 * t], triangles[3 * t + 1], triangles[3 * t + 2]];
        const [ax, ay] = [p[2 * a], p[2 * a + 1]];
        const [ux, uy, vx, vy] = [p[2 * b] - ax, p[2 * b + 1] - ay, p[2 * c] - ax, p[2 * c + 1] - ay];
        const area = ux * vy - uy * vx;
        const second = ((x - ax) * vy - (y - ay) * vx) / area;
        const third = (ux * (y - ay) - uy * (x - ax)) / area;
        if (second >= -1e-9 && third >= -1e-9 && second + third <= 1 + 1e-9)
          return { corners: [a, b, c], weights: [1 - second - third, second, third] };
      }
      return null;
    }
  }

  class FieldView {
    constructor(container, options = {}) {
      this.container = container;
      // frame: which of the record's times; limits: of the colours, by default the record's; roles: of the boundary's
      // segments; marked: the one under the pointer elsewhere. tool: "line" or "probe", what a pointer draws instead of
      // moving the picture; line: its two ends; probes: places. pick, drawn, moved: called with a segment, with a line or
      // a place, and with zoom and centre. sketch: polygons, drawn over a picture that is no longer the right one. hold:
      // what is in view at a zoom of one, by default all of it. framed: called with what is in view when that changes.
      this.options = Object.assign(
        {
          field: null, frame: 0, cells: false, streamlines: false, dark: false, limits: null, roles: [], marked: -1,
          pick: null, tool: "", line: null, probes: [], drawn: null, moved: null, sketch: null, hold: null,
          framed: null,
        }, options);
      container.style.position = "relative";
      this.canvas = this.layer("canvas");
      this.overlay = this.layer("canvas");
      this.overlay.style.touchAction = "none";
      this.tip = this.layer("div");
      Object.assign(this.tip.style, {
        width: "auto", height: "auto", pointerEvents: "none", display: "none", padding: "3px 8px", borderRadius: "4px",
        background: "rgba(20,24,32,.85)", color: "white", font: "12px ui-monospace, monospace", whiteSpace: "pre",
      });
      this.gl = this.canvas.getContext("webgl", { antialias: true, preserveDrawingBuffer: true });
      this.zoom = 1; this.centre = null;
      if (!this.gl) { this.fail("This browser has no WebGL, which the picture needs."); return; }
      this.prepare();
      this.listen();
      this.observer = new ResizeObserver(() => this.refresh());
      this.observer.observe(container);
    }

    close() {
      if (this.frameAsked) window.cancelAnimationFrame(this.frameAsked);
      if (this.observer) this.observer.disconnect();
      const lost = this.gl && this.gl.getExtension("WEBGL_lose_context");
      if (lost) lost.loseContext();  // a browser gives away but a few
    }

    layer(kind) {
      const element = document.createElement(kind);
      Object.assign(element.style, { position: "absolute", left: 0, top: 0, width: "100%", height: "100%" });
      this.container.appendChild(element);
      return element;
    }

    fail(message) { this.tip.style.display = "block"; this.tip.textContent = message; }

    prepare() {
      const gl = this.gl;
      const shader = (type, source) => {
        const made = gl.createShader(type); gl.shaderSource(made, source); gl.compileShader(made); return made;
      };
      const program = gl.createProgram();
      gl.attachShader(program, shader(gl.VERTEX_SHADER, VERTEX));
      gl.attachShader(program, shader(gl.FRAGMENT_SHADER, FRAGMENT));
      gl.linkProgram(program); gl.useProgram(program);
      this.where = {
        position: gl.getAttribLocation(program, "position"), value: gl.getAttribLocation(program, "value"),
      };
      for (const name of ["scale", "shift", "limits", "colours", "line"])
        this.where[name] = gl.getUniformLocation(program, name);
      this.buffers = Object.fromEntries(
        ["points", "values", "triangles", "finite", "edges"].map((name) => [name, gl.createBuffer()]));
      // Meshes of more than 65,536 points need 32-bit indices, an extension that every browser has.
      gl.getExtension("OES_element_index_uint");
      this.texture = gl.createTexture();
    }

    // record: {points, triangles, edges, fields: {name: {values, colours, limits?, extent?, velocity?}}, velocity,
    // times?, colours: {name: 256 x RGB}, segments?: [edges], outline?: edges, arrows?: [[x, y, x, y, enters]]}. Arrays are base64 of little-endian float32, uint32, uint8;
    // values are those of all points at the first time, then at the next. A velocity is the names of its two components,
    // or null. Without fields the mesh alone is drawn.
    show(record) {
      if (!this.gl) return;
      const gl = this.gl;
      const moved = !this.record || this.record.points !== record.points;
      this.record = record;
      if (moved) {
        this.points = decode(record.points, Float32Array);
        this.triangles = decode(record.triangles, Uint32Array);
        this.edges = decode(record.edges, Uint32Array);
        const box = [Infinity, Infinity, -Infinity, -Infinity];
        for (let i = 0; i < this.points.length; i += 2) {
          box[0] = Math.min(box[0], this.points[i]); box[2] = Math.max(box[2], this.points[i]);
          box[1] = Math.min(box[1], this.points[i + 1]); box[3] = Math.max(box[3], this.points[i + 1]);
        }
        this.box = box;
        this.outline = record.outline ? decode(record.outline, Uint32Array) : [];
        this.locator = new Locator(this.points, this.triangles, box);
        gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers.points);
        gl.bufferData(gl.ARRAY_BUFFER, this.points, gl.STATIC_DRAW);
        for (const name of ["triangles", "edges"]) {
          gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers[name]);
          gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, this[name], gl.STATIC_DRAW);
        }
      }
      const tips = (record.arrows || []).flatMap((arrow) => [arrow.slice(0, 2), arrow.slice(2, 4)]);
      this.outside = tips.reduce((known, [x, y]) => [
        Math.min(known[0], x), Math.min(known[1], y), Math.max(known[2], x), Math.max(known[3], y)], this.box);
      this.values = {};
      for (const [name, field] of Object.entries(record.fields)) this.values[name] = decode(field.values, Float32Array);
      this.frames = Math.max(1, (record.times || []).length);
      this.segments = (record.segments || []).map((edges) => decode(edges, Uint32Array));
      this.lines = {};
      this.uploaded = null;
      this.refresh();
    }

    field() {
      const names = Object.keys(this.values);
      return names.includes(this.options.field) ? this.options.field : names[0];
    }

    place() { return Math.min(this.frames - 1, Math.max(0, Math.round(this.options.frame) || 0)); }

    // The values of a field at one of the times, by default the one in view.
    at(name, frame = this.place()) {
      const count = this.points.length / 2;
      return this.values[name].subarray(frame * count, (frame + 1) * count);
    }

    velocity() {
      const own = this.field() && this.record.fields[this.field()].velocity;
      return own === undefined ? this.record.velocity : own;  // null: streamlines would mean nothing
    }

    // The values of the field on the graphics card, and those triangles at whose corners they are finite.
    upload(field) {
      const wanted = `${field} at ${this.place()}`;
      if (this.uploaded === wanted) return;
      this.uploaded = wanted;
      const gl = this.gl;
      const values = field ? this.at(field) : new Float32Array(this.points.length / 2);
      this.finite = this.triangles;
      if (!values.every(Number.isFinite)) {
        const corners = [];
        for (let t = 0; t < this.triangles.length; t += 3) {
          const three = this.triangles.slice(t, t + 3);
          if (three.every((corner) => Number.isFinite(values[corner]))) corners.push(...three);
        }
        this.finite = Uint32Array.from(corners);
      }
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers.values);
      gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers.finite);
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, this.finite, gl.DYNAMIC_DRAW);
    }

    set(options) {
      Object.assign(this.options, options);
      this.refresh();
    }

    reset() { this.zoom = 1; this.centre = null; this.refresh(); this.tellMoved(); }

    tellMoved() { if (this.options.moved) this.options.moved({ zoom: this.zoom, centre: this.centre }); }

    move({ zoom, centre }) { this.zoom = zoom; this.centre = centre; this.refresh(); }

    limits() { return this.options.limits || this.record.fields[this.field()].limits || this.extent(); }

    // The smallest and the largest value, over all times.
    extent() {
      const field = this.record.fields[this.field()];
      if (!field.extent) {
        field.extent = [Infinity, -Infinity];
        for (const value of this.values[this.field()])
          if (Number.isFinite(value)) {
            field.extent = [Math.min(field.extent[0], value), Math.max(field.extent[1], value)];
          }
      }
      return field.extent;
    }

    frame() {
      const [width, height] = [this.container.clientWidth || 1, this.container.clientHeight || 1];
      const room = Math.max(1, height - LEGEND - 12);
      const box = this.options.hold || this.outside || [0, 0, 1, 1];
      const whole = Math.max((box[2] - box[0]) / width, (box[3] - box[1]) / room) * 1.06;
      const pixel = whole / this.zoom;
      const centre = this.centre || [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
      return { width, height, pixel, centre };
    }

    toMesh(x, y) {
      const { width, height, pixel, centre } = this.frame();
      return [centre[0] + (x - width / 2) * pixel, centre[1] - (y - (height - LEGEND) / 2) * pixel];
    }

    toScreen(x, y) {
      const { width, height, pixel, centre } = this.frame();
      return [(x - centre[0]) / pixel + width / 2, -(y - centre[1]) / pixel + (height - LEGEND) / 2];
    }

    // Draw once before the browser shows the next picture, however many things have changed until then.
    refresh() {
      if (this.frameAsked) return;
      this.frameAsked = window.requestAnimationFrame(() => { this.frameAsked = null; this.draw(); });
    }

    draw() {
      if (!this.gl) return;
      const gl = this.gl, { sketch, framed } = this.options;
      this.canvas.style.opacity = sketch ? 0.3 : 1;
      if (!this.record && sketch) {
        const xs = sketch[0].map(([x]) => x), ys = sketch[0].map(([, y]) => y);
        this.outside = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
        this.resize(window.devicePixelRatio || 1);
        this.drawSketch(this.overlay.getContext("2d"));
      }
      if (framed) {
        const { width, height, pixel, centre } = this.frame(), now = { width, height: height - LEGEND, pixel, centre };
        if (JSON.stringify(now) !== this.told) { this.told = JSON.stringify(now); framed(now); }
      }
      if (!this.record) return;
      const { width, height, pixel, centre } = this.frame();
      const ratio = this.ratio || window.devicePixelRatio || 1;
      this.resize(ratio);
      gl.viewport(0, 0, this.canvas.width, this.canvas.height);
      gl.clearColor(0, 0, 0, 0); gl.clear(gl.COLOR_BUFFER_BIT);
      const scale = [2 / (pixel * width), 2 / (pixel * height)];
      gl.uniform2f(this.where.scale, ...scale);
      gl.uniform2f(this.where.shift, -centre[0] * scale[0], -centre[1] * scale[1] + LEGEND / height);
      const field = this.field();
      const limits = field ? this.limits() : [0, 1];
      gl.uniform2f(this.where.limits, ...limits);
      const map = field && this.record.fields[field].colours;
      const colours = field && section(map, decode(this.record.colours[map], Uint8Array), limits);
      if (field) this.paint(colours);
      this.upload(field);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers.points);
      gl.enableVertexAttribArray(this.where.position);
      gl.vertexAttribPointer(this.where.position, 2, gl.FLOAT, false, 0, 0);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers.values);
      gl.enableVertexAttribArray(this.where.value);
      gl.vertexAttribPointer(this.where.value, 1, gl.FLOAT, false, 0, 0);
      if (!field || this.finite.length < this.triangles.length) {
        gl.uniform4f(this.where.line, ...(this.options.dark ? [0.17, 0.2, 0.26, 1] : [0.9, 0.92, 0.95, 1]));
        gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers.triangles);
        gl.drawElements(gl.TRIANGLES, this.triangles.length, gl.UNSIGNED_INT, 0);
      }
      if (field) {
        gl.uniform4f(this.where.line, 0, 0, 0, 0);
        gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers.finite);
        gl.drawElements(gl.TRIANGLES, this.finite.length, gl.UNSIGNED_INT, 0);
      }
      if (this.options.cells || !field) {
        gl.enable(gl.BLEND); gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
        const ink = !field && this.options.dark ? [0.75, 0.8, 0.9, 0.35] : [0.05, 0.07, 0.1, 0.35];
        gl.uniform4f(this.where.line, ...ink);
        gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers.edges);
        gl.drawElements(gl.LINES, this.edges.length, gl.UNSIGNED_INT, 0);
        gl.disable(gl.BLEND);
      }
      this.drawOverlay(ratio, width, height, limits, colours);
    }

    resize(ratio) {
      const { width, height } = this.frame();
      for (const canvas of [this.canvas, this.overlay]) {
        canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
      }
      this.overlay.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }

    // The shape of what is being computed.
    drawSketch(pen) {
      pen.beginPath();
      for (const polygon of this.options.sketch) {
        polygon.forEach(([x, y], k) => pen[k ? "lineTo" : "moveTo"](...this.toScreen(x, y)));
        pen.closePath();
      }
      pen.fillStyle = this.options.dark ? "rgba(110,164,255,.16)" : "rgba(42,111,219,.1)";
      pen.strokeStyle = this.options.dark ? "#6ea4ff" : "#2a6fdb"; pen.lineWidth = 2.5; pen.lineJoin = "round";
      pen.fill("evenodd"); pen.stroke();
    }

    paint(colours) {
      const gl = this.gl;
      gl.bindTexture(gl.TEXTURE_2D, this.texture);
      gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, colours.length / 3, 1, 0, gl.RGB, gl.UNSIGNED_BYTE, colours);
      for (const [name, value] of [["MIN_FILTER", "LINEAR"], ["MAG_FILTER", "LINEAR"], ["WRAP_S", "CLAMP_TO_EDGE"],
        ["WRAP_T", "CLAMP_TO_EDGE"]]) gl.texParameteri(gl.TEXTURE_2D, gl["TEXTURE_" + name], gl[value]);
    }

    drawOverlay(ratio, width, height, limits, colours) {
      const pen = this.overlay.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      const velocity = this.velocity();
      if (this.options.sketch) { this.drawSketch(pen); return; }
      if (this.options.streamlines && velocity) {
        const key = `${velocity} at ${this.place()}`;
        this.lines[key] = this.lines[key] || this.traceAll(velocity);
        pen.strokeStyle = "rgba(255,255,255,.75)"; pen.lineWidth = 1.1;
        for (const line of this.lines[key]) {
          pen.beginPath();
          line.forEach((place, index) => pen[index ? "lineTo" : "moveTo"](...this.toScreen(...place)));
          pen.stroke();
          if (line.length > 12) this.arrow(pen, line[line.length >> 1], line[(line.length >> 1) + 1]);
        }
      }
      this.drawOutline(pen);
      this.segments.forEach((edges, index) => this.drawSegment(pen, edges, index));
      if (this.options.tool === "line" && this.options.line) this.drawLine(pen, this.options.line);
      if (this.options.tool === "probe")
        this.options.probes.forEach((place, index) => this.drawProbe(pen, this.toScreen(...place), index + 1));
      if (colours) this.drawLegend(pen, width, height, limits, colours);
    }

    // Walls, and arrows where fluid enters and leaves.
    drawOutline(pen) {
      pen.strokeStyle = this.options.dark ? "#c9d1de" : "#333"; pen.lineWidth = 1.2; pen.lineCap = "round";
      pen.beginPath();
      for (let k = 0; k < this.outline.length; k++) {
        const point = 2 * this.outline[k];
        pen[k % 2 ? "lineTo" : "moveTo"](...this.toScreen(this.points[point], this.points[point + 1]));
      }
      pen.stroke();
      if (this.segments.length) return;  // which show inlets and outlets, and can be changed
      pen.lineWidth = 2.5;
      for (const [x, y, toX, toY, enters] of this.record.arrows || []) {
        const [from, to] = [this.toScreen(x, y), this.toScreen(toX, toY)];
        const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
        const [dx, dy] = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
        pen.strokeStyle = pen.fillStyle = ROLES[enters ? "inlet" : "outlet"];
        pen.beginPath(); pen.moveTo(...from); pen.lineTo(to[0] - 6 * dx, to[1] - 6 * dy); pen.stroke();
        pen.beginPath(); pen.moveTo(...to);
        for (const side of [1, -1]) pen.lineTo(to[0] - 9 * dx - side * 5 * dy, to[1] - 9 * dy + side * 5 * dx);
        pen.fill();
      }
    }

    drawSegment(pen, edges, index) {
      const marked = index === this.options.marked;
      pen.beginPath();
      for (let k = 0; k < edges.length; k += 2)
        for (const end of [0, 1]) {
          const point = 2 * edges[k + end];
          pen[end ? "lineTo" : "moveTo"](...this.toScreen(this.points[point], this.points[point + 1]));
        }
      pen.lineCap = "round";
      if (marked) { pen.strokeStyle = this.options.dark ? "white" : "#10141c"; pen.lineWidth = 9; pen.stroke(); }
      pen.strokeStyle = ROLES[this.options.roles[index]] || ROLES.wall;
      pen.lineWidth = marked ? 5 : 3.5;
      pen.stroke();
    }

    drawLine(pen, ends) {
      const [from, to] = ends.map((place) => this.toScreen(...place));
      for (const [colour, width] of [["rgba(0,0,0,.75)", 4], ["#ffd54a", 2]]) {
        pen.strokeStyle = pen.fillStyle = colour; pen.lineWidth = width; pen.lineCap = "round";
        pen.beginPath(); pen.moveTo(...from); pen.lineTo(...to); pen.stroke();
        for (const end of [from, to]) { pen.beginPath(); pen.arc(...end, width + 2, 0, 7); pen.fill(); }
      }
    }

    drawProbe(pen, [x, y], number) {
      pen.beginPath(); pen.arc(x, y, 8, 0, 7);
      pen.fillStyle = "#ffd54a"; pen.fill();
      pen.strokeStyle = "rgba(0,0,0,.8)"; pen.lineWidth = 1.5; pen.stroke();
      pen.fillStyle = "black"; pen.font = "bold 11px system-ui, sans-serif";
      pen.textAlign = "center"; pen.textBaseline = "middle";
      pen.fillText(number, x, y + 0.5);
    }

    drawLegend(pen, width, height, limits, colours) {
      const long = Math.min(width * 0.6, 520);
      const [left, top] = [(width - long) / 2, height - 36];
      for (let i = 0; i < long; i++) {
        const k = 3 * Math.min(colours.length / 3 - 1, Math.floor((i / long) * (colours.length / 3)));
        pen.fillStyle = `rgb(${colours[k]},${colours[k + 1]},${colours[k + 2]})`;
        pen.fillRect(left + i, top, 1.5, 9);
      }
      pen.fillStyle = this.options.dark ? "#e6e9ef" : "#222833";
      pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "top"; pen.textAlign = "center";
      for (const value of ticks(limits, long > 300 ? 5 : 3))
        pen.fillText(String(+value.toPrecision(4)), left + ((value - limits[0]) / (limits[1] - limits[0])) * long, top + 13);
      // Arrows where there are values beyond the ends of the colours.
      const extent = this.extent(), slack = 1e-6 * (limits[1] - limits[0]);
      for (const [beyond, x, way] of [
        [extent[0] < limits[0] - slack, left, -1], [extent[1] > limits[1] + slack, left + long, 1]]) {
        if (!beyond) continue;
        const k = way < 0 ? 0 : colours.length - 3;
        pen.fillStyle = `rgb(${colours[k]},${colours[k + 1]},${colours[k + 2]})`;
        pen.beginPath(); pen.moveTo(x + way * 2, top); pen.lineTo(x + way * 11, top + 4.5);
        pen.lineTo(x + way * 2, top + 9); pen.fill();
      }
      pen.fillStyle = this.options.dark ? "#e6e9ef" : "#222833";
      pen.textAlign = "right"; pen.textBaseline = "middle";
      pen.fillText(this.field(), left - 26, top + 5);
    }

    // The picture as it stands, on the background of the page, as a PNG of twice the size or more; the title is above it,
    // notes are lines of small print below it.
    picture(background, notes = [], title = "") {
      const ratio = this.ratio = Math.max(2, window.devicePixelRatio || 1), line = Math.round(16 * ratio);
      this.draw();
      const whole = document.createElement("canvas"), top = title ? 2 * line : 0;
      whole.width = this.canvas.width; whole.height = top + this.canvas.height + line * notes.length;
      const pen = whole.getContext("2d");
      pen.fillStyle = background; pen.fillRect(0, 0, whole.width, whole.height);
      for (const layer of [this.canvas, this.overlay]) pen.drawImage(layer, 0, top);
      this.ratio = 0;
      this.refresh();
      pen.fillStyle = this.options.dark ? "#e6e9ef" : "#222833";
      pen.font = `${Math.round(15 * ratio)}px system-ui, sans-serif`;
      pen.textAlign = "center"; pen.textBaseline = "middle";
      pen.fillText(title, whole.width / 2, line);
      pen.fillStyle = this.options.dark ? "#e6e9ef" : "#222833";
      pen.font = `${Math.round(11 * ratio)}px system-ui, sans-serif`;
      pen.textAlign = "right"; pen.textBaseline = "top";
      notes.forEach((note, place) => {
        const widest = whole.width - line;
        let shown = note;
        while (shown.length > 1 && pen.measureText(shown).width > widest) shown = shown.slice(0, -2) + "…";
        pen.fillText(shown, whole.width - line / 2, whole.height - line * (notes.length - place));
      });
      return new Promise((done) => whole.toBlob(done, "image/png"));
    }

    nearestSegment(x, y) {
      let [nearest, index] = [12, -1];  // pixels within which a pointer means a line
      this.segments.forEach((edges, own) => {
        for (let k = 0; k < edges.length; k += 2) {
          const [ax, ay] = this.toScreen(this.points[2 * edges[k]], this.points[2 * edges[k] + 1]);
          const [bx, by] = this.toScreen(this.points[2 * edges[k + 1]], this.points[2 * edges[k + 1] + 1]);
          const [dx, dy] = [bx - ax, by - ay];
          const along = Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1)));
          const distance = Math.hypot(x - ax - along * dx, y - ay - along * dy);
          if (distance < nearest) [nearest, index] = [distance, own];
        }
      });
      return index;
    }

    arrow(pen, from, to) {
      const [x0, y0] = this.toScreen(...from), [x1, y1] = this.toScreen(...to);
      const angle = Math.atan2(y1 - y0, x1 - x0);
      pen.beginPath();
      for (const turn of [2.6, -2.6]) {
        pen.moveTo(x1, y1); pen.lineTo(x1 + 6 * Math.cos(angle + turn), y1 + 6 * Math.sin(angle + turn));
      }
      pen.stroke();
    }

    at_point(names, x, y, frame = this.place()) {
      const found = this.locator.find(x, y);
      if (!found) return null;
      return names.map((name) => {
        const values = this.at(name, frame);
        return found.corners.reduce((sum, corner, k) => sum + found.weights[k] * values[corner], 0);
      });
    }

    // Values of fields along a line: {place: from 0 to its length, x, y, values}, or values null outside of the mesh.
    along([from, to], names, frame = this.place(), count = 200) {
      const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
      return Array.from({ length: count + 1 }, (_, k) => {
        const share = k / count;
        const [x, y] = [from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])];
        return { place: share * length, x, y, values: this.at_point(names, x, y, frame) };
      });
    }

    traceAll(velocity) {
      // Seeds on a lattice; a square that a line has passed takes no further seed, and a line ends where it comes
      // within half a square of another, so that lines keep their distance and are as long as that allows.
      const [x0, y0, x1, y1] = this.box;
      const gap = Math.sqrt(((x1 - x0) * (y1 - y0)) / 550);
      const squares = (size) => (x, y) => Math.floor((x - x0) / size) + ":" + Math.floor((y - y0) / size);
      const [seed, fine] = [squares(gap), squares(gap / 2)];
      const [seeded, taken] = [new Set(), new Set()];
      const slowest = 1e-3 * this.fastest(velocity);
      const lines = [];
      for (let y = y0 + gap / 2; y < y1; y += gap)
        for (let x = x0 + gap / 2; x < x1; x += gap) {
          if (seeded.has(seed(x, y))) continue;
          const own = new Map();
          const [before, after] = [-1, 1].map((way) => this.trace(velocity, x, y, way, gap, slowest, taken, own, fine));
          const line = [...before.reverse(), ...after.slice(1)];
          if (line.length <= 12) continue;
          for (const place of line) { seeded.add(seed(...place)); taken.add(fine(...place)); }
          lines.push(line);
        }
      return lines;
    }

    fastest(velocity) {
      const [u, v] = velocity.map((name) => this.at(name));
      let largest = 0;
      for (let k = 0; k < u.length; k++) largest = Math.max(largest, Math.hypot(u[k], v[k]) || 0);
      return largest;
    }

    // Ends where another line has passed, or where it meets itself after a turn in a vortex. own: by square, the step
    // at which this line was there, negative before its seed.
    trace(velocity, x, y, way, gap, slowest, taken, own, key) {
      const line = [[x, y]];
      const length = way * gap * 0.2;
      for (let step = 0; step < 600; step++) {
        const here = this.at_point(velocity, x, y);
        if (!here) break;
        const speed = Math.hypot(...here);
        if (!(speed > slowest)) break;
        const half = (length * 0.5) / speed;
        const middle = this.at_point(velocity, x + half * here[0], y + half * here[1]);
        if (!middle) break;
        const middleSpeed = Math.hypot(...middle) || 1;
        x += (length * middle[0]) / middleSpeed; y += (length * middle[1]) / middleSpeed;
        const square = key(x, y);
        if (taken.has(square) || Math.abs(way * step - (own.get(square) ?? way * step)) > 12) break;
        own.set(square, way * step);
        line.push([x, y]);
      }
      return line;
    }

    probe(x, y) {
      const near = this.options.pick ? this.nearestSegment(x, y) : -1;
      this.overlay.style.cursor = near >= 0 ? "pointer" : "crosshair";
      const [mx, my] = this.toMesh(x, y);
      // Of truth and error only what belongs to the field in view: a dozen numbers are too many to read.
      const set = (name) => (/^(truth|error) /.exec(name) || [""])[0];
      const names = Object.keys(this.values).filter((name) => set(name) === set(this.field()));
      if (!names.length) { this.tip.style.display = "none"; return; }
      const values = this.at_point(names, mx, my);
      this.tip.style.display = values ? "block" : "none";
      if (!values) return;
      const lines = [["x", mx], ["y", my], ...names.map((name, k) => [name, values[k]])];
      const width = Math.max(...lines.map(([name]) => name.length));
      this.tip.textContent = lines.map(([name, value]) => `${name.padEnd(width + 2)}${format(value)}`).join("\n");
      const right = x + 16 + this.tip.offsetWidth < this.container.clientWidth;
      this.tip.style.left = (right ? x + 16 : x - 16 - this.tip.offsetWidth) + "px";
      const lowest = this.container.clientHeight - this.tip.offsetHeight - 4;
      this.tip.style.top = Math.max(4, Math.min(y - 20, lowest)) + "px";
    }

    draws(kind, what) { if (this.options.drawn) this.options.drawn(kind, what); }

    listen() {
      let grabbed = null;
      const place = (event) => {
        const box = this.overlay.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
      };
      this.overlay.addEventListener("pointermove", (event) => {
        if (!this.record) return;
        const [x, y] = place(event);
        if (grabbed) {
          if (Math.hypot(x - grabbed.x, y - grabbed.y) > 4) grabbed.moved = true;
          if (!grabbed.moved) return;
          if (this.options.tool === "line") {
            this.tip.style.display = "none";
            this.draws("line", [this.toMesh(grabbed.x, grabbed.y), this.toMesh(x, y)]);
            return;
          }
          const { pixel } = this.frame();
          this.centre = [grabbed.centre[0] - (x - grabbed.x) * pixel, grabbed.centre[1] + (y - grabbed.y) * pixel];
          this.refresh(); this.tellMoved();
          return;
        }
        this.probe(x, y);
      });
      this.overlay.addEventListener("pointerleave", () => { this.tip.style.display = "none"; });
      this.overlay.addEventListener("pointerdown", (event) => {
        if (!this.record) return;
        const [x, y] = place(event);
        grabbed = { x, y, centre: this.frame().centre, moved: false };
        this.overlay.setPointerCapture(event.pointerId);
      });
      this.overlay.addEventListener("pointerup", () => {
        const index = grabbed && !grabbed.moved ? this.nearestSegment(grabbed.x, grabbed.y) : -1;
        const still = grabbed && !grabbed.moved ? grabbed : null;
        grabbed = null;
        if (still && this.options.tool === "probe" && this.locator.find(...this.toMesh(still.x, still.y)))
          this.draws("probe", this.toMesh(still.x, still.y));
        else if (index >= 0 && this.options.pick) this.options.pick(index);
      });
      this.overlay.addEventListener("pointercancel", () => { grabbed = null; });
      this.overlay.addEventListener("dblclick", () => { if (!this.options.tool) this.reset(); });
      this.overlay.addEventListener("wheel", (event) => {
        if (!this.record) return;
        event.preventDefault();
        const [x, y] = place(event);
        const before = this.toMesh(x, y);
        this.centre = this.frame().centre;
        this.zoom = Math.min(60, Math.max(0.5, this.zoom * Math.exp(-event.deltaY * 0.0015)));
        const after = this.toMesh(x, y);
        this.centre = [this.centre[0] + before[0] - after[0], this.centre[1] + before[1] - after[1]];
        this.refresh(); this.tellMoved();
      }, { passive: false });
    }
  }

  function format(value) {
    if (!Number.isFinite(value)) return "not finite";
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size >= 1e4 || size < 1e-3 ? value.toExponential(2) : value.toPrecision(3);
  }

  FieldView.format = format;
  FieldView.ticks = ticks;
  window.PennFieldView = FieldView;
})();
