// Texts of the page whose contrast is below 4.5:1, as the WCAG counts it.
() => {
  const parse = (text) => { const n = text.match(/[\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] === undefined ? 1 : n[3]]; };
  const over = (top, below) => top.slice(0, 3).map((v, k) => v * top[3] + below[k] * (1 - top[3]));
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const found = [];
  for (const element of document.querySelectorAll(".penn *")) {
    if (![...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || element.closest(".penn-hidden, [disabled], .v-btn--disabled") || getComputedStyle(element).visibility === "hidden") continue;
    const chain = []; let opacity = 1;
    for (let e = element; e; e = e.parentElement) { chain.push(parse(getComputedStyle(e).backgroundColor)); opacity *= Number(getComputedStyle(e).opacity); }
    let background = [255, 255, 255];
    for (const each of chain.reverse()) background = over(each, background);
    const ink = parse(getComputedStyle(element).color); ink[3] *= opacity;
    const front = over(ink, background);
    const [a, b] = [light(front), light(background)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${element.tagName} ${element.className} "${element.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return found;
}
