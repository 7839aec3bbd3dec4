// What the page of `penn view` has beyond Vuetify: the picture, the door for files, and the colours of the system.
(function () {
  "use strict";

  const Field = {
    props: {
      source: { type: String, default: "" },  // address of a record
      scope: { type: String, default: "" },   // another one starts with the whole picture in view
      field: { type: String, default: "" },
      cells: Boolean, streamlines: Boolean, dark: Boolean, hold: Boolean, pickable: Boolean,
      roles: { type: Array, default: () => [] },
      marked: { type: Number, default: -1 },
    },
    emits: ["pick", "failed"],
    template: `<div class="penn-field" role="img" :aria-label="'Picture of ' + field"></div>`,
    mounted() {
      this.view = new PennFieldView(this.$el, this.options());
      this.load();
    },
    beforeUnmount() { this.view.close(); },
    watch: {
      source() { this.load(); },
      scope() { this.fresh = true; },
      field() { this.apply(); }, cells() { this.apply(); }, streamlines() { this.apply(); }, dark() { this.apply(); },
      hold() { this.apply(); }, marked() { this.apply(); }, pickable() { this.apply(); },
      roles: { handler() { this.apply(); }, deep: true },
    },
    methods: {
      options() {
        const { field, cells, streamlines, dark, hold, marked } = this;
        const pick = this.pickable ? (index) => this.$emit("pick", index) : null;
        return { field, cells, streamlines, dark, hold, marked, pick, roles: [...this.roles] };
      },
      apply() { this.view.set(this.options()); },
      async load() {
        const source = this.source;
        if (!source) return;
        try {
          const answer = await fetch(source);
          const record = answer.ok ? await answer.json() : null;
          if (source !== this.source) return;  // a later one is on its way
          if (!record) throw new Error(`The server has no ${source}.`);
          if (this.fresh) { this.view.zoom = 1; this.view.centre = null; this.fresh = false; }
          this.view.options = { ...this.view.options, ...this.options() };
          this.view.show(record);
          this.$el.dataset.source = source;
        } catch (error) {
          if (source === this.source) this.$emit("failed", `The picture did not arrive: ${error.message}`);
        }
      },
      reset() { this.view.reset(); },
      async save(name) {
        const background = getComputedStyle(this.$el).backgroundColor;
        const link = document.createElement("a");
        link.href = URL.createObjectURL(await this.view.picture(background));
        link.download = `${name}.png`;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      },
    },
  };

  const Upload = {
    props: { limit: { type: Number, default: Infinity }, accept: { type: String, default: "" } },
    emits: ["busy", "refused"],
    data: () => ({ over: false }),
    template: `
      <div :class="['penn-upload', { 'penn-upload-over': over }]" @dragover.prevent="over = true"
           @dragleave="over = false" @drop.prevent="over = false; send($event.dataTransfer.files[0])">
        <input ref="chooser" type="file" :accept="accept" hidden
               @change="send($event.target.files[0]); $event.target.value = ''">
        <slot :choose="() => $refs.chooser.click()"></slot>
      </div>`,
    methods: {
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
          if (!answer.ok) this.$emit("refused", (await answer.text()) || `The server refused ${file.name}.`);
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

  window.penn = {
    install(app) {
      app.component("penn-field", Field);
      app.component("penn-upload", Upload);
      app.component("penn-scheme", Scheme);
    },
  };
})();
