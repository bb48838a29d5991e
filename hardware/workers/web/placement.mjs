// Where each node ran by the runtime's log. `counted` is hardware/backends/_web_placement.py in JavaScript; tests compare
// both on the same logs.

const STAMP = /^(?:\x1b\[[0-9;]*m)*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \[\w:onnxruntime:[^\]]*?(\w+)\] ?/;
const ANSWERS = "VerifyEachNodeIsAssignedToAnEp";
const HEAD = /(All nodes|Node\(s\)) placed on \[(\w+)\]\. Number of nodes: (\d+)/;
const NODE = /^\s*([\w.]+) \((.*)\)\s*$/;
const TAKEN = /Operator type: \[(.*?)\] index: \[\d+\] name: \[(.*)\] supported: \[1\]/;
const TAKEN_IN_ALL = /number of partitions supported by \w+: \d+ .*number of nodes supported by \w+: (\d+)/;

// The content of a log. `providers` has for each the number of its nodes (`stated`), whether they are all, and those
// listed as [operator, name]; `taken` is the same for nodes that a provider says it fuses. If the log lost a line, a
// list is shorter than its stated number; other lines are ignored.
export function placed(lines) {
  const told = { providers: {}, taken: { stated: 0, listed: [] } };
  let into = null;
  for (const line of lines.flatMap((text) => text.split(/\r?\n/))) {
    const head = HEAD.exec(line);
    const taken = TAKEN.exec(line);
    const inAll = TAKEN_IN_ALL.exec(line);
    if (head) {
      into = told.providers[head[2]] ??= { stated: 0, all: false, listed: [] };
      into.stated += Number(head[3]);
      into.all ||= head[1] === "All nodes";
    } else if (taken) told.taken.listed.push([taken[1], taken[2]]);
    else if (inAll) told.taken.stated += Number(inAll[1]);
    else if (into && !into.all && into.listed.length < into.stated) {
      const stamp = STAMP.exec(line);
      const node = NODE.exec(line.replace(STAMP, ""));
      if (node && (!stamp || stamp[1] === ANSWERS)) into.listed.push([node[1], node[2]]);
    }
  }
  return told;
}

// The reason why a log is incomplete, or an empty string.
function contradiction({ providers, taken }) {
  const lists = Object.entries(providers);
  if (!lists.length) return "the runtime's log doesn't show where the nodes ran";
  for (const [provider, { stated, all, listed }] of lists) {
    if (all && lists.length > 1) return `the runtime's log is incomplete: ${provider} reports all nodes, but other providers report some too`;
    if (!all && listed.length !== stated) {
      return `the runtime's log is incomplete: it lists ${listed.length} of ${stated} nodes of ${provider}`;
    }
  }
  if (taken.listed.length === taken.stated) return "";
  return `the runtime's log is incomplete: it lists ${taken.listed.length} of ${taken.stated} fused nodes`;
}

// Operators by name on the target (`native`) and on the host, of a file whose `nodes` are known; or `incomplete`: why
// the log proves nothing. `rules` are the provider's name, the operators that the runtime inserts between providers
// (`copies`), those that it drops, merges or adds when it changes layouts (`rearranging`), and the suffix of operators
// that read only integers (`whole`).
export function counted(told, nodes, rules) {
  const isEmpty = !Object.keys(nodes).length && !Object.keys(told.providers).length; // a file of constants alone
  const incomplete = isEmpty ? "" : contradiction(told);
  if (incomplete) return { incomplete };
  const operatorOf = (name) => nodes[name].replace(/^onnx\./, "").replace(rules.whole, "");
  const needed = Object.keys(nodes).filter((name) => !rules.rearranging.includes(operatorOf(name)));
  const [native, host, beyond] = [{}, {}, {}];
  const seen = new Set();
  const count = (into, operator, name) => {
    const known = Object.hasOwn(nodes, name);
    if (known) seen.add(name);
    else beyond[operator] = (beyond[operator] ?? 0) + 1;
    const kind = known ? nodes[name] : `onnx.${operator}`;
    into[kind] = (into[kind] ?? 0) + 1;
  };
  let fused = false;
  const elsewhere = new Set();
  for (const [provider, { stated, all, listed }] of Object.entries(told.providers)) {
    const into = provider === rules.provider ? native : host;
    if (all && (into === host || stated >= needed.length)) {
      for (const name of Object.keys(nodes)) count(into, "", name);
    } else if (all) fused = true;
    for (const [operator, name] of listed) {
      if (rules.copies.includes(operator)) continue;
      if (into === native && name.startsWith(`${provider}_${operator}_`)) fused = true;
      else count(into, operator, name);
      elsewhere.add(name);
    }
  }
  for (const [operator, name] of fused ? told.taken.listed : []) if (!elsewhere.has(name)) count(native, operator, name);
  for (const name of needed.filter((one) => !seen.has(one))) {
    const operator = operatorOf(name);
    if (!beyond[operator]) return { incomplete: `the runtime's log is incomplete: it doesn't show where ${operator} (${name}) ran` };
    beyond[operator] -= 1;
  }
  return { native, host };
}
