// Waits over time: longest and mean of each second, and the spread between them.

import { duration, each, say, svg } from "/assets/dom.js";

const SPAN = 120;
const FAR = 5;
const MARGIN = { top: 8, right: 2, bottom: 20, left: 46 };
const picture = document.getElementById("chart");
const grid = svg("g", { class: "grid" });
const [band, longest, mean] = ["band", "longest", "mean"].map((name) => svg("path", { class: name }));
picture.append(grid, band, longest, mean);

// A round number at or above `number`.
function ceiling(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= number * 0.999);
}

export function drawChart(view, resource) {
  const { width, height } = picture.getBoundingClientRect();
  if (width < MARGIN.left + 50) return;
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  // The current second is incomplete and would look like a drop.
  const seconds = resource.waits.filter((second) => second.at_s < view.now_s);
  const top = ceiling(Math.max(10, ...seconds.map((second) => second.max_ms)));
  const x = (at) => MARGIN.left + ((at - (view.now_s - 1 - SPAN)) / SPAN) * (width - MARGIN.left - MARGIN.right);
  const y = (ms) => height - MARGIN.bottom - (ms / top) * (height - MARGIN.top - MARGIN.bottom);
  drawGrid(width, top, x, y, view.now_s - 1);

  const runs = together(seconds.filter((second) => second.at_s >= view.now_s - 1 - SPAN));
  const points = (run, value) => run.map((second) => `${x(second.at_s).toFixed(1)} ${y(value(second)).toFixed(1)}`);
  const upper = (run) => points(run, (second) => second.max_ms);
  const lower = (run) => points(run, (second) => second.mean_ms);
  // A single second is a dot: a line of length zero with round ends.
  const line = (all) => `M${all.join("L")}${all.length === 1 ? "h0" : ""}`;
  longest.setAttribute("d", runs.map((run) => line(upper(run))).join(""));
  mean.setAttribute("d", runs.map((run) => line(lower(run))).join(""));
  band.setAttribute("d", runs.map((run) => `M${[...upper(run), ...lower(run).reverse()].join("L")}Z`).join(""));
}

// Groups neighbouring seconds; longer gaps without grants are not drawn.
function together(seconds) {
  const runs = [];
  for (const second of seconds) {
    const run = runs.at(-1);
    if (run && second.at_s - run.at(-1).at_s <= FAR) run.push(second);
    else runs.push([second]);
  }
  return runs;
}

function drawGrid(width, top, x, y, last) {
  const level = (part) => ({ key: `y${part}`, text: part ? duration(top * part) : "0", y: y(top * part) });
  const moment = (ago) => ({ key: `x${ago}`, text: ago ? `−${ago} s` : "now", x: x(last - ago), ago });
  const ticks = [...[0, 0.5, 1].map(level), ...[120, 90, 60, 30, 0].map(moment)];
  each(grid, ticks, (tick) => tick.key, () => svg("g", {}, svg("path"), svg("text")), (group, tick) => {
    const [path, text] = group.children;
    if (tick.y !== undefined) {
      path.setAttribute("d", `M${MARGIN.left} ${Math.round(tick.y) + 0.5}H${width}`);
      text.setAttribute("x", MARGIN.left - 8);
      text.setAttribute("y", tick.y + 4);
      text.setAttribute("text-anchor", "end");
    } else {
      text.setAttribute("x", tick.x);
      text.setAttribute("y", y(0) + 16);
      text.setAttribute("text-anchor", tick.ago === 120 ? "start" : tick.ago === 0 ? "end" : "middle");
    }
    say(text, tick.text);
  });
}
