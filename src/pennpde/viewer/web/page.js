// The page of `penn view`. All of its state is here and in the address after "#": the server knows none of it, so every
// browser has its own, and the address is a link that restores the view.
(function () {
  "use strict";

  const PAUSE = 40;  // milliseconds that a slider may go on moving before its place counts
  const THEMES = {
    light: { background: "#f4f6f9", surface: "#ffffff", primary: "#1f5bb8", success: "#14744c" },
    dark: { background: "#12161d", surface: "#1b212b", primary: "#6ea4ff", "on-primary": "#0b1a33", success: "#4cc38a" },
  };
  const LETTERS = ["A", "B"];
  const INK = ["#2a6fdb", "#d9541e", "#1f9d6b", "#9c4fd0", "#b58900", "#008b9a", "#c2306f", "#6b7280"];
  const KEPT = ["active", "compare", "field", "shown", "streamlines", "cells", "range", "frame", "tool", "line", "probes",
    "duration", "steady", "measured"];
  const FILES = [
    { suffix: ".pdf", title: "Picture for print (.pdf)", icon: "mdi-file-pdf-box" },
    { suffix: ".mp4", title: "Film (.mp4)", icon: "mdi-movie-open-outline", plays: true },
    { suffix: ".webm", title: "Film (.webm)", icon: "mdi-movie-open-outline", plays: true },
    { suffix: ".vtu", title: "Fields (.vtu)", icon: "mdi-cube-outline" },
    { suffix: ".vtkhdf", title: "All times (.vtkhdf)", icon: "mdi-cube-scan", plays: true },
    { suffix: ".html", title: "Page (.html)", icon: "mdi-file-code-outline" },
  ];
  const NOTHING = { view: "", title: "", file: "penn", facts: [], certificate: [], warnings: [], notes: [], expected: {},
    errors: [], seconds: [], quantities: [], quality: "", predicted: false, has_truth: false, fields: [], times: [], viscosity: null, reynolds: null,
    asked: { values: {}, moments: null, level: "" } };

  const values = (sliders) => Object.fromEntries(sliders.map((each) => [each.name, each.start]));

  const Page = {
    template: "#page",
    mixins: [pennDrawing.Drawing],
    data: () => ({
      start: null, panes: [], active: 0, compare: false, field: "", shown: "", streamlines: true, cells: false,
      range: { mode: "robust", low: null, high: null }, frame: 0, playing: false, tool: "", line: null, probes: [],
      duration: 4, steady: false, scheme: "system", dark: false, uploading: false, marked: -1, copied: false, tick: 0,
      measured: "", letters: LETTERS, failure: "", notice: "", generation: 0, forced: false, dragging: false, held: null, last: "",
    }),
    created() {
      // Not for Vue to watch: pictures by the number of their pane, and requests on their way.
      this.pictures = {}; this.flights = {}; this.looks = {};
      // What the user did last on this page, in another session: a button goes back to it.
      this.last = window.location.hash.length > 1 ? "" : window.localStorage.getItem("penn last") || "";
      for (const kind of ["pointerdown", "keydown"]) window.addEventListener(kind, () => { this.touched = true; }, { once: true });
      this.begin();
      window.addEventListener("hashchange", () => this.restore());
    },
    computed: {
      pane() { return this.panes[this.active]; },
      view() { return this.pane.view; },
      visible() { return (this.compare ? [0, 1] : [0]).filter((each) => this.panes[each]); },
      template() { return this.templateOf(this.pane); },
      files() { return FILES.filter((each) => !each.plays || this.times.length > 1); },
      shownQuery() { return `?field=${encodeURIComponent(this.field)}&frame=${this.frameOf(this.active)}`; },
      isWhole() { return this.view.predicted && !this.isDraft(this.pane); },
      hasDraft() { return this.visible.some((each) => this.isDraft(this.panes[each])); },
      requests() { return this.start ? this.panes.map((pane) => JSON.stringify(this.request(pane))) : []; },
      outlines() { return this.start ? this.panes.map((pane) => this.outlineOf(pane)) : []; },
      // For who does not see the picture.
      announcement() {
        const { busy, message, view } = this.pane;
        if (message) return message;
        if (busy && !view.view) return "Being computed";
        return busy ? "" : `${view.title}. ${view.expected.sentence || ""}`;
      },
      link() { return this.start ? this.linked() : ""; },
      fields() { return [...new Set(this.visible.flatMap((each) => this.panes[each].view.fields))]; },
      hasTruth() { return this.visible.some((each) => this.panes[each].view.has_truth); },
      times() {
        return this.visible.map((each) => this.panes[each].view.times).reduce((a, b) => (b.length > a.length ? b : a), []);
      },
      limits() {
        const { mode, low, high } = this.range;
        if (mode === "typed" && low !== null && high !== null && high > low) return [low, high];
        const own = this.visible.map((each) => this.panes[each].fields[this.fieldOf(each)]).filter(Boolean)
          .map((each) => (mode === "full" ? each.extent : each.limits)).filter(Boolean);
        if (!own.length) return null;
        const limits = [Math.min(...own.map(([least]) => least)), Math.max(...own.map(([, most]) => most))];
        return limits[1] > limits[0] ? limits : [limits[0], limits[0] + 1];
      },
      // Speed times length: the Reynolds number is this over the viscosity. The view may be of another speed.
      speedLength() {
        const { pane } = this, { view } = pane;
        if (!this.start.reynolds || !view.reynolds || pane.scope !== this.scopeOf(pane)) return null;
        const [now, then] = [this.valuesOf(pane).speed, view.asked.values.speed];
        return view.reynolds * view.viscosity * (now > 0 && then > 0 ? now / then : 1);
      },
      reynolds() {
        const viscosity = this.viscosityOf(this.pane);
        return this.speedLength && viscosity > 0 ? this.speedLength / viscosity : null;
      },
      measuredLabel() {
        const found = this.visible.flatMap((each) => this.panes[each].view.quantities).find((each) => each.name === this.measured);
        return found ? found.label : "";
      },
      measuredSeries() {
        return this.visible.flatMap((index) => {
          const { quantities, times } = this.panes[index].view, found = quantities.find((each) => each.name === this.measured);
          return found ? [{ name: this.compare ? LETTERS[index] : found.label, colour: INK[index], dashed: index > 0,
            points: times.map((time, frame) => [time, found.values[frame]]).filter(([time]) => time !== null) }] : [];
        });
      },
      // What a study can vary.
      studied() {
        if (!this.hasSliders(this.pane) || !this.start.levels.length) return [];
        const sliders = this.template.sliders.filter((each) => !each.typed && !each.toggled);
        const reynolds = { name: "reynolds", title: "Reynolds number", low: 50, high: 1000, digits: 0, ratio: true };
        return [...sliders, ...(this.reynolds ? [reynolds] : [])];
      },
      along() {
        this.tick;  // pictures are not reactive
        if (this.tool !== "line" || !this.line) return [];
        return this.visible.flatMap((each) => {
          const view = this.drawing(each);
          if (!view) return [];
          const names = this.namesOf(each);
          return [{ pane: each, names, rows: view.along(this.line, names, this.frameOf(each)) }];
        });
      },
      lineSeries() {
        return this.along.map(({ pane, names, rows }, index) => {
          const place = names.indexOf(this.fieldOf(pane));
          return { name: this.compare ? LETTERS[pane] : this.fieldOf(pane), colour: INK[index], dashed: index > 0,
            points: rows.map((row) => [row.place, row.values ? row.values[place] : null]) };
        });
      },
      probed() {
        this.tick;
        if (this.tool !== "probe") return [];
        return this.probes.flatMap(([x, y], number) => this.visible.flatMap((each) => {
          const view = this.drawing(each);
          if (!view) return [];
          const names = this.namesOf(each);
          return [{ number, pane: each, x, y, names, values: view.at_point(names, x, y, this.frameOf(each)) }];
        }));
      },
      probeNames() { return [...new Set(this.probed.flatMap((row) => row.names))]; },
      probeSeries() {
        return this.probed.map(({ number, pane, x, y }) => ({
          name: `${number + 1}${this.compare ? " " + LETTERS[pane] : ""}`, colour: INK[number % INK.length],
          dashed: pane > 0,
          points: this.panes[pane].view.times.map((time, frame) => {
            const found = this.drawing(pane).at_point([this.fieldOf(pane)], x, y, frame);
            return [time, found ? found[0] : null];
          }),
        }));
      },
    },
    watch: {
      requests(now, before) { now.forEach((each, index) => { if (each !== before[index]) this.ask(index); }); },
      outlines(now, before) { now.forEach((each, index) => { if (each !== before[index]) this.sketch(index, each); }); },
      link() { this.remember(); },
      fields(now) { if (now.length && !now.includes(this.field)) this.field = now[0]; },
      hasTruth(now) { if (!now) this.shown = ""; },
      times(now, before) {
        if (this.dragging) return;  // the one time that is shown is that which was in view
        if (this.held !== null && now.length > 1) {
          this.frame = Math.min(this.held, now.length - 1);
          this.held = null;
        } else if (now.length !== before.length) this.frame = Math.max(0, now.length - 1);
        if (now.length < 2) this.playing = false;
        else if (this.plays) { this.playing = true; this.plays = false; }
      },
      playing(now) {
        window.clearInterval(this.clock);
        if (now) {
          const pause = Math.min(600, Math.max(90, 4000 / this.times.length));
          this.clock = window.setInterval(() => { this.frame = (this.frame + 1) % this.times.length; }, pause);
        }
      },
    },
    methods: {
      async begin() {
        try {
          const answer = await fetch("start");
          if (!answer.ok) throw new Error(await answer.text());
          const start = await answer.json();
          document.title = `PENN ${start.network}`;
          if (start.moments) this.duration = start.moments.duration;
          await this.restore(start);
          if (!this.panes.length) {
            this.panes = [this.fresh(start)];
            if (start.takes_times) this.duration = start.templates[0].duration;
            this.plays = start.levels.length > 0 && !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
          }
          this.start = start;
          this.requests.forEach((_, index) => this.ask(index));
        } catch (error) {
          this.failure = `The page could not start: ${error.message}`;
        }
      },

      // Panes: a case with its controls and its picture

      fresh(start) {
        return { source: "template", kind: start.templates[0].kind,
          values: Object.fromEntries([...start.templates, { kind: "drawing", sliders: start.drawing }].map((each) => [each.kind, values(each.sliders)])),
          dataset: start.cases.length ? start.cases[0].name : null, viscosity: null,
          upload: null, roles: [], wanted: false, numbers: values(start.numbers),
          view: { ...NOTHING }, scope: "", fields: {}, busy: false, message: "", answered: "", progress: null,
          finer: null, sketch: null, shapes: null, polygons: null, fault: "", hold: null, past: [], future: [] };
      },
      chooseKind(kind) {
        this.pane.kind = kind;
        if (this.start.takes_times) this.duration = this.template.duration;
      },
      // While a slider moves, the time in view at the fastest level; then all times, at the fastest level first.
      request(pane) {
        const asked = this.settings(pane), [fastest] = this.start.levels;
        if (!asked || !fastest || !("values" in asked)) return asked;
        if (this.dragging && asked.moments && !asked.moments.steady) {
          const { frames, duration } = asked.moments, shown = this.held === null ? this.frame : this.held;
          return { ...asked, level: fastest, moments: { frames: 1, duration: duration * Math.min(1, (shown + 1) / frames), steady: false } };
        }
        const finer = pane.finer && pane.finer.key === JSON.stringify(asked) ? pane.finer.level : fastest;
        return { ...asked, level: this.dragging ? fastest : finer };
      },
      refine(pane, level) { pane.finer = { key: JSON.stringify(this.settings(pane)), level }; },
      drag(on) {
        if (on === this.dragging) return;
        if (on && this.times.length > 1) { this.held = this.frame; this.plays = this.playing; this.playing = false; }
        this.dragging = on;
      },
      outlineOf(pane) {
        const shape = pane.source === "template" ? this.templateOf(pane).sliders.filter((each) => each.shape) : [];
        if (!shape.length) return "";
        const values = Object.fromEntries(shape.map(({ name }) => [name, pane.values[pane.kind][name]]));
        return JSON.stringify({ source: "template", name: pane.kind, values });
      },
      // The outline of a design, at once; it is shown until its flow is.
      async sketch(index, body) {
        const pane = this.panes[index];
        if (!body) { pane.sketch = null; return; }
        const answer = await fetch("outline", { method: "POST", headers: { "Content-Type": "application/json" }, body })
          .catch(() => null);
        if (answer && answer.ok && this.outlineOf(pane) === body) pane.sketch = (await answer.json()).map(({ corners }) => corners);
      },
      settings(pane) {
        const moments = this.start.moments && { ...this.start.moments, duration: this.duration, steady: this.steady };
        const own = pane.viscosity === null ? {} : { viscosity: pane.viscosity };
        if (pane.source === "template")
          return { source: "template", name: pane.kind, values: pane.values[pane.kind], moments };
        if (pane.source === "drawing")
          return pane.polygons && { source: "drawing", name: "drawing", values: pane.values.drawing, moments, polygons: pane.polygons };
        if (pane.source === "dataset")
          return pane.dataset ? { source: "dataset", name: pane.dataset, values: own, moments } : null;
        if (!pane.upload) return null;
        if (pane.upload.kind === "case") return { source: "upload", name: pane.upload.key, values: own, moments };
        if (!pane.wanted) return { source: "upload", name: pane.upload.key };
        return { source: "upload", name: pane.upload.key, values: pane.numbers, roles: pane.roles, moments };
      },
      // Only the latest request of a pane counts; one is on its way at a time, and a later one puts an end to it.
      ask(index) {
        const pane = this.panes[index];
        if (!pane) return;
        const flight = this.flights[index];
        if (!flight) this.fly(index).finally(() => { delete this.flights[index]; });
        else if (!flight.isLatest()) flight.control.abort();
      },
      async fly(index) {
        let [last, asked] = [null, null];
        while (this.panes[index]) {
          const pane = this.panes[index];
          const text = JSON.stringify(this.request(pane));
          if (text === last && pane === asked) break;
          const isLatest = () => this.panes[index] === pane && JSON.stringify(this.request(pane)) === text;
          const control = new AbortController();
          this.flights[index] = { isLatest, control };
          pane.busy = text !== "null";
          if (pane.busy) {
            await new Promise((done) => setTimeout(done, PAUSE));
            if (!isLatest()) continue;
            await this.fetchView(pane, text, isLatest, control.signal);
            if (!isLatest()) continue;
            const [fastest, usual] = this.start.levels;
            if (usual && !pane.message && !this.dragging && pane.view.predicted && pane.view.asked.level === fastest) {
              this.refine(pane, usual);
              [last, asked] = [text, pane];
              continue;
            }
          } else Object.assign(pane, { view: { ...NOTHING }, message: "" });
          [last, asked] = [text, pane];
          Object.assign(pane, { busy: false, progress: null });
        }
      },
      // Lines of JSON: perhaps a draft, progress any number of times, and the view or an error.
      async fetchView(pane, text, isLatest, signal) {
        pane.progress = null;
        try {
          const answer = await fetch("view",
            { method: "POST", headers: { "Content-Type": "application/json" }, body: text, signal });
          if (!answer.ok) throw new Refusal(await answer.text());
          for await (const line of penn.lines(answer.body)) {
            if (!isLatest()) return;
            const { draft, progress, error, ...view } = JSON.parse(line);
            if (error) throw new Refusal(error);
            if (progress) pane.progress = progress;
            if (draft) Object.assign(pane, { view: draft, scope: this.scopeOf(pane), message: "" });
            if (!view.view) continue;
            Object.assign(pane,
              { view, scope: this.scopeOf(pane), message: "", answered: JSON.stringify(this.settings(pane)), progress: null });
            return;
          }
          throw new Refusal("The server ended before the prediction was ready.");
        } catch (error) {
          if (!isLatest() || error.name === "AbortError") return;
          const lost = "The server does not answer. Is penn view still running?";
          pane.message = error instanceof Refusal ? error.message : lost;
        }
      },
      // What is shown is not what the controls say, or not yet.
      isDraft(pane) { return !!pane.view.view && pane.answered !== JSON.stringify(this.settings(pane)); },
      sketchOf(pane) {
        if (pane.view.view && !this.isDraft(pane)) return null;
        if (pane.source === "drawing") return pane.polygons && pane.polygons.map(({ corners }) => corners);
        return pane.sketch;
      },
      draftWords(pane) {
        const { values, moments } = pane.view.asked, now = this.valuesOf(pane), words = [];
        const differ = (name, then, own) => { if (then !== own) words.push(`${name} ${then} instead of ${own}`); };
        if (pane.scope !== this.scopeOf(pane)) words.push(pane.view.title);
        else {
          const sliders = this.hasSliders(pane) ? this.templateOf(pane).sliders : this.start.numbers;
          const names = Object.fromEntries(sliders.map((each) => [each.name, each.title.toLowerCase()]));
          for (const [name, own] of Object.entries(now))
            if (name in values) differ(names[name] || name, values[name], own);
          if (moments && this.start.moments) {
            if (moments.steady !== this.steady) words.push(this.steady ? "in time instead of steady" : "steady instead of in time");
            else if (!this.steady) differ("last time", moments.duration, this.duration);
          }
        }
        return words.join(", ") || "computed with other settings";
      },
      progressWords({ progress }) {
        if (!progress) return "";
        if (progress.before) return `${progress.before} before this one`;
        const left = this.secondsLeft(progress);
        return left === null ? progress.stage || "" : `about ${Math.max(1, Math.round(left))} s left`;
      },
      // By what the march says, else by what such a prediction usually takes, as long as that is not over.
      secondsLeft({ left, usual_seconds, seconds }) {
        if (Number.isFinite(left)) return left;
        return usual_seconds > seconds ? usual_seconds - seconds : null;
      },
      progressShare({ progress }) {
        const left = progress && !progress.before ? this.secondsLeft(progress) : null;
        return left === null ? null : Math.min(95, 100 * progress.seconds / (progress.seconds + left));
      },
      valuesOf(pane) {
        if (this.hasSliders(pane)) return pane.values[this.kindOf(pane)];
        if (pane.source === "mesh" && pane.upload && pane.upload.kind === "mesh") return pane.numbers;
        return pane.viscosity === null ? {} : { viscosity: pane.viscosity };
      },
      // A design or a drawing.
      hasSliders: ({ source }) => source === "template" || source === "drawing",
      kindOf: ({ source, kind }) => (source === "drawing" ? source : kind),
      templateOf(pane) {
        if (pane.source === "drawing") return { sliders: this.start.drawing };
        return this.start.templates.find((each) => each.kind === pane.kind);
      },
      async chooseSource(source) {
        if (source === "drawing") await this.startDrawing();
        else this.pane.source = source;
      },
      scopeOf(pane) {
        return { template: pane.kind, dataset: pane.dataset, mesh: pane.upload && pane.upload.key, drawing: "drawing" }[pane.source];
      },
      choose(index) { this.active = index; },
      toggleCompare() {
        if (this.compare) {
          this.compare = false; this.active = 0;
          return;
        }
        if (!this.panes[1]) this.panes.push(JSON.parse(JSON.stringify(this.panes[0])));
        this.compare = true; this.active = 1;
        this.ask(1);
      },
      take(upload) {
        Object.assign(this.pane, { source: "mesh", upload, roles: upload.roles, wanted: false, viscosity: null, message: "" });
      },
      setRole(index, role) {
        this.pane.roles = this.pane.roles.map((own, k) => (k === index ? role : own));
        this.pane.wanted = false;
      },
      pick(number, index) {
        this.active = number;
        this.setRole(index, { wall: "inlet", inlet: "outlet", outlet: "moving", moving: "wall" }[this.pane.roles[index]]);
      },
      missing() {
        const lacking = this.start.needs.map((roles) => roles.filter((role) => !this.pane.roles.includes(role)));
        return lacking.some((each) => !each.length) ? [] : lacking[0];
      },
      quantityNow(index, quantity) { return quantity.values[Math.min(this.frameOf(index), quantity.values.length - 1)]; },
      // What a study asks for: this case with another value of a slider, at the last time or steady.
      studyRequest(name, value) {
        const asked = this.settings(this.pane);
        const change = name === "reynolds" ? { viscosity: Number((this.speedLength / value).toPrecision(4)) } : { [name]: value };
        return { ...asked, level: this.start.levels[1] || "", moments: { ...asked.moments, frames: 1 }, values: { ...asked.values, ...change } };
      },
      viscosityOf(pane) {
        const own = this.valuesOf(pane).viscosity;
        return own === undefined ? pane.view.viscosity : own;
      },
      setReynolds(logarithm) {
        const { pane } = this;
        const viscosity = Number((this.speedLength / 10 ** logarithm).toPrecision(3));
        if (this.hasSliders(pane)) this.valuesOf(pane).viscosity = viscosity;
        else if (pane.source === "mesh" && pane.upload.kind === "mesh") pane.numbers.viscosity = viscosity;
        else pane.viscosity = viscosity;
      },
      short: (value) => PennFieldView.format(value),

      // Pictures

      fieldOf(index) {
        const pane = this.panes[index];
        return (pane && pane.view.has_truth && !this.field.startsWith("±") ? this.shown : "") + this.field;
      },
      namesOf(index) {
        const { view } = this.panes[index];
        return view.fields.map((name) => (view.has_truth && !name.startsWith("±") ? this.shown : "") + name);
      },
      picture(index, element) { if (element) this.pictures[index] = element; else delete this.pictures[index]; },
      drawing(index) {
        const picture = this.pictures[index];
        const view = picture && picture.view;
        // Between two views the words are those of the next one already.
        return view && view.record && this.namesOf(index).every((name) => name in view.values) ? view : null;
      },
      loaded(index, { source, fields, box }) {
        this.panes[index].fields = fields;
        this.panes[index].drawn = source;
        this.panes[index].box = box;
        this.tick++;
      },
      moved(index, how) {
        this.looks[index] = how;
        const other = this.panes[1 - index];
        if (this.compare && other && String(other.box) === String(this.panes[index].box) && this.pictures[1 - index]) {
          this.pictures[1 - index].view.move(how);
          this.looks[1 - index] = how;
        }
        this.remember();
      },
      drawn(index, kind, what) {
        this.active = index;
        if (kind === "line") this.line = what.map(([x, y]) => [rounded(x), rounded(y)]);
        else this.probes.push([rounded(what[0]), rounded(what[1])]);
      },
      use(tool) {
        this.tool = this.tool === tool ? "" : tool;
        if (this.tool === "line" && !this.line) {
          const box = this.pane.box;
          if (!box) return;
          const [x, low, high] = [box[0] + 0.5 * (box[2] - box[0]), box[1], box[3]];
          this.line = [[rounded(x), rounded(low)], [rounded(x), rounded(high)]];
        }
      },
      keepLimits() {
        if (this.limits) this.range = { mode: "typed", low: significant(this.limits[0]), high: significant(this.limits[1]) };
      },
      reset() {
        if (this.isDrawing) this.fit(this.pane, true);
        for (const index of this.visible) if (this.pictures[index]) this.pictures[index].reset();
      },
      savePictures() {
        for (const index of this.visible) {
          if (this.pictures[index]) {
            const { file, expected, warnings, title, facts } = this.panes[index].view;
            const notes = [expected.short, ...warnings.map((warning) => `warning: ${warning}`)].filter(Boolean);
            const time = this.timeOf(index), numbers = facts.filter((each) => each.includes("number"));
            const heading = [title, ...numbers, time === undefined ? "" : time === null ? "steady state" : `t = ${this.short(time)}`];
            this.pictures[index].save(file + (this.compare ? `_${LETTERS[index]}` : ""), notes, heading.filter(Boolean).join(", "));
          }
        }
      },
      saveLine() {
        const rows = [];
        for (const { pane, names, rows: along } of this.along) {
          if (!rows.length) rows.push(["case", "time", "distance", "x", "y", ...names]);
          const time = this.timeOf(pane);
          for (const row of along)
            if (row.values) rows.push([this.panes[pane].view.title, time, row.place, row.x, row.y, ...row.values]);
        }
        this.saveTable(rows, "line");
      },
      saveProbes() {
        const rows = [["case", "time", "probe", "x", "y", ...this.probeNames]];
        for (const { number, pane, x, y, names } of this.probed)
          this.panes[pane].view.times.forEach((time, frame) => {
            const found = this.drawing(pane).at_point(names, x, y, frame);
            if (found) {
              const by = Object.fromEntries(names.map((name, k) => [name, found[k]]));
              rows.push([this.panes[pane].view.title, time, number + 1, x, y,
                ...this.probeNames.map((name) => by[name] ?? "")]);
            }
          });
        this.saveTable(rows, "probes");
      },
      saveTable(rows, what) {
        const cell = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value));
        const text = rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
        penn.save(new Blob([text], { type: "text/csv" }), `${this.view.file}_${what}.csv`);
      },
      frameOf(index) { return Math.max(0, Math.min(this.panes[index].view.times.length - 1, this.frame)); },
      timeOf(index) { return this.panes[index].view.times[this.frameOf(index)]; },

      // The link

      linked() {
        const panes = this.panes.slice(0, this.compare ? 2 : 1).map((pane) => {
          const kept = { source: pane.source, kind: pane.kind, values: pane.values[pane.kind] };
          if (pane.shapes && pane.source === "drawing") Object.assign(kept, { drawing: pennDrawing.packed(pane.shapes), drawn: pane.values.drawing });
          if (pane.dataset) kept.dataset = pane.dataset;
          if (pane.viscosity !== null) kept.viscosity = pane.viscosity;
          if (pane.upload)
            Object.assign(kept, { upload: pane.upload.key, roles: pane.roles, wanted: pane.wanted, numbers: pane.numbers });
          return kept;
        });
        return JSON.stringify({ panes, ...Object.fromEntries(KEPT.map((name) => [name, this[name]])) });
      },
      remember() {
        window.clearTimeout(this.later);
        this.later = window.setTimeout(() => {
          const content = { ...JSON.parse(this.link), looks: this.visible.map((index) => this.looks[index] || null) };
          this.address = "#" + encodeURIComponent(JSON.stringify(content));
          window.history.replaceState(null, "", this.address);
          if (this.touched) window.localStorage.setItem("penn last", this.address);
        }, 150);
      },
      goBack() { window.location.hash = this.last; this.last = ""; },
      async restore(start = this.start) {
        const text = window.location.hash.slice(1);
        if (!text || !start || "#" + text === this.address) return;
        try {
          const content = JSON.parse(decodeURIComponent(text));
          const panes = await Promise.all(content.panes.slice(0, 2).map((kept) => this.restored(kept, start)));
          for (const name of KEPT) if (name in content && fits(name, content[name])) this[name] = content[name];
          this.looks = { ...(Array.isArray(content.looks) ? content.looks.map((each) => (isLook(each) ? each : null)) : []) };
          this.held = this.frame;
          this.panes = panes;
          this.generation++;  // new pictures, so that each starts where the link says
          if (!panes[1]) this.compare = false;
          if (!panes[this.active]) this.active = 0;
          if (this.start) this.requests.forEach((_, index) => this.ask(index));
        } catch (error) {
          this.notice = `The link is damaged and was not followed: ${error.message}`;
        }
      },
      async restored(kept, start) {
        const pane = this.fresh(start);
        if (["template", "dataset", "mesh"].includes(kept.source)) pane.source = kept.source;
        const shapes = pennDrawing.unpacked(kept.drawing);
        if (kept.source === "drawing" && shapes && start.drawing.length) {
          numbersInto(pane.values.drawing, kept.drawn);
          this.setShapes(pane, shapes);
          pane.source = "drawing";
        }
        if (kept.kind in pane.values) {
          pane.kind = kept.kind;
          numbersInto(pane.values[kept.kind], kept.values);
        }
        if (start.cases.some((each) => each.name === kept.dataset)) pane.dataset = kept.dataset;
        if (Number.isFinite(kept.viscosity)) pane.viscosity = kept.viscosity;
        if (typeof kept.upload === "string" && /^[0-9a-f]{32}$/.test(kept.upload)) {
          const answer = await fetch(`upload/${kept.upload}`);
          if (answer.ok) {
            pane.upload = await answer.json();
            const whole = Array.isArray(kept.roles) && kept.roles.length === pane.upload.roles.length;
            pane.roles = whole ? kept.roles : pane.upload.roles;
            pane.wanted = whole && kept.wanted === true;
            numbersInto(pane.numbers, kept.numbers);
          } else if (pane.source === "mesh") this.notice = await answer.text();
        }
        return pane;
      },
      // A short one, which the server remembers; without it the whole.
      async copyLink() {
        this.remember();
        await new Promise((done) => setTimeout(done, 200));
        let address = window.location.href;
        const answer = await fetch("share", { method: "POST", body: window.location.hash.slice(1) }).catch(() => null);
        if (answer && answer.ok) address = new URL((await answer.json()).path, address).href;
        try {
          await window.navigator.clipboard.writeText(address);
          this.copied = true;
          window.setTimeout(() => { this.copied = false; }, 2000);
        } catch {
          window.prompt("The link to this view", address);
        }
      },
    },
  };

  class Refusal extends Error {}  // with words for the user

  const rounded = (value) => Number(value.toPrecision(5));
  const significant = (value) => Number(value.toPrecision(3));

  // A link may have been cut, or written by hand.
  const isPlace = (given) => Array.isArray(given) && given.length === 2 && given.every(Number.isFinite);
  const isLook = (given) => !!given && Number.isFinite(given.zoom) && given.zoom > 0 && (given.centre === null || isPlace(given.centre));
  const isLimit = (given) => given === null || Number.isFinite(given);
  const oneOf = (...names) => (given) => names.includes(given);
  const isSwitch = oneOf(true, false);
  const FITS = {
    active: oneOf(0, 1), compare: isSwitch, streamlines: isSwitch, cells: isSwitch, steady: isSwitch,
    field: (given) => typeof given === "string", measured: (given) => typeof given === "string", shown: oneOf("", "truth ", "error "), tool: oneOf("", "line", "probe", "study"),
    range: (given) => !!given && ["robust", "full", "typed"].includes(given.mode) && isLimit(given.low) && isLimit(given.high),
    frame: (given) => Number.isInteger(given) && given >= 0, duration: (given) => given > 0 && Number.isFinite(given),
    line: (given) => given === null || (Array.isArray(given) && given.length === 2 && given.every(isPlace)),
    probes: (given) => Array.isArray(given) && given.every(isPlace),
  };
  const fits = (name, given) => FITS[name](given);
  function numbersInto(own, given) {
    for (const [name, value] of Object.entries(given || {}))
      if (name in own && Number.isFinite(value)) own[name] = value;
  }

  const themes = Object.fromEntries(Object.entries(THEMES).map(([name, colors]) => [name, { colors, dark: name === "dark" }]));
  window.pennPage = Vue.createApp(Page).use(Vuetify.createVuetify({ theme: { defaultTheme: "light", themes } })).use(penn)
    .mount("#app");
})();
