// The drawing of a flow: which jobs share a box, and where the boxes are.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  drawnGraph,
  findStem,
  groupAlike,
  type PlacedJob,
} from '../../../console/src/pages/flows/graph.ts';
import { BOX, layOut } from '../../../console/src/pages/flows/layout.ts';

/** `parents`: of each job, indices of earlier ones. */
function jobsOf(parents: readonly (readonly number[])[]): PlacedJob[] {
  return parents.map((list, index) => ({
    ...{ name: `job-${index}`, endpoint: 'echo' },
    after: list.map((parent) => ({ job: `job-${parent}`, onFailure: 'fail' })),
  }));
}

function draw(jobs: readonly PlacedJob[], opened: readonly string[] = []) {
  return drawnGraph(jobs, groupAlike(jobs), new Set(opened));
}

/** `size` jobs, each after up to three earlier ones. */
function graphs(size: number) {
  return fc
    .array(fc.array(fc.nat(), { maxLength: 3 }), { maxLength: size, minLength: 1 })
    .map((picks) => {
      const parents = picks.map((list, index) =>
        index === 0 ? [] : [...new Set(list.map((pick) => pick % index))],
      );
      return jobsOf(parents);
    });
}

/** One job, `width` chains of two behind it, and one behind them all. */
function fan(width: number): PlacedJob[] {
  const chains = Array.from({ length: width }, (_, n) => [[0], [2 * n + 1]]).flat();
  return jobsOf([[], ...chains, Array.from({ length: width }, (_, n) => 2 * n + 2)]);
}

describe('the boxes of a flow', () => {
  it('are one for each job of a small flow', () => {
    expect(draw(fan(19)).nodes).toHaveLength(40);
  });

  it('hold the jobs of a large flow that stand alike, and its edges', () => {
    const { edges, nodes } = draw(fan(400));
    expect(nodes.map(({ jobs }) => jobs.length)).toEqual([1, 400, 400, 1]);
    expect(edges).toEqual([
      { from: 0, to: 1, policy: 'fail' },
      { from: 1, to: 2, policy: 'fail' },
      { from: 2, to: 3, policy: 'fail' },
    ]);
  });

  it('keep jobs apart whose endpoint or whose edges differ', () => {
    const jobs = fan(400);
    const changed = jobs.map((job, index) => {
      if (index === 1) return { ...job, endpoint: 'other' };
      if (index !== 4) return job;
      return { ...job, after: [{ job: 'job-3', onFailure: 'run' as const }] };
    });
    const sizes = draw(changed).nodes.map(({ jobs: { length } }) => length);
    expect(sizes.toSorted((a, b) => b - a)).toEqual([398, 398, 1, 1, 1, 1, 1, 1]);
  });

  it('fall apart when a person opens one', () => {
    const { nodes } = draw(fan(400), ['job-1']);
    expect(nodes.filter(({ jobs }) => jobs.length === 1)).toHaveLength(402);
    expect(nodes.filter(({ jobs }) => jobs.length === 400)).toHaveLength(1);
  });

  it('have every job once, and every edge between the boxes of its jobs', () => {
    const check = (jobs: PlacedJob[]) => {
      const { edges, nodes } = draw(jobs);
      expect(nodes.flatMap((node) => node.jobs).toSorted((a, b) => a - b)).toEqual([
        ...jobs.keys(),
      ]);
      const nodeOf = new Map(nodes.flatMap((node, at) => node.jobs.map((job) => [job, at])));
      const expected = jobs.flatMap(({ after }, index) =>
        after.map(({ job }) => `${nodeOf.get(Number(job.slice(4)))}-${nodeOf.get(index)}`),
      );
      const found = edges.map(({ from, to }) => `${from}-${to}`);
      expect(new Set(found)).toEqual(new Set(expected));
      expect(found).toHaveLength(new Set(found).size);
    };
    fc.assert(fc.property(graphs(120), check), { numRuns: 50 });
  });

  it.each([
    [['page-1', 'page-22'], 'page-…'],
    [['s-1-cut', 's-2-cut'], 's-…-cut'],
    [['left', 'up'], undefined],
    [['aa', 'a'], 'a…'],
    [['same', 'same'], 'same…'],
  ])('are named after %j as %s', (names, stem) => {
    expect(findStem(names)).toBe(stem);
  });
});

describe('the layout of a graph', () => {
  it('has no two boxes in one place, and every edge from left to right', () => {
    const check = (jobs: PlacedJob[]) => {
      const graph = draw(jobs);
      const { boxes, height, paths, width } = layOut(graph);
      for (const [index, { x, y }] of boxes.entries()) {
        expect(Math.min(x, y)).toBeGreaterThanOrEqual(0);
        expect(x + BOX.width).toBeLessThanOrEqual(width);
        expect(y + BOX.height).toBeLessThanOrEqual(height + 0.01);
        for (const other of boxes.slice(index + 1)) {
          const isApart = Math.abs(other.x - x) >= BOX.width || Math.abs(other.y - y) >= BOX.height;
          expect(isApart).toBe(true);
        }
      }
      for (const { from, to } of graph.edges) {
        expect((boxes[from]?.x ?? 0) + BOX.width).toBeLessThan(boxes[to]?.x ?? 0);
      }
      expect(paths.every((path) => /^M[\d.-]/.test(path) && !path.includes('NaN'))).toBe(true);
    };
    fc.assert(fc.property(graphs(60), check), { numRuns: 100 });
  });

  it('draws a chain as a straight line', () => {
    const { boxes } = layOut(draw(jobsOf([[], [0], [1], [2]])));
    expect(new Set(boxes.map(({ y }) => y)).size).toBe(1);
    expect(new Set(boxes.map(({ x }) => x)).size).toBe(4);
  });

  it('puts boxes in an order in which their edges do not cross', () => {
    // Two chains whose second jobs are given in the other order.
    const { boxes } = layOut(draw(jobsOf([[], [], [1], [0]])));
    const [first, second, ofSecond, ofFirst] = boxes.map(({ y }) => y);
    expect(Math.sign(Number(first) - Number(second))).toBe(
      Math.sign(Number(ofFirst) - Number(ofSecond)),
    );
  });

  it('leads an edge that passes a layer around its boxes', () => {
    const { boxes, paths } = layOut(draw(jobsOf([[], [0], [1, 0]])));
    const long = paths.at(-1) ?? '';
    const lane = Number(/([\d.]+)h/.exec(long)?.[1]);
    const [, passed = { x: 0, y: 0 }] = boxes;
    expect(lane < passed.y || lane > passed.y + BOX.height).toBe(true);
  });

  it('wraps a layer of a thousand boxes into columns', () => {
    const jobs = jobsOf([[], ...Array.from({ length: 999 }, () => [0])]);
    const apart = drawnGraph(jobs, [...jobs.keys()], new Set());
    const { height, width } = layOut(apart);
    expect(height).toBeLessThan(2_000);
    expect(width).toBeLessThan(8_000);
  });
});
