import { describe, expect, it } from 'vitest';
import {
  describeDecisions,
  endpointsCommands,
  explainDecisions,
} from '../../../../src/cli/endpoints/endpoints.ts';
import type { DecisionRecord } from '../../../../src/wire/resources/scaling.ts';
import { printVerb, runVerb } from '../../../support/runs/verb-run.ts';

const KEY = ['--key', 'mr_key'];

async function print(...args: string[]): Promise<string[]> {
  return (await printVerb(endpointsCommands, args)).trim().split('\n');
}

describe('the environment of a worker', () => {
  it('contains URL templates with a question mark, which RunPod workers do not add', async () => {
    const where = ['--url', 'https://q.example/', '--worker-id', 'pod-1', '--ping-seconds', '20'];

    expect(await print('env', 'image', '--runpod', ...KEY, ...where)).toEqual([
      'RUNPOD_WEBHOOK_GET_JOB=https://q.example/runpod/v2/image/job-take/$ID?',
      'RUNPOD_WEBHOOK_POST_OUTPUT=https://q.example/runpod/v2/image/job-done/$RUNPOD_POD_ID/$ID?',
      'RUNPOD_WEBHOOK_POST_STREAM=https://q.example/runpod/v2/image/job-stream/$RUNPOD_POD_ID/$ID?',
      'RUNPOD_WEBHOOK_PING=https://q.example/runpod/v2/image/ping/$RUNPOD_POD_ID?every=20000',
      'RUNPOD_PING_INTERVAL=20000',
      'RUNPOD_AI_API_KEY=mr_key',
      'RUNPOD_POD_ID=pod-1',
      'RUNPOD_ENDPOINT_ID=image',
    ]);
  });

  it('omits the checks of runpod-python on request', async () => {
    const variable = 'RUNPOD_SKIP_AUTO_SYSTEM_CHECKS=true';
    const terms = ['env', 'image', '--runpod', ...KEY];
    expect(await print(...terms, '--skip-system-checks')).toContain(variable);
    expect(await print(...terms)).not.toContain(variable);
  });

  it('names another worker each time', async () => {
    const named = async () => (await print('env', 'image', '--runpod', ...KEY)).at(-2);

    expect(await named()).toMatch(/^RUNPOD_POD_ID=image-[0-9a-f]{8}$/);
    expect(await named()).not.toBe(await named());
  });

  it('is that of a Millrace worker without --runpod', async () => {
    expect(await print('env', 'echo', ...KEY)).toEqual([
      'MILLRACE_URL=http://127.0.0.1:8000',
      'MILLRACE_ENDPOINT=echo',
      'MILLRACE_KEY=mr_key',
    ]);
  });

  it.each([
    [['env'], '<id> is missing; give the endpoint ID'],
    [['give', 'echo'], 'give: unknown command'],
    [['env', 'a/b'], 'a/b: not an endpoint ID'],
    [['env', 'echo', '--url', 'https://q/?a'], '--url: must be an http or https URL'],
    [['env', 'echo', '--runpod', '--worker-id', 'a/b'], '--worker-id: must be'],
  ])('is refused for %j', async (args, message) => {
    await expect(runVerb(endpointsCommands, [...args, ...KEY])).rejects.toThrow(message);
  });

  it('is refused without a key', async () => {
    await expect(runVerb(endpointsCommands, ['env', 'echo'])).rejects.toThrow(
      '--key KEY is required',
    );
  });
});

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

describe('a scaling decision', () => {
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

  it('says for whom workers gave way, and which were parked and woken', () => {
    const { now } = DECISION.input;
    const giveWay = [
      { worker: 'pod_1', to: 'image', since: now - 250, isTurnOver: false },
      { worker: 'pod_2', to: null, since: now - 9, isTurnOver: true },
    ];
    const input = { ...DECISION.input, giveWay };
    const lines = explainDecisions([{ ...DECISION, input, park: ['pod_1'], wake: ['pod_4'] }]);
    expect(lines.split('\n')).toEqual(
      expect.arrayContaining([
        '  gives way pod_1 (idle) to endpoint image, which has waited for 250 ms, pod_2 (its turn is over) to an endpoint of another user, which has waited for 9 ms',
        '  parked    pod_1',
        '  woken     pod_4',
      ]),
    );
  });

  it('says where the time of a start went', () => {
    const parts = { queueMs: 400, interpreterMs: 90, importMs: 3_000, setupMs: 5_010 };
    expect(explainDecisions([DECISION], new Map([['pod_2', parts]])).split('\n')).toContain(
      '  took      pod_2 8.5 s: queue 0.4 s, interpreter 0.09 s, import 3 s, setup 5.01 s',
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
});
