// Where the runtime's log says that each node ran. The twin of `placed` in hardware/workers/web_worker.py and of
// `WebRunnable.placed` in hardware/backends/_web_runnable.py; tests hold both against the same log.

const PLACED = /(All nodes|Node\(s\)) placed on \[(\w+)\]\. Number of nodes: (\d+)/;
const NODE = /^\s*([\w.]+) \((.*)\)\s*$/;
const LOGGED = /^(?:\x1b\[[0-9;]*m)?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \[\w:onnxruntime:[^\]]*\] ?/;

// By provider, [operator, name] of the nodes that it was given; one that was given all has entries without names.
function placed(lines) {
  const found = {};
  let into = null;
  for (const line of lines.flatMap((text) => text.split(/\r?\n/))) {
    const match = PLACED.exec(line);
    if (match) {
      into = found[match[2]] ??= [];
      if (match[1] === "All nodes") {
        for (let number = 0; number < Number(match[3]); number++) into.push(["", ""]);
        into = null;
      }
      continue;
    }
    const node = into && NODE.exec(line.replace(LOGGED, ""));
    if (node) into.push([node[1], node[2]]);
    else into = null;
  }
  return found;
}

// Operators by name on the target and on the host, of a file whose `nodes` are known; null where the log says nothing.
function counted(said, nodes, provider, copies) {
  if (!Object.keys(said).length) return null;
  const native = {};
  for (const operator of Object.values(nodes)) native[operator] = (native[operator] ?? 0) + 1;
  const host = {};
  for (const [where, listed] of Object.entries(said)) {
    if (where === provider) continue;
    if (listed.some(([, name]) => !name)) return { native: {}, host: native };
    for (const [operator, name] of listed) {
      if (copies.includes(operator)) continue;
      const known = nodes[name] ?? `onnx.${operator}`;
      host[known] = (host[known] ?? 0) + 1;
    }
  }
  for (const [operator, count] of Object.entries(host)) native[operator] = (native[operator] ?? 0) - count;
  return { native: Object.fromEntries(Object.entries(native).filter(([, count]) => count > 0)), host };
}
