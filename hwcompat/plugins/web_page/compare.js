// Compares outputs with the reference, like hardware/compare.py and hardware/output_masks.py;
// test/unit/test_web_page_script.py tests both with the same arrays.

const SMALLEST_SCALE = 1e-12;
const RULED_OUT = -3.4028234663852886e38; // float32's smallest number means minus infinity

class ReferenceNotFinite extends Error {}

function infinite(worst) {
  return { rel: Infinity, abs: Infinity, worst };
}

// Returns whether an element of an array of these dims counts, by a mask of dims (batch, length); all elements after
// the mask's last position do.
function keeper(mask, dims) {
  if (!mask) return () => true;
  if (dims.length < 2 || mask.dims.length !== 2 || mask.dims[0] !== dims[0] || mask.dims[1] > dims[1]) {
    throw new Error("a mask doesn't fit its output");
  }
  const [, length] = mask.dims;
  const inner = dims.slice(2).reduce((a, b) => a * b, 1);
  return (place) => {
    const row = Math.floor(place / inner);
    const column = row % dims[1];
    return column >= length || mask.data[Math.floor(row / dims[1]) * length + column] !== 0;
  };
}

// The scale of errors: the standard deviation of the reference, or the magnitude of a single number.
function scaleOf(values) {
  let [low, high, largest, sum] = [Infinity, -Infinity, 0, 0];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
    largest = Math.max(largest, Math.abs(value));
    sum += value;
  }
  const mean = sum / values.length;
  let squares = 0;
  for (const value of values) squares += (value - mean) ** 2;
  return Math.max(high > low ? Math.sqrt(squares / values.length) : largest, SMALLEST_SCALE);
}

function compareOne(name, got, want, mask, scale) {
  if (got.dims.join() !== want.dims.join()) return infinite(`${name} (shape ${got.dims.join(", ")})`);
  const keep = keeper(mask, want.dims);
  if (want.type === "int64") {
    let wrong = 0;
    for (let place = 0; place < want.data.length; place++) {
      if (keep(place) && Number(want.data[place]) !== Number(got.data[place])) wrong += 1;
    }
    return wrong ? infinite(`${name} (${wrong} of ${want.data.length} differ)`) : { rel: 0, abs: 0, worst: name };
  }
  const kept = [];
  let absolute = 0;
  let odd = "";
  for (let place = 0; place < want.data.length; place++) {
    if (!keep(place)) continue;
    const reference = want.data[place];
    const actual = got.data[place] === RULED_OUT ? -Infinity : got.data[place];
    if ((reference === -Infinity) !== (actual === -Infinity)) odd ||= "not finite elsewhere";
    if (reference === -Infinity) continue;
    if (!Number.isFinite(reference)) throw new ReferenceNotFinite(`the reference is not finite in ${name}`);
    if (!Number.isFinite(actual)) odd ||= "not finite";
    kept.push(reference);
    absolute = Math.max(absolute, Math.abs(actual - reference));
  }
  if (odd) return infinite(`${name} (${odd})`);
  if (!kept.length) throw new ReferenceNotFinite(`the reference is empty in ${name}`);
  return { rel: absolute / (scale || scaleOf(kept)), abs: absolute, worst: name };
}

// Returns the indices from `first` to `last` of an output along an axis.
function sliceOf({ data, dims }, axis, first, last) {
  const inner = dims.slice(axis + 1).reduce((a, b) => a * b, 1);
  const kept = [...data].filter((_, place) => {
    const index = Math.floor(place / inner) % dims[axis];
    return index >= first && index < last;
  });
  return { data: kept, dims: dims.map((size, place) => (place === axis ? last - first : size)) };
}

// `got` holds {data, dims} by name, `want` the outputs, masks, required names, scales and parts of the seal, with
// their data.
function compare(got, want) {
  for (const [name, [output, axis, first, last]] of Object.entries(want.parts ?? {})) {
    if (output in got) got[name] = sliceOf(got[output], axis, first, last);
  }
  const names = Object.keys(want.outputs).filter((name) => name in got || want.required.includes(name));
  const missing = want.required.filter((name) => !(name in want.outputs) || !(name in got));
  if (missing.length || !names.length) return infinite([...missing, "nothing"][0]);
  let worst = { rel: -1, abs: -1, worst: "" };
  for (const name of names) {
    const one = compareOne(name, got[name], want.outputs[name], want.masks[name], want.scales?.[name]);
    if (one.rel > worst.rel) worst = one;
  }
  return worst;
}

// Compares single elements with numbers recorded with the recipe, relative to the recorded scale.
function recordedError(got, step) {
  const output = got[step.output];
  if (!output) return infinite(step.output);
  let absolute = 0;
  for (const [position, value] of step.values) {
    const place = position.reduce((sum, index, axis) => sum * output.dims[axis] + index, 0);
    const difference = Math.abs(output.data[place] - value);
    absolute = Math.max(absolute, Number.isFinite(difference) ? difference : Infinity);
  }
  return { rel: absolute / step.scale, abs: absolute, worst: step.output };
}
