// A small study: one slider of the case in view goes from one end to the other, and a quantity follows as a curve with
// its expected errors. Each place is a prediction like any other, one after the other, so others are served meanwhile.
(function () {
  "use strict";

  const INK = "#2a6fdb";

  window.pennStudy = {
    props: {
      sliders: Array,     // [{name, title, low, high, digits, ratio}]; ratio: whether places have equal ratios
      quantities: Array,  // [{name, label}]
      current: Object,    // values of the sliders
      make: Function,     // of a slider's name and a value: the request
      file: String,
    },
    data: () => ({ name: "", quantity: "", low: null, high: null, count: 7, rows: [], told: null, control: null, message: "" }),
    template: `
      <div class="penn-study">
        <div class="penn-choices">
          <v-select v-model="name" :items="sliders" item-title="title" item-value="name" label="Vary" density="compact"
                    variant="outlined" hide-details data-test="study-slider"></v-select>
          <penn-number v-model="low" label="from" data-test="study-low"></penn-number>
          <penn-number v-model="high" label="to" data-test="study-high"></penn-number>
          <penn-number v-model="count" label="places" data-test="study-count"></penn-number>
          <v-select v-model="quantity" :items="quantities" item-title="label" item-value="name" label="Quantity"
                    density="compact" variant="outlined" hide-details data-test="study-quantity"></v-select>
          <v-btn v-if="!control" color="primary" variant="flat" :disabled="!fits" @click="run" data-test="study-run">Run</v-btn>
          <v-btn v-else variant="tonal" @click="stop" data-test="study-stop">Stop</v-btn>
          <v-btn variant="tonal" prepend-icon="mdi-download" :disabled="!rows.length || !!control" @click="save"
                 data-test="study-csv">CSV</v-btn>
        </div>
        <p v-if="message" class="penn-fault" role="alert">{{ message }}</p>
        <p v-else class="penn-hint" role="status" data-test="study-status">{{ words }}</p>
        <penn-plot v-if="rows.length" :series="series" :across="told.slider" :up="told.quantity" data-test="study-plot"></penn-plot>
      </div>`,
    created() {
      this.name = this.sliders[0].name;
      this.quantity = this.quantities[0].name;
    },
    beforeUnmount() { this.stop(); },
    watch: {
      name: { immediate: true, handler(now) {
        const slider = this.sliders.find((each) => each.name === now);
        if (slider) [this.low, this.high] = [slider.low, slider.high];
      } },
      sliders(now) { if (!now.some((each) => each.name === this.name)) this.name = now[0].name; },
      quantities(now) { if (now.length && !now.some((each) => each.name === this.quantity)) this.quantity = now[0].name; },
    },
    computed: {
      slider() { return this.sliders.find((each) => each.name === this.name); },
      fits() { return this.high > this.low && (!this.slider.ratio || this.low > 0) && this.count >= 2 && this.count <= 50; },
      words() {
        if (this.control) return `${this.rows.length} of ${this.told.count} predicted`;
        if (this.rows.length) return `${this.rows.length} predictions on level standard, at the last time; bars are expected errors.`;
        return "Each place is predicted on level standard, at the last time.";
      },
      series() {
        const rows = [...this.rows].sort((one, other) => one.value - other.value);
        return [{ name: this.told.quantity, colour: INK, points: rows.map((row) => [row.value, row.quantity]),
          errors: rows.map((row) => row.error) }];
      },
    },
    methods: {
      places() {
        const count = Math.round(this.count), { low, high } = this, { ratio, digits } = this.slider;
        return Array.from({ length: count }, (_, k) => {
          const share = k / (count - 1);
          return ratio ? Number((low * (high / low) ** share).toPrecision(4)) : Number((low + share * (high - low)).toFixed(digits));
        }).filter((each, k, all) => k === 0 || each !== all[k - 1]);
      },
      async run() {
        const places = this.places(), { name, quantity } = this, control = new AbortController();
        const label = this.quantities.find((each) => each.name === quantity).label;
        Object.assign(this, { rows: [], message: "", control, told: { slider: this.slider.title, quantity: label, count: places.length } });
        try {
          for (const value of places) {
            const answer = await fetch("view", { method: "POST", headers: { "Content-Type": "application/json" },
              body: JSON.stringify(this.make(name, value)), signal: control.signal });
            let view = null;
            if (!answer.ok) throw new Error(await answer.text());
            for await (const line of penn.lines(answer.body)) view = JSON.parse(line);
            if (view.error) throw new Error(view.error);
            const found = view.quantities.find((each) => each.name === quantity);
            if (!found) throw new Error(`At ${value} the flow has no ${label}.`);
            this.rows.push({ value, quantity: found.values[found.values.length - 1], error: found.error });
          }
        } catch (error) {
          if (error.name !== "AbortError") this.message = error.message;
        } finally {
          if (this.control === control) this.control = null;
        }
      },
      stop() { if (this.control) this.control.abort(); this.control = null; },
      save() {
        const lines = [[this.told.slider, this.told.quantity, "expected error"], ...this.rows.map((row) => [row.value, row.quantity, row.error ?? ""])];
        penn.save(new Blob([lines.map((line) => line.join(",")).join("\n") + "\n"], { type: "text/csv" }), `${this.file}_study.csv`);
      },
    },
  };
})();
