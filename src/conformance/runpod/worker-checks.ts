// Checks a worker of RunPod's protocol. The order matters: the last checks end the worker,
// which must lose no job.
import {
  type ConformanceCheck,
  Deviation,
  demand,
  demandCleanExit,
  demandSame,
  listYields,
  NotApplicable,
  within,
} from '../checks.ts';
import { PING_MS, type RecordedRequest, type RunPodStand, readMember } from './stand.ts';

const SOON_MS = 15_000;
const MAX_CHUNK_BYTES = 1_000_000;
/** A worker that repeats a call sooner would flood the platform. */
const LEAST_PAUSE_MS = 500;
/** A second process may have to load a model first. */
const START_MS = 60_000;
const EXIT_MS = 120_000;
/** Time for a process to handle a signal. */
const SIGNAL_MS = 300;
/** Time for the last data of an exited process to arrive. */
const LAST_DATA_MS = 500;

/** A generator handler yields the value, so the worker posts it as the only chunk. */
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

const work: ConformanceCheck<RunPodStand>[] = [
  {
    area: 'take',
    rule: 'requests jobs with GET, the ID of its pod and the bare key',
    isBasic: true,
    async run(stand) {
      const take = await stand.until(
        SOON_MS,
        'the worker sent no take',
        () => stand.of('job-take')[0],
      );
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
    rule: 'posts once what the handler returned or yielded',
    isBasic: true,
    async run(stand) {
      const value = { text: 'ä "\\ 😀', list: [1, -2.5e-3, null, true, []] };
      const id = stand.submit({ do: 'echo', value });
      await demandOutput(stand, id, value);
      await demandOutput(stand, stand.submit({ do: 'echo', value: 1 }), 1);
      demandSame(stand.results(id).length, 1, 'the number of results');
    },
  },
  {
    area: 'ping',
    rule: 'pings at its interval, with the IDs of the running jobs',
    async run(stand) {
      const id = stand.submit({ do: 'echo', value: 1, ms: 3.5 * PING_MS });
      await stand.result(id, SOON_MS);
      const naming = stand.of('ping').filter(({ query }) => {
        return query.getAll('job_id').some((ids) => ids.split(',').includes(id));
      });
      demand(
        naming.length >= 2,
        `only ${naming.length} pings named a job that ran for 3.5 intervals`,
      );
    },
  },
  {
    area: 'stream',
    rule: 'posts what a generator yields in order, then the result',
    async run(stand) {
      const size = { count: 40, bytes: 8 };
      const id = stand.submit({ do: 'stream', ...size });
      const end = await stand.result(id, SOON_MS);
      demandSame(listOutputs(stand, id), listYields(size), 'the posted outputs');
      demandSame(end.query.get('isStream'), 'true', 'isStream of the result');
    },
  },
  {
    area: 'stream',
    rule: 'posts at most 1,000,000 bytes at a time; a larger value is split',
    async run(stand) {
      const size = { count: 2, bytes: 2_500_000 };
      const id = stand.submit({ do: 'stream', ...size });
      const { body } = await stand.result(id, SOON_MS);
      demandSame(readMember(body, 'error'), undefined, 'the error');
      const texts = stand
        .of('job-stream', id)
        .map((post) => JSON.stringify(readMember(post.body, 'output')) ?? '');
      const largest = Math.max(0, ...texts.map((text) => Buffer.byteLength(text)));
      demand(largest <= MAX_CHUNK_BYTES, `one post has an output of ${largest} bytes`);
      // How the worker marks pieces of a value is up to the worker.
      const letters = texts.reduce((sum, text) => sum + text.split('x').length - 1, 0);
      const wanted = size.count * size.bytes;
      demand(letters >= wanted, `only ${letters} of ${wanted} letters were posted`);
    },
  },
  {
    area: 'error',
    rule: 'posts the error of a handler as a string',
    async run(stand) {
      const { body } = await stand.result(
        stand.submit({ do: 'fail', message: 'the thrown message' }),
        SOON_MS,
      );
      const error = readMember(body, 'error');
      demand(typeof error === 'string', `the error is not a string: ${JSON.stringify(error)}`);
      demand(
        error.includes('the thrown message'),
        `the error does not contain the thrown message: ${error}`,
      );
    },
  },
];

const faults: ConformanceCheck<RunPodStand>[] = [
  {
    area: 'done',
    rule: 'repeats a result that was answered with 500',
    async run(stand) {
      stand.disturb({ route: 'job-done', status: 500 });
      await demandOutput(stand, stand.submit({ do: 'echo', value: 'again' }), 'again');
    },
  },
  {
    area: 'done',
    rule: 'repeats a result whose connection broke',
    async run(stand) {
      stand.disturb({ route: 'job-done', status: 'reset' });
      await demandOutput(stand, stand.submit({ do: 'echo', value: 'again' }), 'again');
    },
  },
  {
    area: 'done',
    rule: 'repeats a result that was answered with 429',
    async run(stand) {
      stand.disturb({ route: 'job-done', status: 429 });
      await demandOutput(stand, stand.submit({ do: 'echo', value: 'again' }), 'again');
    },
  },
  {
    area: 'stream',
    rule: 'repeats a chunk whose connection broke, and keeps the order',
    async run(stand) {
      stand.disturb({ route: 'job-stream', status: 'reset' });
      const size = { count: 10, bytes: 8 };
      const id = stand.submit({ do: 'stream', ...size });
      await stand.result(id, SOON_MS);
      const accepted = stand.of('job-stream', id).filter(({ isRefused }) => !isRefused);
      demandSame(
        accepted.map(({ body }) => readMember(body, 'output')),
        listYields(size),
        'the outputs',
      );
    },
  },
  {
    area: 'pace',
    rule: 'waits before it requests jobs again after 429 and 500',
    async run(stand) {
      for (const status of [429, 500]) {
        const count = stand.of('job-take').length;
        stand.disturb({ route: 'job-take', status });
        const refused = await stand.until(SOON_MS, 'the worker sent no take', () =>
          stand
            .of('job-take')
            .slice(count)
            .find(({ isRefused }) => isRefused),
        );
        const next = await stand.until(SOON_MS, 'the worker did not repeat the take', () =>
          stand.of('job-take').find(({ at, isRefused }) => !isRefused && at >= refused.at),
        );
        const gapMs = next.at - refused.at;
        demand(
          gapMs >= LEAST_PAUSE_MS || status !== 429,
          `the worker repeated the take ${gapMs} ms after a ${status}`,
        );
        demand(gapMs >= 20, `the worker repeated the take ${gapMs} ms after a ${status}`);
      }
    },
  },
];

const stopping: ConformanceCheck<RunPodStand>[] = [
  {
    area: 'stop',
    rule: 'ends a stopped job, and takes new jobs',
    async run(stand) {
      if (stand.of('job-stop').length === 0)
        throw new NotApplicable('the worker does not poll job-stop');
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

const exits: ConformanceCheck<RunPodStand>[] = [
  {
    area: 'drain',
    rule: 'completes the running job after SIGTERM and posts its result',
    async run(stand) {
      const { exitCode, terminate } = stand.options;
      const id = stand.submit({ do: 'echo', value: 'last', ms: 2_500 });
      // SIGTERM even if the job is never taken: the next checks wait for the exit.
      await stand.handedOut(id, SOON_MS).finally(terminate);
      const end = await findEnd(stand, id, exitCode);
      if (!end)
        throw new Deviation("the worker's process exited without posting a result of the job");
      demandSame(readMember(end.body, 'output'), 'last', 'the output');
    },
  },
  {
    area: 'drain',
    rule: 'exits with code 0',
    run: ({ options }) => demandCleanExit(options, EXIT_MS),
  },
  {
    area: 'drain',
    rule: 'runs a job that arrives after SIGTERM, or returns it with an error',
    async run(stand) {
      const { exitCode, startAnother } = stand.options;
      if (!exitCode || !startAnother) {
        throw new NotApplicable('this command did not start the worker');
      }
      await within(EXIT_MS, 'the previous process did not exit', exitCode);
      const count = stand.of('job-take').length;
      const another = startAnother();
      // The SIGTERM must come while the process waits for a job.
      await stand.until(START_MS, 'the second process sent no take', () => {
        return stand.of('job-take')[count];
      });
      another.terminate();
      await new Promise((resolve) => setTimeout(resolve, SIGNAL_MS));
      const id = stand.submit({ do: 'echo', value: 'late' });
      const end = await findEnd(stand, id, another.exitCode);
      if (!end) {
        if (!stand.isHandedOut(id)) return;
        throw new Deviation('the worker took the job and exited without posting a result');
      }
      if (typeof readMember(end.body, 'error') === 'string') return;
      demandSame(readMember(end.body, 'output'), 'late', 'the output');
    },
  },
];

export const runPodWorkerChecks: readonly ConformanceCheck<RunPodStand>[] = [
  ...work,
  ...faults,
  ...stopping,
  ...exits,
];

/**
 * Returns the job's result; undefined if the process exited without posting one. @throws Deviation
 */
async function findEnd(
  stand: RunPodStand,
  id: string,
  exitCode: Promise<number | null> | undefined,
): Promise<RecordedRequest | undefined> {
  let isGone = false;
  void exitCode?.then(async () => {
    await new Promise((resolve) => setTimeout(resolve, LAST_DATA_MS));
    isGone = true;
    stand.check();
  });
  const end = await stand.until(EXIT_MS, 'no result was posted', () => {
    return stand.results(id)[0] ?? (isGone ? 'gone' : undefined);
  });
  return end === 'gone' ? undefined : end;
}
