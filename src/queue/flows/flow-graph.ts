// Checks the graph of a flow: names, edges and cycles. Pure. Errors name the path in the request.
import { LIMITS } from '../../wire/job/job.ts';

export interface GraphJob {
  name: string;
  /** Names of its parents. */
  parents: readonly string[];
}

/** `order`: indexes of the jobs, parents before their children. `parents`: indexes of the parents of each job. */
export type CheckedGraph = { order: number[]; parents: number[][] } | { errors: string[] };

export function checkGraph(jobs: readonly GraphJob[]): CheckedGraph {
  const errors: string[] = [];
  const byName = new Map<string, number>();
  for (const [index, { name }] of jobs.entries()) {
    const first = byName.get(name);
    if (first === undefined) byName.set(name, index);
    else errors.push(`jobs[${index}].name: jobs[${first}] is named "${name}" too`);
  }
  const edges = jobs.reduce((sum, { parents }) => sum + parents.length, 0);
  if (edges > LIMITS.edgesOfFlow) {
    errors.push(`jobs: must have at most ${LIMITS.edgesOfFlow} edges, and have ${edges}`);
  }
  if (errors.length > 0) return { errors };
  const parents = jobs.map((job, index) => findParents(job, { index, byName, errors }));
  errors.push(...findCrowded(jobs, parents));
  if (errors.length > 0) return { errors };
  const order = sort(parents);
  if (order.length === jobs.length) return { order, parents };
  return { errors: [describeCycle(jobs, parents, new Set(order))] };
}

interface Lookup {
  index: number;
  byName: ReadonlyMap<string, number>;
  errors: string[];
}

function findParents({ name, parents }: GraphJob, { byName, errors, index }: Lookup): number[] {
  const found = new Set<number>();
  for (const [at, parent] of parents.entries()) {
    const path = `jobs[${index}].after[${at}]`;
    const parentIndex = byName.get(parent);
    if (parentIndex === undefined) errors.push(`${path}: no job of the flow is named "${parent}"`);
    else if (parent === name) errors.push(`${path}: the job would wait for itself`);
    else if (found.has(parentIndex)) errors.push(`${path}: "${parent}" is named twice`);
    else found.add(parentIndex);
  }
  return [...found];
}

function findCrowded(jobs: readonly GraphJob[], parents: readonly number[][]): string[] {
  const children = new Map<number, number>();
  for (const parent of parents.flat()) children.set(parent, (children.get(parent) ?? 0) + 1);
  return [...children]
    .filter(([, count]) => count > LIMITS.childrenOfJob)
    .map(
      ([index]) =>
        `jobs[${index}]: "${jobs[index]?.name}" has more than ${LIMITS.childrenOfJob} children`,
    );
}

/** Kahn's algorithm; jobs on a cycle and behind it are left out. */
function sort(parents: readonly number[][]): number[] {
  const children = parents.map((): number[] => []);
  for (const [index, ofJob] of parents.entries()) {
    for (const parent of ofJob) children[parent]?.push(index);
  }
  const open = parents.map(({ length }) => length);
  const order = open.flatMap((count, index) => (count === 0 ? [index] : []));
  // The list grows meanwhile.
  for (const index of order) {
    for (const child of children[index] ?? []) {
      const left = (open[child] ?? 0) - 1;
      open[child] = left;
      if (left === 0) order.push(child);
    }
  }
  return order;
}

/** Jobs that were not sorted have a parent that was not either: going from one to the next ends in a cycle. */
function describeCycle(
  jobs: readonly GraphJob[],
  parents: readonly number[][],
  sorted: ReadonlySet<number>,
): string {
  const path: number[] = [];
  let at = jobs.findIndex((_, index) => !sorted.has(index));
  while (!path.includes(at)) {
    path.push(at);
    at = parents[at]?.find((parent) => !sorted.has(parent)) ?? at;
  }
  const cycle = path.slice(path.indexOf(at));
  const names = [...cycle, at].map((index) => jobs[index]?.name).slice(-MAX_NAMED);
  return `jobs[${at}].after: the jobs wait for each other: ${names.join(' after ')}`;
}

/** A cycle may have 1,000 jobs. */
const MAX_NAMED = 10;
