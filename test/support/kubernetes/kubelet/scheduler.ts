// Chooses the node of a pod as the default scheduler does, with the same words if there is none. Pure.
import type { Pod } from './pod-schema.ts';

export interface NodeSpec {
  name: string;
  labels?: Readonly<Record<string, string>>;
  /** Quantities, such as `cpu: 4`. */
  capacity?: Readonly<Record<string, string | number>>;
  /** UUIDs of its GPUs. */
  gpus?: readonly string[];
}

export const GPU = 'nvidia.com/gpu';

export interface Placed {
  pod: Pod;
  node: string;
}

/** @returns the name of the node, or why none fits */
export function chooseNode(
  pod: Pod,
  nodes: readonly NodeSpec[],
  placed: readonly Placed[],
): { node: string } | { message: string } {
  const reasons = new Map<string, number>();
  for (const node of nodes) {
    const [reason] = findObstacles(pod, node, placed);
    if (reason === undefined) return { node: node.name };
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  const counted = [...reasons].map(([reason, count]) => `${count} ${reason}`);
  const total = `0/${nodes.length} nodes are available`;
  return { message: counted.length === 0 ? total : `${total}: ${counted.sort().join(', ')}.` };
}

function findObstacles(pod: Pod, node: NodeSpec, placed: readonly Placed[]): string[] {
  const wanted = Object.entries(pod.spec.nodeSelector);
  if (wanted.some(([key, value]) => node.labels?.[key] !== value)) {
    return ["node(s) didn't match Pod's node affinity"];
  }
  const others = placed.filter((each) => each.node === node.name).map((each) => each.pod);
  return Object.entries(countRequests(pod)).flatMap(([name, amount]) => {
    const used = others.reduce((sum, other) => sum + (countRequests(other)[name] ?? 0), 0);
    return used + amount > findCapacity(node, name) ? [`Insufficient ${name}`] : [];
  });
}

/** A request that is not given is its limit. */
export function countRequests({ spec }: Pod): Record<string, number> {
  const [{ resources }] = spec.containers;
  const all = { ...resources.limits, ...resources.requests };
  return Object.fromEntries(Object.entries(all).map(([name, each]) => [name, parseQuantity(each)]));
}

/** Without a number, a node has none of a device and enough of all else. */
function findCapacity({ capacity, gpus }: NodeSpec, name: string): number {
  if (name === GPU) return gpus?.length ?? 0;
  const given = capacity?.[name];
  if (given !== undefined) return parseQuantity(given);
  return name.includes('/') ? 0 : Infinity;
}

const SUFFIXES: Readonly<Record<string, number>> = {
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
};

/** Such as `500m` or `2Gi`. @throws Error for other suffixes */
export function parseQuantity(quantity: string | number): number {
  const [, number = '', suffix = ''] = /^([\d.]+)(\D*)$/.exec(String(quantity)) ?? [];
  const factor = suffix === '' ? 1 : SUFFIXES[suffix];
  if (number === '' || factor === undefined) throw new Error(`unknown quantity ${quantity}`);
  return Number(number) * factor;
}
