// A batch handler that does what its jobs ask: answers, streams, waits, throws, or ends its thread.
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type BatchContext,
  type BatchJob,
  defineBatchHandler,
} from '../../../src/handler/define.ts';

export interface BatchTask {
  n: number;
  /** The first job that asks for something decides for all. Default: answer. */
  do?:
    | 'exit'
    | 'throw'
    | 'uncaught'
    | 'spin'
    | 'hang'
    | 'fail'
    | 'wait'
    | 'outlast'
    | 'stream'
    | 'speak';
  ms?: number;
  /** Written by `spin` before it spins. */
  file?: string;
}

type TaskJob = BatchJob<BatchTask>;

async function act(jobs: readonly TaskJob[], ctx: BatchContext): Promise<unknown[]> {
  for (const job of jobs) {
    // Tests wait for the start of the batch.
    job.progress({ size: jobs.length, with: jobs.map(({ input }) => input.n) });
  }
  for (const job of jobs) {
    switch (job.input.do) {
      case 'exit':
        await sleep(20);
        return process.exit(7);
      case 'throw':
        throw new Error(`cannot do ${job.input.n}`);
      case 'uncaught':
        setTimeout(() => {
          throw new Error(`late error of ${job.input.n}`);
        }, 1);
        await sleep(10_000);
        break;
      case 'spin':
        if (job.input.file) writeFileSync(job.input.file, '');
        for (;;);
      case 'hang':
        await new Promise(() => {});
        break;
      case 'fail':
        ctx.fail(job, new Error(`not ${job.input.n}`));
        break;
      case 'wait':
        await sleep(job.input.ms ?? 60_000, undefined, { signal: ctx.signal });
        break;
      case 'outlast':
        // Ends once the first job has been stopped.
        if (jobs[0]?.signal.aborted === false) await once(jobs[0].signal, 'abort');
        break;
      case 'speak':
        console.log('from the batch');
        ctx.log.info('by its log');
        job.log.info('by the job');
    }
  }
  return jobs.map(({ input }) => ({ n: input.n, size: jobs.length }));
}

async function* stream(jobs: readonly TaskJob[]) {
  for (let turn = 0; turn < 20; turn++) {
    for (const job of jobs) yield { job, output: job.input.n * 100 + turn };
    await sleep(1);
  }
}

export default defineBatchHandler({
  input: {
    '~standard': {
      version: 1,
      vendor: 'test',
      validate: (value) => {
        // The tests send nothing else.
        const task = value as BatchTask;
        return typeof task.n === 'number'
          ? { value: task }
          : { issues: [{ message: 'n is missing' }] };
      },
      types: undefined as { input: BatchTask; output: BatchTask } | undefined,
    },
  },
  batch: { maxSize: 4, maxWaitMs: 30 },
  run: (jobs, ctx): Promise<unknown[]> | ReturnType<typeof stream> =>
    jobs.some(({ input }) => input.do === 'stream') ? stream(jobs) : act(jobs, ctx),
});
