// What a platform of RunPod's protocol has to do for the workers that are known to speak it.
import { type Check, demand, demandSame, within } from '../checks.ts';
import { readMember } from './stand.ts';
import { type RunPodVisit, readJob } from './visit.ts';

const AT_ONCE_MS = 5_000;

const checks: Check<RunPodVisit>[] = [
  {
    area: 'take',
    rule: 'gives a job with its id and its input',
    isBasic: true,
    async run(visit) {
      const input = { text: 'ä "\\ 😀', list: [1, null] };
      await visit.submit(input);
      demandSame((await visit.take()).input, input, 'the input');
    },
  },
  {
    area: 'take',
    rule: 'is answered the moment a job comes',
    async run(visit) {
      const take = visit.take();
      await new Promise((resolve) => setTimeout(resolve, 300));
      await visit.submit();
      await within(AT_ONCE_MS, 'the take was not answered', take);
    },
  },
  {
    area: 'take',
    rule: 'reads parameters behind "&" without a "?" before them',
    async run(visit) {
      await visit.submit();
      const { body, status } = await visit.worker('GET', 'job-take', '&job_in_progress=0');
      demandSame(status, 200, 'the status');
      readJob(body);
    },
  },
  {
    area: 'take',
    rule: 'gives several jobs as an array, no more than asked for',
    async run(visit) {
      for (let count = 0; count < 3; count++) await visit.submit();
      const query = '?batch_size=2&job_in_progress=0';
      const { body, status } = await visit.worker('GET', 'job-take-batch', query);
      demandSame(status, 200, 'the status');
      demand(Array.isArray(body), 'the answer is no array');
      demand(body.length >= 1 && body.length <= 2, `${body.length} jobs came`);
      for (const job of body) readJob(job);
    },
  },
  {
    area: 'access',
    rule: 'lets nobody in with a wrong key',
    async run(visit) {
      const { status } = await visit.worker('GET', 'ping', '', { key: 'wrong' });
      demand(status === 401 || status === 403, `it is answered ${status}`);
    },
  },
  {
    area: 'done',
    rule: 'completes the job with its output, whatever the media type says',
    async run(visit) {
      const id = await visit.submit();
      const job = await visit.take();
      const output = { text: 'héllo ✓', list: [1] };
      demandSame((await visit.done(job.id, { output })).status, 200, 'the status');
      demandSame(readMember(await visit.until(id, 'COMPLETED'), 'output'), output, 'the output');
    },
  },
  {
    area: 'done',
    rule: 'reads parameters behind "&" without a "?" before them',
    async run(visit) {
      const id = await visit.submit();
      const job = await visit.take();
      const tail = `/${job.id}&isStream=false`;
      const { status } = await visit.worker('POST', 'job-done', tail, { body: { output: 1 } });
      demandSame(status, 200, 'the status');
      await visit.until(id, 'COMPLETED');
    },
  },
  {
    area: 'done',
    rule: 'answers 200 when a result is repeated, and the first one counts',
    async run(visit) {
      const id = await visit.submit();
      const job = await visit.take();
      for (const output of ['first', 'second']) {
        demandSame((await visit.done(job.id, { output })).status, 200, 'the status');
      }
      demandSame(readMember(await visit.until(id, 'COMPLETED'), 'output'), 'first', 'the output');
    },
  },
  {
    area: 'done',
    rule: 'answers 200 to a result of a job that was cancelled: these workers drop it anyhow',
    async run(visit) {
      const id = await visit.submit();
      const job = await visit.take();
      await visit.client('POST', `cancel/${id}`, {});
      demandSame((await visit.done(job.id, { output: 1 })).status, 200, 'the status');
      await visit.until(id, 'CANCELLED');
    },
  },
  {
    area: 'done',
    rule: 'takes stopPod beside a result',
    async run(visit) {
      const id = await visit.submit();
      const job = await visit.take();
      const { status } = await visit.done(job.id, { output: 1, stopPod: true });
      demandSame(status, 200, 'the status');
      await visit.until(id, 'COMPLETED');
    },
  },
  {
    area: 'progress',
    rule: 'is no end: a result with the status IN_PROGRESS leaves the job running',
    async run(visit) {
      const id = await visit.submit();
      const job = await visit.take();
      const { status } = await visit.done(job.id, { status: 'IN_PROGRESS', output: '10%' });
      demandSame(status, 200, 'the status');
      await visit.until(id, 'IN_PROGRESS');
      await visit.done(job.id, { output: 'end' });
      demandSame(readMember(await visit.until(id, 'COMPLETED'), 'output'), 'end', 'the output');
    },
  },
  {
    area: 'stream',
    rule: 'keeps what is posted in its order, to be read by clients',
    async run(visit) {
      const id = await visit.submit();
      const job = await visit.take();
      for (const output of ['a', { b: 1 }, 'c']) {
        const tail = `/${job.id}?isStream=false`;
        const { status } = await visit.worker('POST', 'job-stream', tail, { body: { output } });
        demandSame(status, 200, 'the status');
      }
      await visit.done(job.id, { output: [] }, 'true');
      const { body } = await visit.client('GET', `stream/${id}`);
      const stream = readMember(body, 'stream');
      demand(Array.isArray(stream), 'the answer has no array "stream"');
      const outputs = stream.map((chunk) => readMember(chunk, 'output'));
      demandSame(outputs, ['a', { b: 1 }, 'c'], 'the chunks');
      await visit.until(id, 'COMPLETED');
    },
  },
  {
    area: 'error',
    rule: 'fails the job, with the string that was posted as its error',
    async run(visit) {
      const id = await visit.submit();
      // It may be tried again, as often as the endpoint has it.
      for (let attempt = 0; attempt < 3; attempt++) {
        const job = await within(30_000, 'the job was not given again', visit.take());
        const error = JSON.stringify({ error_type: 'RuntimeError', error_message: 'as told' });
        demandSame((await visit.done(job.id, { error })).status, 200, 'the status');
        const { body } = await visit.client('GET', `status/${id}`);
        if (readMember(body, 'status') === 'FAILED') break;
      }
      const error = readMember(await visit.until(id, 'FAILED'), 'error');
      demand(JSON.stringify(error)?.includes('as told') ?? false, `the error is ${error}`);
    },
  },
  {
    area: 'ping',
    rule: 'is answered 200, with and without jobs',
    async run(visit) {
      demandSame((await visit.worker('GET', 'ping', '')).status, 200, 'the status without jobs');
      await visit.submit();
      const { id } = await visit.take();
      const { status } = await visit.worker('GET', 'ping', `?job_id=${id}&runpod_version=1.12.0`);
      demandSame(status, 200, 'the status with a job');
    },
  },
  {
    area: 'stop',
    rule: 'names a cancelled job at once, by the id that it was given by',
    async run(visit) {
      const id = await visit.submit();
      const job = await visit.take();
      const stop = visit.worker('GET', 'job-stop', '');
      await new Promise((resolve) => setTimeout(resolve, 200));
      await visit.client('POST', `cancel/${id}`, {});
      const { body } = await within(AT_ONCE_MS, 'the poll was not answered', stop);
      demandSame(readMember(body, 'jobsToStop'), [job.id], 'the jobs to stop');
    },
  },
];

export const runPodPlatformChecks: readonly Check<RunPodVisit>[] = checks.map((check) => ({
  ...check,
  run: (visit) => visit.enter(async () => check.run(visit)),
}));
