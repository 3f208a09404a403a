import { beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { PodStats } from '../../../../src/control/pods/pod-records.ts';
import type { ContainerStats } from '../../../../src/engine/engine.ts';
import { MemoryEngine, MemoryHost } from '../../../support/containers/memory-engine.ts';

/** When the run of the containers began. */
const RUN = 1_000;
const SAMPLE: ContainerStats = { cpu: 1, memory: 2, gpus: [] };

let clock: ManualClock;
let asked: string[];
let answer: (id: string) => Promise<ContainerStats | undefined>;
let stats: PodStats;

beforeEach(() => {
  clock = new ManualClock();
  asked = [];
  answer = async () => SAMPLE;
  const engine = new MemoryEngine(new MemoryHost(clock));
  engine.stats = (id) => {
    asked.push(id);
    return answer(id);
  };
  stats = new PodStats({ engine, clock });
});

describe('the use of resources', () => {
  it('are read once in two seconds, for any number of callers', async () => {
    expect(await Promise.all([stats.read('a', RUN), stats.read('a', RUN)])).toEqual([
      SAMPLE,
      SAMPLE,
    ]);
    await clock.advance(1_999);
    expect(await stats.read('a', RUN)).toEqual(SAMPLE);
    expect(asked).toEqual(['a']);
    await clock.advance(1);
    await stats.read('a', RUN);
    expect(asked).toEqual(['a', 'a']);
  });

  it('are omitted if the engine does not answer at once, and known for the next call', async () => {
    const gate = Promise.withResolvers<ContainerStats>();
    answer = () => gate.promise;
    const read = stats.read('a', RUN);
    await clock.advance(100);
    expect(await read).toBeUndefined();
    gate.resolve(SAMPLE);
    await gate.promise;
    expect(await stats.read('a', RUN)).toEqual(SAMPLE);
    expect(asked).toEqual(['a']);
  });

  it('are the last known ones while the engine is slow, for 30 seconds', async () => {
    await stats.read('a', RUN);
    answer = () => new Promise(() => {});
    await clock.advance(20_000);
    const read = stats.read('a', RUN);
    await clock.advance(100);
    expect(await read).toEqual(SAMPLE);
    answer = async () => undefined;
    expect(await stats.read('b', RUN)).toBeUndefined();
    expect(asked).toEqual(['a', 'a', 'b']);
  });

  it('are not those of an earlier run, and not older than 30 seconds if the engine never answers', async () => {
    await stats.read('a', RUN);
    answer = () => new Promise(() => {});
    await clock.advance(3_000);
    const ofNextRun = stats.read('a', RUN + 3_000);
    await clock.advance(100);
    expect(await ofNextRun).toBeUndefined();
    answer = async () => SAMPLE;
    await stats.read('b', RUN);
    answer = () => new Promise(() => {});
    await clock.advance(3_000);
    const known = stats.read('b', RUN);
    await clock.advance(100);
    expect(await known).toEqual(SAMPLE);
    await clock.advance(30_000);
    const late = stats.read('b', RUN);
    await clock.advance(100);
    expect(await late).toBeUndefined();
  });

  it('are omitted if the engine has none', async () => {
    answer = () => Promise.reject(new Error('away'));
    expect(await stats.read('a', RUN)).toBeUndefined();
  });

  it('are read for at most eight pods at once', async () => {
    const gate = Promise.withResolvers<ContainerStats>();
    answer = () => gate.promise;
    const ids = Array.from({ length: 9 }, (_, index) => `pod_${index}`);
    const reads = ids.map((id) => stats.read(id, RUN));
    expect(await reads[8]).toBeUndefined();
    expect(asked).toEqual(ids.slice(0, 8));
    gate.resolve(SAMPLE);
    expect(await Promise.all(reads.slice(0, 8))).toEqual(new Array(8).fill(SAMPLE));
    expect(await stats.read('pod_8', RUN)).toEqual(SAMPLE);
  });
});
