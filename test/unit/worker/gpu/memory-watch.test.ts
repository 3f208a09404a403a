// Device memory that nobody gives back: tables.
import { describe, expect, it } from 'vitest';
import {
  DEFAULT_MEMORY_POLICY,
  type JobActivity,
  judgeMemory,
  type MemoryFinding,
  type MemoryPolicy,
  type MemorySample,
  startMemory,
} from '../../../../src/worker/gpu/memory-watch.ts';

const MIB = 2 ** 20;

interface Watch {
  baselineMib?: number;
  changes?: Partial<MemoryPolicy>;
}

/** What each of the samples showed, in their order. */
function judgeAll(samples: readonly MemorySample[], { baselineMib, changes }: Watch = {}) {
  const policy = { ...DEFAULT_MEMORY_POLICY, ...changes };
  let history = startMemory(baselineMib === undefined ? undefined : baselineMib * MIB);
  const found: (MemoryFinding | undefined)[] = [];
  for (const sample of samples) {
    const judged = judgeMemory({ history, sample, policy });
    history = judged.history;
    found.push(judged.finding);
  }
  return found;
}

function namesOf(samples: readonly MemorySample[], watch: Watch = {}): string {
  return judgeAll(samples, watch)
    .map((finding) => finding?.name ?? '-')
    .join(' ');
}

/** While no process runs. */
function free(mib: number | undefined): MemorySample {
  const usedBytes = mib === undefined ? undefined : mib * MIB;
  return { usedBytes, before: undefined, after: undefined };
}

function at(mib: number, activity: Partial<JobActivity>): MemorySample {
  const now = { incarnation: 1, running: 0, ended: 0, ...activity };
  return { usedBytes: mib * MIB, before: now, after: now };
}

/** After one more job each. */
function afterJobs(mib: readonly number[]): MemorySample[] {
  return mib.map((each, place) => at(each, { ended: place + 1 }));
}

/** Looks at a process that always runs a job; one ends between two looks. */
function busy(mib: readonly number[]): MemorySample[] {
  return mib.map((each, place) => at(each, { running: 1, ended: place + 1 }));
}

describe('memory that no known process holds', () => {
  it.each<[string, number | undefined, MemorySample[], string]>([
    ['is the use above the baseline', 1_000, [free(3_000)], 'held'],
    ['is reported once', 1_000, [free(3_000), free(3_100)], 'held -'],
    ['is reported when it is free again', 1_000, [free(3_000), free(1_100)], 'held freed'],
    ['is none within the tolerance', 1_000, [free(1_256)], '-'],
    ['is none below the baseline', 1_000, [free(0)], '-'],
    ['is none if the use is unknown', 1_000, [free(undefined)], '-'],
    ['is none while a process runs', 1_000, [at(3_000, {})], '-'],
    ['has the first sample as its baseline', undefined, [free(1_000), free(3_000)], '- held'],
    [
      'is not judged without a baseline',
      undefined,
      [at(900, {}), free(1_000), free(3_000)],
      '- - -',
    ],
  ])('%s', (_, baselineMib, samples, names) => {
    expect(namesOf(samples, baselineMib === undefined ? {} : { baselineMib })).toBe(names);
  });

  it.each<[string, Pick<MemorySample, 'before' | 'after'>]>([
    ['ended', { before: { incarnation: 1, running: 1, ended: 0 }, after: undefined }],
    ['began', { before: undefined, after: { incarnation: 1, running: 0, ended: 0 } }],
  ])('is not judged by a reading during which a process %s', (_, seen) => {
    expect(namesOf([{ usedBytes: 3_000 * MIB, ...seen }], { baselineMib: 1_000 })).toBe('-');
  });

  it('is reported in bytes', () => {
    expect(judgeAll([free(3_000)], { baselineMib: 1_000 })).toEqual([
      { name: 'held', heldBytes: 2_000 * MIB },
    ]);
  });
});

describe('memory of a process that is idle between jobs', () => {
  it.each<[string, number[], string]>([
    ['that stays', [900, 900, 900, 900, 900, 900, 900], '- - - - - - -'],
    ['that grows too few times', [900, 910, 920, 930, 940], '- - - - -'],
    ['that grows with every job', [900, 910, 920, 930, 940, 950], '- - - - - growing'],
    [
      'that keeps growing is reported once',
      [900, 910, 920, 930, 940, 950, 960],
      '- - - - - growing -',
    ],
    ['that fell once', [900, 910, 920, 915, 940, 950], '- - - - - -'],
    ['that starts to grow later', [900, 900, 910, 920, 930, 940, 950], '- - - - - - growing'],
    ['that grows by less than the threshold', [900, 900.5, 901, 901.5, 902, 902.5], '- - - - - -'],
  ])('%s', (_, mib, names) => {
    expect(namesOf(afterJobs(mib))).toBe(names);
  });

  it('is measured only after jobs', () => {
    const same = [900, 910, 920, 930, 940, 950].map((mib) => at(mib, { ended: 1 }));
    expect(namesOf(same)).toBe('- - - - - -');
  });

  it('is reported per job and in total, however many jobs ran between readings', () => {
    const samples = [500, 900, 900, 910, 920, 930, 940, 950].map((mib, place) =>
      at(mib, { ended: 1 + place * 2 }),
    );
    expect(judgeAll(samples).at(-1)).toEqual({
      name: 'growing',
      jobs: 10,
      bytesPerJob: 5 * MIB,
      grownBytes: 450 * MIB,
    });
  });

  it('restarts with the next process', () => {
    const later = [930, 940, 950].map((mib, place) =>
      at(mib, { incarnation: 2, ended: 9 + place }),
    );
    const samples = [...afterJobs([900, 910, 920]), ...later];
    expect(namesOf(samples)).toBe('- - - - - -');
  });

  it.each<[string, number[], string]>([
    ['below the limit', [500, 899], '- -'],
    ['at the limit, even after a decrease', [500, 400, 900], '- - recycle'],
    ['above the limit, once per process', [500, 900, 1_000], '- recycle -'],
  ])('leads to a new process with a limit: %s', (_, mib, names) => {
    expect(namesOf(afterJobs(mib), { changes: { recycleAtBytes: 400 * MIB } })).toBe(names);
  });
});

describe('memory of a process that is never idle', () => {
  const rising = Array.from({ length: 11 * 6 }, (_, look) => 1_000 + Math.floor(look / 6) * 10);
  const countFindings = (mib: readonly number[], changes: Partial<MemoryPolicy> = {}) =>
    judgeAll(busy(mib), { changes }).flatMap((finding) => finding?.name ?? []);

  it('grows if its lowest use over several readings grows', () => {
    // What jobs use while they run comes and goes; what is never given back stays beneath.
    const noisy = rising.map((mib, look) => mib + (look % 6 === 3 ? 0 : 700 + (look % 5) * 90));
    expect(countFindings(noisy)).toEqual(['growing']);
  });

  it('does not grow while its lowest use stays the same', () => {
    const noisy = rising.map((_, look) => (look % 6 === 3 ? 1_000 : 1_700 + look * 10));
    expect(countFindings(noisy)).toEqual([]);
  });

  it('leads to a new process above the limit only if it grew continuously', () => {
    const changes = { recycleAtBytes: 50 * MIB };
    expect(countFindings(rising, changes)).toEqual(['recycle']);
    const larger = rising.map((mib, look) => (look < 6 ? mib : 5_000));
    expect(countFindings(larger, changes)).toEqual([]);
  });

  it('is not judged while one job continues', () => {
    const samples = rising.map((mib) => at(mib, { running: 1, ended: 3 }));
    expect(namesOf(samples)).not.toMatch(/growing|recycle/);
  });
});
