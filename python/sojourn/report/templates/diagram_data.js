// The data of a time–sequence diagram: unpacked columns, and what of many segments a screen can show. No document here.

const KIND = 7, LOSS = 3; // `mark`: the kind of a retransmission, and 8 times where it was lost
const EACH = 4; // of a pixel column with at most so many segments each is drawn by itself

async function octetsOf(text) {
  const packed = atob(text);
  const octets = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) octets[i] = packed.charCodeAt(i);
  const stream = new Blob([octets]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Columns by name; what is null is NaN. See timeline/packed.py.
function unpacked(head, octets) {
  const rows = head.rows, columns = {}, zeros = new Uint8Array(rows);
  let at = 0;
  for (const { name, base, planes, first } of head.columns) {
    const values = new Float64Array(rows);
    const [low, second, third, fourth] = [0, 1, 2, 3].map((plane) => (plane < planes ? octets.subarray(at + plane * rows, at + (plane + 1) * rows) : zeros));
    for (let i = 0; i < rows; i++) values[i] = (low[i] | (second[i] << 8) | (third[i] << 16) | (fourth[i] << 24)) >>> 0;
    for (let plane = 4; plane < planes; plane++) {
      const more = octets.subarray(at + plane * rows, at + (plane + 1) * rows), weight = 256 ** plane;
      for (let i = 0; i < rows; i++) values[i] += more[i] * weight;
    }
    at += planes * rows;
    if (first === undefined) for (let i = 0; i < rows; i++) values[i] = values[i] === 0 ? NaN : values[i] + base - 1;
    else for (let i = 0, sum = first; i < rows; i++) values[i] = sum += i ? values[i] + base - 1 : 0;
    columns[name] = values;
  }
  return columns;
}

// The first place of an ascending column that is not before `value`.
function firstFrom(column, value) {
  let low = 0, high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

// What is drawn of the segments from `begin` to before `end` on `width` pixel columns.
// Each segment of a column with few of them; of others how far those that were sent for the first time reach (`low` and
// `high`), the least and the largest delay, and by themselves each loss, each retransmission and the largest delay.
function thinned(drawn, begin, end, width) {
  const { sent, at, payload_bytes: length, mark, delay_ns: delay } = drawn;
  const from = firstFrom(sent, begin), until = firstFrom(sent, end);
  const low = new Float64Array(width).fill(Infinity), high = new Float64Array(width).fill(-Infinity);
  const least = new Float64Array(width).fill(NaN), most = new Float64Array(width).fill(NaN);
  const singly = [];
  const scale = width / (end - begin);
  let i = from;
  while (i < until) {
    const column = Math.min(width - 1, Math.floor((sent[i] - begin) * scale));
    let stop = i, slowest = -1;
    while (stop < until && Math.min(width - 1, Math.floor((sent[stop] - begin) * scale)) === column) stop++;
    const few = stop - i <= EACH;
    for (let k = i; k < stop; k++) {
      if (few || mark[k]) singly.push(k);
      if (!mark[k] && !few) {
        if (at[k] < low[column]) low[column] = at[k];
        if (at[k] + length[k] > high[column]) high[column] = at[k] + length[k];
      }
      if (delay[k] === delay[k]) {
        if (!(most[column] >= delay[k])) { most[column] = delay[k]; slowest = k; }
        if (!(least[column] <= delay[k])) least[column] = delay[k];
      }
    }
    if (!few && slowest >= 0 && !mark[slowest]) singly.push(slowest);
    i = stop;
  }
  return { from, until, low, high, least, most, singly };
}

// The stages of a segment's way, from columns of the joined table relative to when it was built: name, begin, end.
function stagesOf(row, names) {
  const known = (name) => Number.isFinite(row[name]);
  const found = [];
  if (known("write_ns") && !row.again && row.write_ns <= 0) found.push(["send buffer", row.write_ns, 0]);
  const ends = ["tap_after_ns", "received_ns"].filter(known).map((name) => row[name]);
  let last = 0;
  for (const [name, stage] of names) {
    const point = name === "departure_ns" ? Math.min(row[name], ...ends) : row[name];
    if (!known(name) || point < last) continue;
    found.push([stage, last, point]);
    last = point;
  }
  if (known("received_ns") && known("acked_ns") && row.acked_ns >= row.received_ns) found.push(["acknowledgement", row.received_ns, row.acked_ns]);
  return found;
}
