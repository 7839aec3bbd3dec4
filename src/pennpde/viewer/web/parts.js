// Parts of the page of `penn view` beyond Vuetify: the picture, a plot of lines, a field for a number, the door for
// files, and the colours of the system.
(function () {
  "use strict";

  const Field = {
    props: {
      source: { type: String, default: "" },  // address of a record
      scope: { type: String, default: "" },   // another one starts with the whole picture in view
      field: { type: String, default: "" },
      frame: { type: Number, default: 0 },
      cells: Boolean, streamlines: Boolean, dark: Boolean, pickable: Boolean,
      limits: { type: Array, default: null },
      roles: { type: Array, default: () => [] },
      marked: { type: Number, default: -1 },
      tool: { type: String, default: "" },
      line: { type: Array, default: null },
      probes: { type: Array, default: () => [] },
      start: { type: Object, default: null },  // zoom and centre of the first picture
      sketch: { type: Array, default: null },  // outline of what is being computed
      hold: { type: Array, default: null },    // box to be in view
    },
    emits: ["pick", "failed", "loaded", "drawn", "moved", "framed"],
    template: `<div class="penn-field" role="img" :aria-label="'Picture of ' + field"></div>`,
    mounted() {
      this.view = new PennFieldView(this.$el, this.options());
      if (this.start) Object.assign(this.view, { zoom: this.start.zoom || 1, centre: this.start.centre || null });
      this.load();
    },
    beforeUnmount() { this.view.close(); },
    watch: {
      source() { this.load(); },
      scope(now, before) { if (before) this.fresh = true; },
      field() { this.apply(); }, frame() { this.apply(); }, cells() { this.apply(); }, streamlines() { this.apply(); },
      dark() { this.apply(); }, marked() { this.apply(); }, pickable() { this.apply(); }, tool() { this.apply(); },
      limits: { handler() { this.apply(); }, deep: true }, sketch() { this.apply(); },
      hold() { this.apply(); },
      line: { handler() { this.apply(); }, deep: true },
      probes: { handler() { this.apply(); }, deep: true },
      roles: { handler() { this.apply(); }, deep: true },
    },
    methods: {
      options() {
        const { field, frame, cells, streamlines, dark, limits, marked, tool, line, sketch, hold } = this;
        const pick = this.pickable ? (index) => this.$emit("pick", index) : null;
        return {
          field, frame, cells, streamlines, dark, limits, marked, tool, line, sketch, hold, pick, roles: [...this.roles],
          probes: this.probes.map((place) => [...place]),
          drawn: (kind, what) => this.$emit("drawn", kind, what), moved: (how) => this.$emit("moved", how),
          framed: (frame) => this.$emit("framed", frame),
        };
      },
      apply() { this.view.set(this.options()); },
      async load() {
        const source = this.source;
        if (!source) return;
        try {
          const answer = await fetch(source);
          const record = answer.ok ? await answer.json() : null;
          if (source !== this.source) return;  // a later one is on its way
          if (!record) throw new Error(await answer.text());
          if (this.fresh) { this.view.zoom = 1; this.view.centre = null; this.fresh = false; }
          this.view.options = { ...this.view.options, ...this.options() };
          this.view.show(record);
          this.$el.dataset.source = source;
          const fields = Object.fromEntries(
            Object.entries(record.fields).map(([name, each]) => [name, { limits: each.limits, extent: each.extent }]));
          this.$emit("loaded", { source, fields, box: this.view.box });
        } catch (error) {
          if (source === this.source) this.$emit("failed", `The picture did not arrive: ${error.message}`);
        }
      },
      reset() { this.view.reset(); },
      async save(name, notes, title) {
        const background = getComputedStyle(this.$el).backgroundColor;
        save(await this.view.picture(background, notes, title), `${name}.png`);
      },
    },
  };

  // Lines over a common axis. series: [{name, colour, dashed?, points: [[x, y or null]], errors?: [y or null]}].
  const Plot = {
    props: {
      series: { type: Array, default: () => [] },
      across: { type: String, default: "" }, up: { type: String, default: "" },
      marker: { type: Number, default: null },  // a place on the axis to point at
    },
    data: () => ({ width: 400, height: 180 }),
    template: `
      <div class="penn-plot">
        <svg :viewBox="'0 0 ' + width + ' ' + height" :aria-label="up + ' over ' + across" role="img">
          <g v-if="bounds">
            <g v-for="tick in ticks.up" :key="'u' + tick">
              <line :x1="frame.left" :x2="width - 8" :y1="y(tick)" :y2="y(tick)" class="penn-grid"></line>
              <text :x="frame.left - 5" :y="y(tick) + 4" text-anchor="end">{{ words(tick) }}</text>
            </g>
            <g v-for="tick in ticks.across" :key="'a' + tick">
              <line :x1="x(tick)" :x2="x(tick)" y1="8" :y2="height - frame.bottom" class="penn-grid"></line>
              <text :x="x(tick)" :y="height - frame.bottom + 14" text-anchor="middle">{{ words(tick) }}</text>
            </g>
            <line v-if="marker !== null" :x1="x(marker)" :x2="x(marker)" y1="8" :y2="height - frame.bottom"
                  class="penn-marker"></line>
            <path v-for="each in series" :key="each.name" :d="path(each.points)" fill="none" :stroke="each.colour"
                  stroke-width="1.8" :stroke-dasharray="each.dashed ? '5 4' : null"></path>
            <path v-for="each in series.filter((own) => own.errors)" :key="'bars of ' + each.name" :d="bars(each)"
                  fill="none" :stroke="each.colour" stroke-width="1.2"></path>
          </g>
          <text v-else :x="width / 2" :y="height / 2" text-anchor="middle">No values here</text>
          <text :x="(width + frame.left) / 2" :y="height - 3" text-anchor="middle">{{ across }}</text>
          <text x="4" y="12">{{ up }}</text>
        </svg>
        <div v-if="series.length > 1" class="penn-keys">
          <span v-for="each in series" :key="each.name"><i :style="{ background: each.colour }"></i>{{ each.name }}</span>
        </div>
      </div>`,
    mounted() {
      this.observer = new ResizeObserver(() => {
        this.width = Math.max(220, this.$el.clientWidth); this.height = Math.max(120, this.$el.clientHeight - 22);
      });
      this.observer.observe(this.$el);
    },
    beforeUnmount() { this.observer.disconnect(); },
    computed: {
      frame: () => ({ left: 58, bottom: 32 }),
      bounds() {
        const all = this.series.flatMap((each) => [...each.points, ...ends(each)]).filter(([, value]) => Number.isFinite(value));
        if (!all.length) return null;
        const range = (numbers) => {
          const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
          return high > low ? [low, high] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
        };
        const [low, high] = range(all.map(([, value]) => value));
        return { across: range(this.series.flatMap((each) => each.points.map(([place]) => place))),
          up: [low - 0.05 * (high - low), high + 0.05 * (high - low)] };
      },
      ticks() { return { across: ticks(this.bounds.across, this.width / 90), up: ticks(this.bounds.up, this.height / 36) }; },
    },
    methods: {
      words: (value) => String(Number(value.toPrecision(4))),
      x(value) {
        const [low, high] = this.bounds.across;
        return this.frame.left + ((value - low) / (high - low)) * (this.width - this.frame.left - 8);
      },
      y(value) {
        const [low, high] = this.bounds.up;
        return this.height - this.frame.bottom - ((value - low) / (high - low)) * (this.height - this.frame.bottom - 8);
      },
      // Errors as upright bars, and the places themselves.
      bars({ points, errors }) {
        return points.map(([place, value], k) => {
          if (!Number.isFinite(value)) return "";
          const [x, y] = [this.x(place), this.y(value)], [low, high] = [this.y(value - errors[k]), this.y(value + errors[k])];
          return `M${x - 2.5},${y}h5m-2.5,-2.5v5` + (errors[k] ? `M${x},${low}V${high}m-3,0h6M${x - 3},${low}h6` : "");
        }).join("");
      },
      path(points) {
        let [text, pen] = ["", "M"];
        for (const [place, value] of points) {
          if (!Number.isFinite(value)) { pen = "M"; continue; }  // outside of the mesh the line has a gap
          text += `${pen}${this.x(place).toFixed(1)},${this.y(value).toFixed(1)}`;
          pen = "L";
        }
        return text;
      },
    },
  };

  const ends = ({ points, errors = [] }) => errors.flatMap((error, k) => [[points[k][0], points[k][1] - error], [points[k][0], points[k][1] + error]]);
  const ticks = (limits, wanted) => PennFieldView.ticks(limits, Math.max(2, Math.floor(wanted)));

  // A number to type: what is no number is marked, and changes nothing. With `optional`, nothing means null.
  const NumberField = {
    props: { modelValue: { type: Number, default: null }, label: { type: String, default: "" }, optional: Boolean },
    emits: ["update:modelValue"],
    data() { return { text: this.worded(this.modelValue) }; },
    template: `<v-text-field v-model="text" :label="label" inputmode="decimal" density="compact" variant="outlined"
      hide-details :error="!valid" @update:model-value="tell" @blur="text = worded(modelValue)"></v-text-field>`,
    watch: { modelValue(now) { if (this.read() !== now) this.text = this.worded(now); } },
    computed: { valid() { return this.read() !== undefined; } },
    methods: {
      worded: (value) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(6)))),
      read() {
        const text = String(this.text).trim().replace(",", ".");
        if (text === "") return this.optional ? null : undefined;
        return Number.isFinite(Number(text)) ? Number(text) : undefined;
      },
      tell() { const value = this.read(); if (value !== undefined) this.$emit("update:modelValue", value); },
    },
  };

  // Files come by a button, or are dropped anywhere on the page.
  const Upload = {
    props: { limit: { type: Number, default: Infinity }, accept: { type: String, default: "" } },
    emits: ["busy", "refused", "read"],
    data: () => ({ over: false }),
    template: `
      <div>
        <input ref="chooser" type="file" :accept="accept" hidden data-test="file"
               @change="send($event.target.files[0]); $event.target.value = ''">
        <slot :choose="() => $refs.chooser.click()"></slot>
        <div v-if="over" class="penn-over"><div>Drop a mesh, or an OpenFOAM case as .zip</div></div>
      </div>`,
    mounted() {
      const files = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
      this.heard = {
        dragover: (event) => { if (files(event)) { event.preventDefault(); this.over = true; } },
        dragleave: (event) => { if (!event.relatedTarget) this.over = false; },
        drop: (event) => {
          if (!files(event)) return;
          event.preventDefault(); this.over = false;
          this.send(event.dataTransfer.files[0]);
        },
      };
      for (const [name, act] of Object.entries(this.heard)) window.addEventListener(name, act);
    },
    beforeUnmount() { for (const [name, act] of Object.entries(this.heard)) window.removeEventListener(name, act); },
    methods: {
      choose() { this.$refs.chooser.click(); },
      async send(file) {
        if (!file) return;
        if (file.size > this.limit) {
          const size = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MB`;
          this.$emit("refused", `${file.name} has ${size(file.size)}; the page takes up to ${size(this.limit)}. ` +
            "Use `penn predict` for larger meshes.");
          return;
        }
        this.$emit("busy", true);
        try {
          const answer = await fetch(`upload?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
          if (answer.ok) this.$emit("read", await answer.json());
          else this.$emit("refused", (await answer.text()) || `The server refused ${file.name}.`);
        } catch (error) {
          this.$emit("refused", `${file.name} did not reach the server: ${error.message}`);
        } finally {
          this.$emit("busy", false);
        }
      },
    },
  };

  // Whether the page is to be dark: by the user's choice, kept in the browser, or by the system's.
  const Scheme = {
    props: { choice: { type: String, default: "system" } },
    emits: ["choice", "dark"],
    template: "<span hidden></span>",
    mounted() {
      this.system = window.matchMedia("(prefers-color-scheme: dark)");
      this.system.addEventListener("change", this.tell);
      const kept = window.localStorage.getItem("penn scheme");
      if (kept && kept !== this.choice) this.$emit("choice", kept);
      this.tell();
    },
    beforeUnmount() { this.system.removeEventListener("change", this.tell); },
    watch: {
      choice() { window.localStorage.setItem("penn scheme", this.choice); this.tell(); },
    },
    methods: {
      tell() { this.$emit("dark", this.choice === "dark" || (this.choice === "system" && this.system.matches)); },
    },
  };

  function save(content, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // The lines of an answer, each as soon as it is there.
  async function* lines(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  }

  window.penn = {
    save, lines,
    install(app) {
      app.component("penn-field", Field);
      app.component("penn-plot", Plot);
      app.component("penn-layer", pennDrawing.Layer);
      app.component("penn-study", pennStudy);
      app.component("penn-number", NumberField);
      app.component("penn-upload", Upload);
      app.component("penn-scheme", Scheme);
    },
  };
})();
