// The checks of a platform, against one that deviates.
import { expect, it } from 'vitest';
import { runConformanceChecks } from '../../../src/conformance/checks.ts';
import { platformChecks } from '../../../src/conformance/platform/platform-checks.ts';
import type { PlatformStage } from '../../../src/conformance/platform/scripted-worker.ts';
import { LinkError, type WorkerLink } from '../../../src/wire/link/worker-link.ts';

const refuse = () => Promise.reject(new LinkError('invalid', 'not today'));

const link: WorkerLink = {
  hello: async () => ({ protocol: 1, leaseMs: 15_000, renewEveryMs: 5_000, takeWaitMs: 20_000 }),
  take: refuse,
  renew: refuse,
  report: refuse,
  bye: async () => {},
};

const job = { id: 'job', status: 'IN_QUEUE' } as const;

const stage: PlatformStage = {
  ...{ link, wrongKeyLink: link, submitted: [], workers: [] },
  client: {
    run: async () => job,
    cancel: async () => job,
    status: () => expect.unreachable('no job runs'),
    stream: () => expect.unreachable('no job runs'),
  },
  time: {
    now: () => 0,
    pass: () => new Promise((resolve) => setImmediate(resolve)),
    answerMs: 2_000,
  },
  terms: { leaseMs: 15_000, renewEveryMs: 5_000, takeWaitMs: 20_000 },
};

it('see a call fail that the platform refuses while time passes', async () => {
  const waiting = platformChecks.filter(({ rule }) => /^(waits|returns a job as soon)/.test(rule));
  const rows = await runConformanceChecks(waiting, stage, () => {});
  expect(rows.map(({ detail, result }) => [result, detail])).toEqual([
    ['fails', 'not today'],
    ['fails', 'not today'],
  ]);
});
