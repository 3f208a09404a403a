// The order between groups against a plain model of decision 24, which keeps lists and adds everything up each time.
import { expect, it } from 'vitest';
import { ReadyGroups, type Search } from '../../../../src/store/live/ready-groups.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import { createRandom } from '../../../support/random.ts';
import { makeJob, makeLease } from '../../../support/store/stored-jobs.ts';

const FIRST_MS = 1_000;
const WEIGHTS: Record<string, number> = { b: 3 };
const GROUPS = ['a', 'b', 'c', 'd'];

interface ModelRun {
  group: string;
  startedAt: number;
  chargedMs: number;
}

/** Each job takes one GPU, and none runs longer than it is expected to. */
class Model {
  readonly ended = new Map<string, number>();
  readonly waiting = new Map<string, number>();
  readonly runs = new Map<string, ModelRun>();
  /** Groups that had no waiting jobs at the last search. */
  readonly arrived = new Set<string>();
  longest = FIRST_MS;
  last = 0;

  weight(group: string): number {
    return WEIGHTS[group] ?? 1;
  }

  runsOf(group: string): ModelRun[] {
    return [...this.runs.values()].filter((run) => run.group === group);
  }

  used(group: string, toMs = (run: ModelRun) => run.chargedMs): number {
    const running = this.runsOf(group).reduce((sum, run) => sum + toMs(run), 0);
    return (this.ended.get(group) ?? 0) + running / this.weight(group);
  }

  /** Of the groups that wait, or else of those that run. */
  mean(now: number): number {
    const known = GROUPS.filter((group) => this.waits(group) && !this.arrived.has(group));
    const running = GROUPS.filter((group) => this.runsOf(group).length > 0);
    const active = known.length > 0 ? known : running;
    if (active.length === 0) return this.last;
    const weights = active.reduce((sum, group) => sum + this.weight(group), 0);
    const passed = (run: ModelRun) => now - run.startedAt;
    const sum = active.reduce(
      (all, group) => all + this.weight(group) * this.used(group, passed),
      0,
    );
    return sum / weights;
  }

  waits(group: string): boolean {
    return (this.waiting.get(group) ?? 0) > 0;
  }

  isActive(group: string): boolean {
    return (this.waits(group) && !this.arrived.has(group)) || this.runsOf(group).length > 0;
  }

  submit(group: string): void {
    if (!this.waits(group)) this.arrived.add(group);
    this.waiting.set(group, (this.waiting.get(group) ?? 0) + 1);
  }

  search(now: number): void {
    const mean = this.mean(now);
    for (const group of this.arrived) {
      const running = this.runsOf(group).length;
      const behind = running > 0 ? (this.longest * (running + 1)) / this.weight(group) : 0;
      const missing = mean - behind - this.used(group);
      if (missing > 0) this.ended.set(group, (this.ended.get(group) ?? 0) + missing);
    }
    this.arrived.clear();
  }

  /** The least that a waiting group has used. */
  least(): number {
    return Math.min(
      ...GROUPS.filter((group) => this.waits(group)).map((group) => this.used(group)),
    );
  }

  lease(job: StoredJob, chargedMs: number, now: number): void {
    const group = job.group ?? '';
    this.waiting.set(group, (this.waiting.get(group) ?? 0) - 1);
    this.runs.set(job.id, { group, startedAt: now, chargedMs });
    this.longest = Math.max(this.longest, chargedMs);
  }

  end(id: string, ms: number): void {
    const run = this.runs.get(id);
    if (!run) throw new Error(`${id} does not run`);
    const { group } = run;
    this.ended.set(group, (this.ended.get(group) ?? 0) + ms / this.weight(group));
    this.runs.delete(id);
    this.longest -= Math.min(this.longest, ms) / 8;
    if (!GROUPS.some((other) => this.isActive(other))) {
      this.last = Math.max(this.last, this.used(group));
    }
  }
}

function searchFor(limit: number, now: number): Search {
  return { limit, now, capacity: undefined, windowJobs: 16, shareJobs: 1_000 };
}

function openGroups(): ReadyGroups {
  const ready = new ReadyGroups();
  ready.start([], []);
  ready.weights = WEIGHTS;
  return ready;
}

it.each(Array.from({ length: 20 }, (_, seed) => seed + 1))(
  'leases the next job of the group that has used least, seed %i',
  (seed) => {
    const random = createRandom(seed);
    const below = (limit: number) => Math.floor(random() * limit);
    const ready = openGroups();
    const model = new Model();
    const running: StoredJob[] = [];
    let now = 1_000_000;
    let leases = 0;
    for (let step = 1; step <= 600; step++) {
      now += below(200);
      const dice = below(5);
      const index = below(running.length);
      const job = running[index];
      if (dice <= 1) {
        const group = GROUPS[below(GROUPS.length)] ?? 'a';
        ready.replace(undefined, makeJob({ id: `job-${step}`, group, position: step }));
        model.submit(group);
        if (ready.lacksRuns) ready.addRuns([]);
      } else if (job && (dice === 2 || now - (job.startedAt ?? now) > 500)) {
        running.splice(index, 1);
        const after = { ...job, status: 'COMPLETED', lease: null, executionMs: FIRST_MS } as const;
        ready.replace(job, after);
        model.end(job.id, FIRST_MS);
      } else {
        const [next] = ready.select(searchFor(1, now)).jobs;
        model.search(now);
        if (!next) {
          expect(GROUPS.some((group) => model.waits(group))).toBe(false);
          continue;
        }
        expect(model.used(next.group ?? '')).toBeCloseTo(model.least(), 3);
        const status = 'IN_PROGRESS' as const;
        const leased = { ...next, status, startedAt: now, lease: makeLease() };
        ready.replace(next, leased);
        model.lease(next, FIRST_MS, now);
        running.push(leased);
        leases += 1;
        // None runs longer than expected: that is another rule.
        while (now - (running[0]?.startedAt ?? now) > 600) {
          const first = running.shift();
          if (!first) break;
          ready.replace(first, {
            ...first,
            status: 'COMPLETED',
            lease: null,
            executionMs: FIRST_MS,
          });
          model.end(first.id, FIRST_MS);
        }
      }
    }
    expect(leases).toBeGreaterThan(50);
  },
);

it('forgets groups whose jobs are cancelled though nobody searches', () => {
  const ready = openGroups();
  for (let count = 0; count < 1_000; count++) {
    const job = makeJob({ id: `job-${count}`, group: `g${count}`, position: count });
    ready.replace(undefined, job);
    ready.replace(job, { ...job, status: 'CANCELLED' });
    ready.trimChanged(16, 8);
  }
  expect(ready.groupCount).toBeLessThan(200);
});
