// The long form of the faults in test/e2e/runpod: each kind of fault alone, over many jobs.
import { describe, expect, it } from 'vitest';
import { chooseSeed } from '../support/random.ts';
import { type RunPodRun, runOnRunPod } from '../support/runs/runpod-run.ts';
import type { RunPodFault, RunPodRoute } from '../support/runs/runpod-server.ts';

const JOBS = 300;
const status = (status: number, headers = {}) => ({ kind: 'status', status, headers }) as const;
const lost = { kind: 'reset', when: 'after' } as const;
const cut = { kind: 'reset', when: 'before' } as const;

/** Share of faulty requests by route, lower where a fault takes more time. */
const SHARES: Readonly<Record<RunPodRoute, number>> = {
  ...{ take: 0.2, stream: 0.1, done: 0.3, stop: 0.3, ping: 0.3 },
};

function strike(fault: RunPodFault, ...routes: RunPodRoute[]): NonNullable<RunPodRun['faults']> {
  return Object.fromEntries(
    routes.map((route) => [route, { share: SHARES[route], kinds: [fault] }]),
  );
}

const RUNS: (Omit<RunPodRun, 'jobs' | 'seed'> & { name: string })[] = [
  { name: 'none, templates without a query', templates: 'bare' },
  { name: 'none, templates with a bare question mark', templates: 'question' },
  { name: 'none, templates with a literal pod ID', templates: 'literal' },
  {
    name: 'connections cut before the server has acted',
    faults: strike(cut, 'take', 'stream', 'done', 'stop', 'ping'),
  },
  { name: 'answers to streams and results lost', faults: strike(lost, 'stream', 'done') },
  { name: '502', faults: strike(status(502), 'take', 'stream', 'done', 'stop', 'ping') },
  {
    name: '429',
    faults: strike(status(429, { 'retry-after': '0' }), 'take', 'stream', 'done'),
  },
  { name: '400 and 204 for takes', faults: strike(status(400), 'take') },
  { name: 'bad elements in batches', hasBadElements: true },
  { name: 'jobs delivered twice', isTwice: true },
  { name: 'late stops', hasLateStops: true },
];

describe('a worker on RunPod', () => {
  it.each(RUNS)('answers every job with all chunks in order: $name', async (run) => {
    const seed = chooseSeed();
    const { struck, ...result } = await runOnRunPod({ ...run, jobs: JOBS, seed });
    console.log(`SEED=${seed}: ${struck} faults`);
    expect(result).toEqual({ answered: JOBS, wrong: [], exitCode: 0 });
    if (run.faults) expect(struck).toBeGreaterThan(3);
  });
});
