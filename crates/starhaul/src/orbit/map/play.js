// Moves the satellites of `data` along great circles between the instants that it has, and the path with them.
(() => {
  const map = document.getElementById("satellites").ownerSVGElement;
  const [lasers, satellites, route] = ["lasers", "satellites", "route"].map((id) => document.getElementById(id));
  const [delayCard, linksCard] = document.querySelectorAll(".card b");
  const degree = 1120 / 360, radian = Math.PI / 180;

  // Directions from the Earth's centre, three numbers for each satellite.
  const keys = data.places.map((places) => {
    const directions = new Float32Array(3 * places.length);
    places.forEach((place, number) => {
      const [longitude, latitude] = place ? place.map((hundredths) => hundredths / 100 * radian) : [NaN, NaN];
      directions[3 * number] = Math.cos(latitude) * Math.cos(longitude);
      directions[3 * number + 1] = Math.cos(latitude) * Math.sin(longitude);
      directions[3 * number + 2] = Math.sin(latitude);
    });
    return directions;
  });
  const count = data.places[0].length;
  const places = new Float64Array(2 * (count + 2));
  // From the Earth's centre, km.
  const positions = new Float64Array(3 * count);
  data.stations.forEach((place, number) => places.set(place, 2 * (count + number)));

  function move(seconds) {
    const key = Math.min(Math.floor(seconds / data.key_s), keys.length - 2);
    const part = seconds / data.key_s - key, [before, after] = [keys[key], keys[key + 1]];
    for (let number = 0; number < count; number++) {
      const i = 3 * number;
      // On the arc, not on the chord: both directions are unit vectors.
      const cos = Math.min(1, before[i] * after[i] + before[i + 1] * after[i + 1] + before[i + 2] * after[i + 2]);
      const angle = Math.acos(cos), sin = Math.sin(angle);
      const a = sin > 1e-9 ? Math.sin((1 - part) * angle) / sin : 1 - part;
      const b = sin > 1e-9 ? Math.sin(part * angle) / sin : part;
      const [x, y, z] = [0, 1, 2].map((axis) => a * before[i + axis] + b * after[i + axis]);
      positions.set([x, y, z].map((part) => part * data.radii_km[number]), i);
      places[2 * number] = Math.atan2(y, x) / radian;
      places[2 * number + 1] = Math.asin(Math.max(-1, Math.min(1, z))) / radian;
    }
  }

  const at = (longitude, latitude) => `${((longitude + 180) * degree).toFixed(1)} ${((90 - latitude) * degree).toFixed(1)}`;

  // The shorter way around; across the edge of the map at both sides.
  function line(from, to) {
    const [x, y, toX, toY] = [places[2 * from], places[2 * from + 1], places[2 * to], places[2 * to + 1]];
    if (isNaN(x) || isNaN(toX)) return "";
    const around = 360 * Math.round((toX - x) / 360);
    const first = `M${at(x, y)}L${at(toX - around, toY)}`;
    return around ? `${first}M${at(x + around, y)}L${at(toX, toY)}` : first;
  }

  // Whether the straight line between two satellites passes above the air.
  function sees(from, to) {
    const a = positions.subarray(3 * from, 3 * from + 3), b = positions.subarray(3 * to, 3 * to + 3);
    const dot = (axis) => a[axis] * (b[axis] - a[axis]);
    const way = [0, 1, 2].map((axis) => b[axis] - a[axis]), length = Math.hypot(...way);
    const part = length > 0 ? Math.max(0, Math.min(1, -(dot(0) + dot(1) + dot(2)) / length ** 2)) : 0;
    return Math.hypot(...way.map((along, axis) => a[axis] + part * along)) > data.sight_km;
  }

  const controls = document.createElement("p");
  controls.innerHTML = `<button id="play" type="button">Pause</button>
    <input id="time" type="range" min="0" max="${data.duration_s}" step="any" value="0" aria-label="time" style="width:50%;vertical-align:middle">
    <select id="speed" aria-label="speed"><option value="1">1 ×<option value="10" selected>10 ×<option value="60">60 ×</select>
    <label><input id="mesh" type="checkbox" checked> lasers</label> <output id="clock"></output>`;
  map.closest("figure").before(controls);
  const [play, slider, speed, mesh, clock] = ["play", "time", "speed", "mesh", "clock"].map((id) => document.getElementById(id));

  // A cursor over the chart, whose axis lies between these two places.
  const chart = document.querySelectorAll("figure svg")[1];
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cursor.setAttribute("class", "verticals outage");
  chart.append(cursor);

  let seconds = 0, playing = true, last = null;
  function draw() {
    move(seconds);
    let dots = "";
    for (let number = 0; number < count; number++) {
      if (!isNaN(places[2 * number])) dots += `M${at(places[2 * number], places[2 * number + 1])}h0`;
    }
    satellites.setAttribute("d", dots);
    lasers.setAttribute("d", mesh.checked ? data.lasers.map(([a, b]) => sees(a, b) ? line(a, b) : "").join("") : "");
    const step = Math.min(Math.floor(seconds / data.step_s), data.delays_ms.length - 1);
    const [, nodes] = data.routes.findLast(([from]) => from <= step);
    route.setAttribute("d", nodes.slice(1).map((node, number) => line(nodes[number], node)).join(""));
    const delay = data.delays_ms[step];
    delayCard.textContent = delay === null ? "no path" : `${delay.toFixed(2)} ms`;
    linksCard.textContent = Math.max(0, nodes.length - 1);
    clock.textContent = `${seconds.toFixed(1)} s`;
    slider.value = seconds;
    const x = 46 + seconds / data.duration_s * (1120 - 46 - 10);
    cursor.setAttribute("d", `M${x.toFixed(1)} 28V174`);
  }
  function tick(now) {
    if (playing && last !== null) {
      seconds = (seconds + (now - last) / 1000 * Number(speed.value)) % data.duration_s;
      draw();
    }
    last = now;
    requestAnimationFrame(tick);
  }
  play.onclick = () => {
    playing = !playing;
    play.textContent = playing ? "Pause" : "Play";
  };
  slider.oninput = () => {
    seconds = Math.min(Number(slider.value), data.duration_s - 1e-3);
    draw();
  };
  mesh.onchange = draw;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) play.onclick();
  draw();
  requestAnimationFrame(tick);
})();
