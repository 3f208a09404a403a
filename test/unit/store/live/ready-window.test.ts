import { beforeEach, describe, expect, it } from 'vitest';
import { ReadyWindow } from '../../../../src/store/live/ready-window.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import { makeJob } from '../../../support/store/stored-jobs.ts';

let window: ReadyWindow;

beforeEach(() => {
  window = new ReadyWindow();
});

function ready(id: string, position: number, priority = 0): StoredJob {
  return makeJob({ id, position, priority });
}

function list(): string[] {
  return window.first(100).map(({ id }) => id);
}

describe('a window of ready jobs', () => {
  it('holds nothing before it is loaded', () => {
    window.replace(undefined, ready('a', 1));
    expect(list()).toEqual([]);
    expect(window.hasAll).toBe(false);
  });

  it('orders by priority, then by position', () => {
    window.load([], { isAll: true });
    for (const job of [ready('a', 3), ready('b', 1), ready('c', 9, 5), ready('d', 2)]) {
      window.replace(undefined, job);
    }
    expect(list()).toEqual(['c', 'b', 'd', 'a']);
  });

  it('holds all jobs if the database returned fewer than requested', () => {
    window.load([ready('a', 1)], { isAll: true });
    window.replace(undefined, ready('b', 5));
    expect(list()).toEqual(['a', 'b']);
    expect(window.hasAll).toBe(true);
  });

  it('leaves jobs behind its end outside, and takes those before it', () => {
    window.load([ready('a', 1), ready('b', 4)], { isAll: false });
    window.replace(undefined, ready('c', 5));
    window.replace(undefined, ready('d', 2));
    window.replace(undefined, ready('e', 9, 1));
    expect(list()).toEqual(['e', 'a', 'd', 'b']);
    expect(window.hasAll).toBe(false);
  });

  it('loses a job that is leased or delayed, and gets it back', () => {
    const [a, b] = [ready('a', 1), ready('b', 2)];
    window.load([a, b], { isAll: true });
    const leased: StoredJob = { ...a, status: 'IN_PROGRESS' };
    window.replace(a, leased);
    window.replace(b, { ...b, delayed: true });
    expect(list()).toEqual([]);
    window.replace(leased, a);
    expect(list()).toEqual(['a']);
  });

  it('gets its last job back when the database has more', () => {
    const [a, b] = [ready('a', 1), ready('b', 2)];
    window.load([a, b], { isAll: false });
    const leased: StoredJob = { ...b, status: 'IN_PROGRESS' };
    window.replace(b, leased);
    window.replace(leased, b);
    expect(list()).toEqual(['a', 'b']);
  });

  it('tells jobs of one position apart', () => {
    const jobs = ['a', 'b', 'c'].map((id) => ready(id, 1));
    window.load([], { isAll: true });
    for (const job of jobs) window.replace(undefined, job);
    window.replace(jobs[1], undefined);
    expect(list()).toEqual(['a', 'c']);
    expect(jobs.map((job) => window.has(job))).toEqual([true, false, true]);
  });

  it('drops its last jobs when it is trimmed, and no longer has all', () => {
    window.load([ready('a', 1), ready('b', 2), ready('c', 3)], { isAll: true });
    expect(window.trim(3)).toEqual([]);
    expect(window.hasAll).toBe(true);
    expect(window.trim(1).map(({ id }) => id)).toEqual(['b', 'c']);
    window.replace(undefined, ready('d', 2));
    window.replace(undefined, ready('f', 0));
    expect(list()).toEqual(['f', 'a']);
    window.trim(0);
    window.replace(undefined, ready('e', 0));
    expect(list()).toEqual([]);
  });
});
