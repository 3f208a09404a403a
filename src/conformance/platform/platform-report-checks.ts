// What a platform has to do with reports: each answered, applied once, and with its effect on the job.
import { type Check, demandSame } from '../checks.ts';
import { chunksOf, completed, failed, outcomeOf, progressOf } from '../words.ts';
import { demandRefusal, meet, type PlatformStage } from './scripted-worker.ts';

export const reportChecks: Check<PlatformStage>[] = [
  {
    area: 'report',
    rule: 'applies a report once and calls it a duplicate after that',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      const report = outcomeOf(lease, 1, completed, '{"once":1}');
      demandSame(await hand.report(report), [{ answer: 'applied' }], 'the first answer');
      demandSame(await hand.report(report), [{ answer: 'duplicate' }], 'the second answer');
      const { output, status } = await stage.client.status(id);
      demandSame({ output, status }, { output: { once: 1 }, status: 'COMPLETED' }, 'the job');
    },
  },
  {
    area: 'report',
    rule: 'refuses what comes before its turn, and names the number that is missing',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      const early = await hand.report(outcomeOf(lease, 2, completed, '1'));
      demandSame(early, [{ answer: 'gap', expected: 1 }], 'the answer');
      demandSame((await stage.client.status(id)).status, 'IN_PROGRESS', 'the status');
    },
  },
  {
    area: 'report',
    rule: 'answers each report of a call for itself, in their order',
    async run(stage) {
      const { hand, lease } = await meet(stage);
      const answers = await hand.report(
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
    rule: 'can be read in their order while the job runs',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      await hand.report(chunksOf(lease, 1, 0, ['a', 'b']), chunksOf(lease, 2, 2, [{ c: 1 }]));
      await hand.report(outcomeOf(lease, 3, { ...completed, output: 'chunks' }));
      const outputs: unknown[] = [];
      for await (const { output } of stage.client.stream(id)) outputs.push(output);
      demandSame(outputs, ['a', 'b', { c: 1 }], 'the chunks');
    },
  },
  {
    area: 'chunks',
    rule: 'are refused when one is larger than 1,000,000 bytes',
    async run(stage) {
      const { hand, lease } = await meet(stage);
      const large = hand.report(chunksOf(lease, 1, 0, ['x'.repeat(1_000_000)]));
      await demandRefusal(large, 'invalid', 'a chunk of more than 1,000,000 bytes');
    },
  },
  {
    area: 'outcome',
    rule: 'of a failure that is not to be retried ends the job, with its error',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      await hand.finish(lease, { ...failed, retry: 'never' });
      const { error, status } = await stage.client.status(id);
      demandSame(
        { status, message: error?.message },
        { status: 'FAILED', message: 'as it was told' },
        'the job',
      );
    },
  },
  {
    area: 'outcome',
    rule: 'of a timeout ends the job as TIMED_OUT',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      const error = { code: 'execution_timeout', message: 'too long' } as const;
      await hand.finish(lease, { kind: 'timed_out', executionMs: 5, error, stopped: 'signal' });
      demandSame((await stage.client.status(id)).status, 'TIMED_OUT', 'the status');
    },
  },
  {
    area: 'outcome',
    rule: 'of a release gives the job back at once, without counting it',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      await hand.finish(lease, { kind: 'released', reason: 'drain' });
      const again = await hand.takeJob(id);
      demandSame(again.attempt, lease.attempt + 1, 'the attempt');
      await hand.finish(again, completed, '1');
      demandSame((await stage.client.status(id)).status, 'COMPLETED', 'the status');
    },
  },
];
