import { expect, it } from 'vitest';
import { describeDecisions, explainDecisions } from '../../../../src/cli/endpoints/endpoints.ts';
import type { DecisionRecord } from '../../../../src/wire/resources/scaling.ts';

const DECISION: DecisionRecord = {
  at: '2026-01-01T00:00:00.000Z',
  ...{ want: 2, start: 1, drain: ['pod_3'], cause: 'delay', reason: 'a job has waited too long' },
  started: [{ pod: 'pod_2', gpu: 'H200' }],
  input: {
    ...{ now: 10_000, type: 'QUEUE', workersMin: 0, workersMax: 3, idleTimeoutMs: 5_000 },
    scaler: { type: 'QUEUE_DELAY', seconds: 4 },
    load: { waiting: 7, running: 1, oldestQueuedAt: 4_000, peak: 9 },
    workers: [
      { id: 'pod_1', state: 'ready', jobs: 1, idleSince: null, isCurrent: true },
      { id: 'pod_3', state: 'ready', jobs: 0, idleSince: 9_000, isCurrent: false },
    ],
    ...{ lastStartAt: null, lastWant: 1, places: 4 },
    crashes: { streak: 2, notBefore: 0, reason: 'out of memory' },
  },
};

it('is one row each', () => {
  expect(describeDecisions([DECISION], 200)).toBe(
    [
      'TIME                      DESIRED  START  DRAIN  REASON',
      '2026-01-01T00:00:00.000Z  2        1      1      a job has waited too long',
    ].join('\n'),
  );
});

it('is explained by its inputs', () => {
  expect(explainDecisions([DECISION])).toBe(
    [
      '2026-01-01T00:00:00.000Z  2 wanted (delay): a job has waited too long',
      '  load      7 waiting, the oldest for 6000 ms; 1 running; recent peak 9',
      '  workers   2 ready, 1 to be replaced',
      '  limits    0 to 3, add one when a job waits for 4 s',
      '  GPUs      free for 4 workers',
      '  crashes   2 in a row: out of memory',
      '  started   pod_2 on H200',
      '  drained   pod_3',
    ].join('\n'),
  );
});

it('omits what is empty', () => {
  const input: DecisionRecord['input'] = {
    ...DECISION.input,
    ...{ workers: [], places: null, crashes: { streak: 0, notBefore: 0, reason: null } },
    load: { waiting: 0, running: 0, oldestQueuedAt: null, peak: 0 },
    scaler: { type: 'REQUEST_COUNT', perWorker: 2 },
  };
  expect(explainDecisions([{ ...DECISION, input, started: [], drain: [] }])).toBe(
    [
      '2026-01-01T00:00:00.000Z  2 wanted (delay): a job has waited too long',
      '  load      0 waiting; 0 running; recent peak 0',
      '  workers   none',
      '  limits    0 to 3, one per 2 jobs or requests',
    ].join('\n'),
  );
});
