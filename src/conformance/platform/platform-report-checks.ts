// Checks how a platform handles reports: each is answered, applied once, and changes the job.
import { type ConformanceCheck, demandSame } from '../checks.ts';
import { chunksOf, completed, failed, outcomeOf, progressOf } from '../report-samples.ts';
import { demandRefusal, type PlatformStage, startJob } from './scripted-worker.ts';

export const reportChecks: ConformanceCheck<PlatformStage>[] = [
  {
    area: 'report',
    rule: 'applies a report once and answers a repeat as a duplicate',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      const report = outcomeOf(lease, 1, completed, '{"once":1}');
      demandSame(await worker.report(report), [{ answer: 'applied' }], 'the first answer');
      demandSame(await worker.report(report), [{ answer: 'duplicate' }], 'the second answer');
      const { output, status } = await stage.client.status(id);
      demandSame({ output, status }, { output: { once: 1 }, status: 'COMPLETED' }, 'the job');
    },
  },
  {
    area: 'report',
    rule: 'refuses a report with a gap before it and names the expected number',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      const early = await worker.report(outcomeOf(lease, 2, completed, '1'));
      demandSame(early, [{ answer: 'gap', expected: 1 }], 'the answer');
      demandSame((await stage.client.status(id)).status, 'IN_PROGRESS', 'the status');
    },
  },
  {
    area: 'report',
    rule: 'answers each report of a call separately, in order',
    async run(stage) {
      const { worker, lease } = await startJob(stage);
      const answers = await worker.report(
        progressOf(lease, 1, 0.1),
        progressOf(lease, 3, 0.3),
        progressOf(lease, 1, 0.1),
        progressOf({ ...lease, token: 'wrong' }, 2, 0),
        progressOf({ ...lease, jobId: 'nobody' }, 1, 0),
      );
      const words = answers.map(({ answer }) => answer);
      demandSame(words, ['applied', 'gap', 'duplicate', 'superseded', 'gone'], 'the answers');
    },
  },
  {
    area: 'chunks',
    rule: 'are readable in order while the job runs',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      await worker.report(chunksOf(lease, 1, 0, ['a', 'b']), chunksOf(lease, 2, 2, [{ c: 1 }]));
      await worker.report(outcomeOf(lease, 3, { ...completed, output: 'chunks' }));
      const outputs: unknown[] = [];
      for await (const { output } of stage.client.stream(id)) outputs.push(output);
      demandSame(outputs, ['a', 'b', { c: 1 }], 'the chunks');
    },
  },
  {
    area: 'chunks',
    rule: 'are rejected if one is larger than 1,000,000 bytes',
    async run(stage) {
      const { worker, lease } = await startJob(stage);
      const large = worker.report(chunksOf(lease, 1, 0, ['x'.repeat(1_000_000)]));
      await demandRefusal(large, 'invalid', 'a chunk of more than 1,000,000 bytes');
    },
  },
  {
    area: 'outcome',
    rule: 'of a failure without retry fails the job with its error',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      await worker.finish(lease, { ...failed, retry: 'never' });
      const { error, status } = await stage.client.status(id);
      demandSame(
        { status, message: error?.message },
        { status: 'FAILED', message: failed.error.message },
        'the job',
      );
    },
  },
  {
    area: 'outcome',
    rule: 'of a timeout ends the job as TIMED_OUT',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      const error = { code: 'execution_timeout', message: 'too long' } as const;
      await worker.finish(lease, { kind: 'timed_out', executionMs: 5, error, stopped: 'signal' });
      demandSame((await stage.client.status(id)).status, 'TIMED_OUT', 'the status');
    },
  },
  {
    area: 'outcome',
    rule: 'of a release requeues the job at once, without counting a failure',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      await worker.finish(lease, { kind: 'released', reason: 'drain' });
      const again = await worker.takeJob(id);
      demandSame(again.attempt, lease.attempt + 1, 'the attempt');
      await worker.finish(again, completed, '1');
      demandSame((await stage.client.status(id)).status, 'COMPLETED', 'the status');
    },
  },
];
