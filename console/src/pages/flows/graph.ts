// What the drawing of a flow shows: a box for each job, or one for many jobs that stand alike in the graph.
import type { FlowJob } from '../../../../src/client.ts';
import type { ParentPolicy } from '../../../../src/wire/job/job.ts';

export interface GraphNode {
  /** Name of its first job: stays while the flow is shown. */
  key: string;
  /** Indices of its jobs in the flow. */
  jobs: readonly number[];
}

export interface GraphEdge {
  /** Indices of nodes. */
  from: number;
  to: number;
  policy: ParentPolicy;
}

export interface Graph {
  /** Parents before their children. */
  nodes: readonly GraphNode[];
  edges: readonly GraphEdge[];
}

/** The graph of a flow never changes, only the states of its jobs. */
export type PlacedJob = Pick<FlowJob, 'after' | 'endpoint' | 'name'>;

/** So many jobs can be drawn one by one without losing the overview. */
const SMALL = 40;
/** Fewer jobs that are alike stay apart. */
const MIN_GROUP = 5;

interface Edge {
  job: number;
  policy: ParentPolicy;
}

/** Which jobs share a box: an ID of the box for each job. Every job of a small flow has its own. */
export function groupAlike(jobs: readonly PlacedJob[]): number[] {
  if (jobs.length <= SMALL) return [...jobs.keys()];
  const { children, parents } = listNeighbours(jobs);
  const layers = findLayers(parents);
  const order = [...jobs.keys()];
  // Jobs whose ancestors are alike, and of those the ones whose descendants are alike.
  const seeds = jobs.map(({ endpoint }, index) => `${layers[index]} ${endpoint}`);
  const byParents = numberAlike(order, seeds, parents);
  return numberAlike(order.toReversed(), byParents, children);
}

/** `order`: the neighbours of a job come before it. */
function numberAlike(
  order: readonly number[],
  seeds: readonly (string | number)[],
  neighbours: readonly (readonly Edge[])[],
): number[] {
  const known = new Map<string, number>();
  const found: number[] = [];
  for (const index of order) {
    const near = new Set(neighbours[index]?.map(({ job, policy }) => `${found[job]}${policy}`));
    const description = `${seeds[index]} ${[...near].toSorted().join()}`;
    const number = known.get(description) ?? known.size;
    known.set(description, number);
    found[index] = number;
  }
  return found;
}

/** `opened`: keys of the groups whose jobs have boxes of their own. */
export function drawnGraph(
  jobs: readonly PlacedJob[],
  groups: readonly number[],
  opened: ReadonlySet<string>,
): Graph {
  const members = Map.groupBy(jobs.keys(), (index) => groups[index]);
  const nodes: { key: string; jobs: number[] }[] = [];
  const nodeOf: number[] = [];
  for (const [index, { name }] of jobs.entries()) {
    const alike = members.get(groups[index]) ?? [];
    const first = jobs[alike[0] ?? index]?.name ?? name;
    const isGroup = alike.length >= MIN_GROUP && !opened.has(first);
    if (isGroup && alike[0] !== index) {
      const node = nodeOf[alike[0] ?? index] ?? 0;
      nodes[node]?.jobs.push(index);
      nodeOf[index] = node;
    } else {
      nodeOf[index] = nodes.push({ key: name, jobs: [index] }) - 1;
    }
  }
  const edges = new Map<string, GraphEdge>();
  for (const [index, list] of listNeighbours(jobs).parents.entries()) {
    for (const { job, policy } of list) {
      const edge = { from: nodeOf[job] ?? 0, to: nodeOf[index] ?? 0, policy };
      edges.set(Object.values(edge).join(), edge);
    }
  }
  return { nodes, edges: [...edges.values()] };
}

function listNeighbours(jobs: readonly PlacedJob[]) {
  const places = new Map(jobs.map(({ name }, index) => [name, index]));
  const children = jobs.map((): Edge[] => []);
  const parents = jobs.map(({ after }, index) =>
    after.flatMap(({ job, onFailure: policy }): Edge[] => {
      const parent = places.get(job);
      if (parent === undefined) return [];
      children[parent]?.push({ job: index, policy });
      return [{ job: parent, policy }];
    }),
  );
  return { children, parents };
}

/** The longest way to each node from one without parents. Parents come before their children. */
export function findLayers(parents: readonly (readonly { job: number }[])[]): number[] {
  const layers: number[] = [];
  for (const list of parents) {
    layers.push(Math.max(-1, ...list.map(({ job }) => layers[job] ?? 0)) + 1);
  }
  return layers;
}

/** `page-1-scan`, `page-2-scan`: `page-…-scan`; undefined if the names have nothing in common. */
export function findStem(names: readonly string[]): string | undefined {
  const [first = ''] = names;
  let [start, end] = [first.length, first.length];
  for (const name of names) {
    while (!name.startsWith(first.slice(0, start))) start -= 1;
    while (!name.endsWith(first.slice(first.length - end))) end -= 1;
  }
  if (start + end === 0) return undefined;
  const rest = Math.min(...names.map(({ length }) => length)) - start;
  return `${first.slice(0, start)}…${first.slice(first.length - Math.min(end, rest))}`;
}
