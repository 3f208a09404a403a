// However jobs arrive and are leased, groups that have jobs take turns.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  advanceTurn,
  chooseTurn,
  GroupTurns,
  KnownGroups,
} from '../../../../src/store/live/group-turns.ts';

interface Queued {
  group: number;
  turn: number;
  position: number;
}

/** A queue of one priority: the rule, and nothing else. */
class Line {
  #current = 0;
  #position = 0;
  readonly #last = new Map<number, number>();
  readonly jobs: Queued[] = [];

  submit(group: number): void {
    const turn = chooseTurn(this.#current, this.#last.get(group));
    this.#last.set(group, turn);
    this.jobs.push({ group, turn, position: this.#position++ });
  }

  /** A new process: it knows the last turns of queued jobs only. */
  forget(): void {
    this.#last.clear();
    for (const { group, turn } of this.jobs) {
      this.#last.set(group, Math.max(turn, this.#last.get(group) ?? 0));
    }
  }

  lease(): Queued | undefined {
    this.jobs.sort((a, b) => a.turn - b.turn || a.position - b.position);
    const job = this.jobs.shift();
    if (job) this.#current = advanceTurn(this.#current, job.turn);
    return job;
  }

  count(group: number): number {
    return this.jobs.filter((job) => job.group === group).length;
  }
}

const GROUPS = 4;
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ submit: fc.nat(GROUPS - 1), jobs: fc.integer({ min: 1, max: 9 }) }),
  },
  { weight: 6, arbitrary: fc.constant('lease' as const) },
  { weight: 1, arbitrary: fc.constant('forget' as const) },
);

describe('turns', () => {
  it('give a group that has jobs its next lease after at most two of each other group', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const line = new Line();
        // By group: leases of the others since its last one, while it has jobs.
        const since = new Map<number, Map<number, number>>();
        for (const each of steps) {
          if (each === 'forget') line.forget();
          else if (each !== 'lease') {
            if (line.count(each.submit) === 0) since.set(each.submit, new Map());
            for (let i = 0; i < each.jobs; i++) line.submit(each.submit);
          } else {
            const leased = line.lease();
            if (!leased) continue;
            for (const [group, others] of since) {
              if (group === leased.group) others.clear();
              else others.set(leased.group, (others.get(leased.group) ?? 0) + 1);
              expect(Math.max(0, ...others.values())).toBeLessThanOrEqual(2);
              if (line.count(group) === 0) since.delete(group);
            }
          }
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it('lease the first job of a group among the next two, however many another group has queued', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2_000 }), fc.nat(1_999), (queued, leased) => {
        const line = new Line();
        for (let i = 0; i < queued; i++) line.submit(0);
        for (let i = 0; i < Math.min(leased, queued); i++) line.lease();
        line.submit(1);
        expect([line.lease()?.group, line.lease()?.group]).toContain(1);
      }),
      { numRuns: 50 },
    );
  });

  it('keep the order of submission within a group', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const line = new Line();
        const last = new Map<number, number>();
        for (const each of [...steps, ...steps.map(() => 'lease' as const)]) {
          if (each === 'forget') line.forget();
          else if (each !== 'lease') for (let i = 0; i < each.jobs; i++) line.submit(each.submit);
          else {
            const job = line.lease();
            if (!job) continue;
            expect(job.position).toBeGreaterThan(last.get(job.group) ?? -1);
            last.set(job.group, job.position);
          }
        }
      }),
    );
  });
});

describe('the known groups', () => {
  const GROUP = { last: 1, isStale: false, version: 0 };

  function open(groups: KnownGroups, count: number): GroupTurns {
    const owner = new GroupTurns(groups);
    owner.hasAllGroups = true;
    for (let i = 0; i < count; i++) groups.put(owner, `g${i}`, GROUP);
    return owner;
  }

  function countKnown(groups: KnownGroups, owner: GroupTurns): number {
    const names = Array.from({ length: 100 }, (_, i) => `g${i}`);
    return names.filter((name) => groups.find(owner, name)).length;
  }

  it('give an endpoint with many groups none of the others', () => {
    const groups = new KnownGroups(20);
    const few = open(groups, 5);
    const many = open(groups, 100);
    const some = open(groups, 12);
    groups.trim();
    expect([few, some, many].map((owner) => countKnown(groups, owner))).toEqual([5, 7, 8]);
    expect([few, some, many].map((owner) => owner.hasAllGroups)).toEqual([true, false, false]);
    // The newest ones.
    expect([groups.find(many, 'g91'), groups.find(many, 'g92')]).toEqual([undefined, GROUP]);
  });

  it('get back the share of an endpoint that was removed', () => {
    const groups = new KnownGroups(20);
    open(groups, 30).forget();
    const other = open(groups, 20);
    groups.trim();
    expect(countKnown(groups, other)).toBe(20);
  });
});
