// What stays in memory of groups whose jobs have ended.
import { beforeEach, expect, it } from 'vitest';
import { ReadyGroups } from '../../../../src/store/live/ready-groups.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import { makeJob, makeLease } from '../../../support/store/stored-jobs.ts';

/** More than stay for a while. */
const GROUPS = 100;
const STARTED_AT = 2_000;

let groups: ReadyGroups;

beforeEach(() => {
  groups = new ReadyGroups();
  groups.start([], []);
});

function search(limit: number, now = STARTED_AT): StoredJob[] {
  const bounds = { capacity: undefined, windowJobs: 1_000, shareJobs: 1_000 };
  return groups.select({ limit, now, ...bounds }).jobs;
}

function submit(): StoredJob[] {
  const jobs = Array.from({ length: GROUPS }, (_, n) => makeJob({ id: `j${n}`, group: `g${n}` }));
  for (const job of jobs) groups.replace(undefined, job);
  return jobs;
}

it('forgets groups whose ready jobs were removed', () => {
  for (const job of submit()) groups.replace(job, undefined);
  expect([groups.size, groups.isShared]).toEqual([0, true]);
  expect(search(1)).toEqual([]);
  expect(groups.isShared).toBe(false);
});

it('forgets groups whose jobs have run', () => {
  submit();
  groups.addRuns([]);
  const started = search(GROUPS).map((job): [StoredJob, StoredJob] => [
    job,
    { ...job, status: 'IN_PROGRESS', lease: makeLease(), startedAt: STARTED_AT },
  ]);
  expect(started).toHaveLength(GROUPS);
  for (const [job, running] of started) groups.replace(job, running);
  search(1, STARTED_AT + 1);
  expect(groups.isShared).toBe(true);
  const ended = { lease: null, executionMs: 10, endedAt: STARTED_AT + 10 };
  for (const [, running] of started)
    groups.replace(running, { ...running, ...ended, status: 'COMPLETED' });
  search(1, STARTED_AT + 10);
  expect(groups.isShared).toBe(false);
});

it('drops jobs beyond the window of a group that was read', () => {
  groups.start([0], []);
  groups.addGroups(0, ['a']);
  const jobs = Array.from({ length: 10 }, (_, n) =>
    makeJob({ id: `j${n}`, group: 'a', position: n }),
  );
  const wanted = [{ priority: 0, group: 'a', from: undefined }];
  groups.trimChanged(0, 0);
  expect(groups.addJobs({ what: 'jobs', limit: 11, wanted }, jobs)).toHaveLength(10);
  expect(groups.trimChanged(5, 3)).toHaveLength(7);
  expect(groups.size).toBe(3);
});
