// What a worker has to do on a platform of RunPod's protocol. They run in this order: the last ones have
// the worker leave.

import { listYields } from '../check-inputs.ts';
import { type Check, demand, demandSame, NotApplicable } from '../checks.ts';
import { runPodLeavingChecks } from './leaving-checks.ts';
import { PING_MS, type RunPodStand, readMember } from './stand.ts';

const SOON_MS = 15_000;
const MAX_CHUNK_BYTES = 1_000_000;
/** The least that is no hammering. */
const LEAST_PAUSE_MS = 500;

/** A handler that is a generator yields its value: it is posted as the only chunk then. */
async function demandOutput(stand: RunPodStand, id: string, value: unknown): Promise<void> {
  const { body, query } = await stand.result(id, SOON_MS);
  const returned = readMember(body, 'output');
  const isYielded = query.get('isStream') === 'true' && isEmptyArray(returned);
  if (isYielded) demandSame(listOutputs(stand, id), [value], 'the posted outputs');
  else demandSame(returned, value, 'the output');
  demandSame(readMember(body, 'error'), undefined, 'the error');
}

function listOutputs(stand: RunPodStand, id: string): unknown[] {
  return stand.of('job-stream', id).map(({ body }) => readMember(body, 'output'));
}

function isEmptyArray(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0;
}

const work: Check<RunPodStand>[] = [
  {
    area: 'take',
    rule: 'asks for jobs by GET, as its pod, with the bare key',
    isBasic: true,
    async run(stand) {
      const take = await stand.until(SOON_MS, 'no take came', () => stand.of('job-take')[0]);
      const { key, method, pod } = take;
      const { RUNPOD_AI_API_KEY, RUNPOD_POD_ID } = stand.environment;
      demandSame(
        { method, pod, key },
        { method: 'GET', pod: RUNPOD_POD_ID, key: RUNPOD_AI_API_KEY },
        'the take',
      );
    },
  },
  {
    area: 'done',
    rule: 'posts what the handler returned or yielded, once',
    isBasic: true,
    async run(stand) {
      const value = { text: 'ä "\\ 😀', list: [1, -2.5e-3, null, true, []] };
      const id = stand.submit({ do: 'echo', value });
      await demandOutput(stand, id, value);
      await demandOutput(stand, stand.submit({ do: 'echo', value: 1 }), 1);
      demandSame(stand.results(id).length, 1, 'the results');
    },
  },
  {
    area: 'ping',
    rule: 'pings in its interval, with the ids of the jobs that run',
    async run(stand) {
      const id = stand.submit({ do: 'echo', value: 1, ms: 3.5 * PING_MS });
      await stand.result(id, SOON_MS);
      const naming = stand.of('ping').filter(({ query }) => {
        return query.getAll('job_id').some((ids) => ids.split(',').includes(id));
      });
      demand(naming.length >= 2, `${naming.length} pings named a job that ran for 3.5 intervals`);
    },
  },
  {
    area: 'stream',
    rule: 'posts what a generator yields in its order, then the end',
    async run(stand) {
      const size = { count: 40, bytes: 8 };
      const id = stand.submit({ do: 'stream', ...size });
      const end = await stand.result(id, SOON_MS);
      demandSame(listOutputs(stand, id), listYields(size), 'the posted outputs');
      demandSame(end.query.get('isStream'), 'true', 'isStream of the end');
    },
  },
  {
    area: 'stream',
    rule: 'posts at most 1,000,000 bytes at a time: a larger value goes in pieces',
    async run(stand) {
      const size = { count: 2, bytes: 2_500_000 };
      const id = stand.submit({ do: 'stream', ...size });
      const { body } = await stand.result(id, SOON_MS);
      demandSame(readMember(body, 'error'), undefined, 'the error');
      const texts = stand
        .of('job-stream', id)
        .map((post) => JSON.stringify(readMember(post.body, 'output')) ?? '');
      const largest = Math.max(0, ...texts.map((text) => Buffer.byteLength(text)));
      demand(largest <= MAX_CHUNK_BYTES, `an output of ${largest} bytes was posted at a time`);
      // How the pieces are told from whole values is the worker's own matter.
      const letters = texts.reduce((sum, text) => sum + text.split('x').length - 1, 0);
      const wanted = size.count * size.bytes;
      demand(letters >= wanted, `of ${wanted} letters ${letters} were posted`);
    },
  },
  {
    area: 'error',
    rule: 'posts an error that is a string, with what the handler threw',
    async run(stand) {
      const { body } = await stand.result(
        stand.submit({ do: 'fail', message: 'as told' }),
        SOON_MS,
      );
      const error = readMember(body, 'error');
      demand(typeof error === 'string', `the error is ${JSON.stringify(error)}, no string`);
      demand(error.includes('as told'), `the message is not in it: ${error}`);
    },
  },
];

const faults: Check<RunPodStand>[] = [
  {
    area: 'done',
    rule: 'repeats a result that was answered 500',
    async run(stand) {
      stand.disturb({ route: 'job-done', status: 500 });
      await demandOutput(stand, stand.submit({ do: 'echo', value: 'again' }), 'again');
    },
  },
  {
    area: 'done',
    rule: 'repeats a result whose connection was cut',
    async run(stand) {
      stand.disturb({ route: 'job-done', status: 'reset' });
      await demandOutput(stand, stand.submit({ do: 'echo', value: 'again' }), 'again');
    },
  },
  {
    area: 'done',
    rule: 'repeats a result that was answered 429',
    async run(stand) {
      stand.disturb({ route: 'job-done', status: 429 });
      await demandOutput(stand, stand.submit({ do: 'echo', value: 'again' }), 'again');
    },
  },
  {
    area: 'stream',
    rule: 'repeats a chunk whose connection was cut, and keeps the order',
    async run(stand) {
      stand.disturb({ route: 'job-stream', status: 'reset' });
      const size = { count: 10, bytes: 8 };
      const id = stand.submit({ do: 'stream', ...size });
      await stand.result(id, SOON_MS);
      const heard = stand.of('job-stream', id).filter(({ isRefused }) => !isRefused);
      demandSame(
        heard.map(({ body }) => readMember(body, 'output')),
        listYields(size),
        'the outputs',
      );
    },
  },
  {
    area: 'pace',
    rule: 'waits before it asks again after 429, and after 500',
    async run(stand) {
      for (const status of [429, 500]) {
        const count = stand.of('job-take').length;
        stand.disturb({ route: 'job-take', status });
        const refused = await stand.until(SOON_MS, 'no take came', () =>
          stand
            .of('job-take')
            .slice(count)
            .find(({ isRefused }) => isRefused),
        );
        const next = await stand.until(SOON_MS, 'no take came after that', () =>
          stand.of('job-take').find(({ at, isRefused }) => !isRefused && at >= refused.at),
        );
        const gapMs = next.at - refused.at;
        demand(
          gapMs >= LEAST_PAUSE_MS || status !== 429,
          `${gapMs} ms after ${status} it asked again`,
        );
        demand(gapMs >= 20, `${gapMs} ms after ${status} it asked again`);
      }
    },
  },
];

const stopping: Check<RunPodStand>[] = [
  {
    area: 'stop',
    rule: 'ends a job that is to be stopped, and takes on',
    async run(stand) {
      if (stand.of('job-stop').length === 0) throw new NotApplicable('it does not ask for stops');
      const id = stand.submit({ do: 'hang' });
      const { at } = await stand.until(SOON_MS, 'no ping named the job', () =>
        stand.of('ping').find(({ query }) => query.get('job_id')?.includes(id)),
      );
      stand.stop(id);
      await stand.until(SOON_MS, 'pings still named the job', () =>
        stand.of('ping').find((ping) => {
          return ping.at > at + PING_MS && !(ping.query.get('job_id') ?? '').includes(id);
        }),
      );
      await demandOutput(stand, stand.submit({ do: 'echo', value: 'next' }), 'next');
    },
  },
];

export const runPodWorkerChecks: readonly Check<RunPodStand>[] = [
  ...work,
  ...faults,
  ...stopping,
  ...runPodLeavingChecks,
];
