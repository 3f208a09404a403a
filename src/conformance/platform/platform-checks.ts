// Checks a Millrace platform: one check for each rule of docs/protocol.md that a worker can
// observe. Each check cleans up after itself; some wait in real time for leases to expire.

import type { Lease } from '../../wire/link/worker-link.ts';
import { begin, type ConformanceCheck, demand, demandSame, within } from '../checks.ts';
import { leaseChecks } from './platform-lease-checks.ts';
import {
  chunksOf,
  completed,
  connectWorker,
  demandRefusal,
  failed,
  outcomeOf,
  type PlatformStage,
  progressOf,
  ScriptedWorker,
  startJob,
  submit,
  supportedReports,
} from './scripted-worker.ts';

const hellos: ConformanceCheck<PlatformStage>[] = [
  {
    area: 'hello',
    rule: 'returns consistent durations',
    isBasic: true,
    async run(stage) {
      const worker = new ScriptedWorker(stage.link);
      stage.workers.push(worker);
      stage.terms = await worker.hello();
      const { leaseMs, renewEveryMs, takeWaitMs } = stage.terms;
      demand(
        renewEveryMs > 0 && takeWaitMs > 0,
        `renewEveryMs is ${renewEveryMs} and takeWaitMs ${takeWaitMs}; both must be positive`,
      );
      demand(
        leaseMs > renewEveryMs,
        `leaseMs ${leaseMs} is not greater than renewEveryMs ${renewEveryMs}`,
      );
    },
  },
  {
    area: 'hello',
    rule: 'ignores unknown members',
    async run(stage) {
      await new ScriptedWorker(stage.link).hello({ mood: 'good' });
    },
  },
  {
    area: 'hello',
    rule: 'rejects an unknown protocol version and names it',
    async run(stage) {
      const hello = new ScriptedWorker(stage.link).hello({ protocol: 99 });
      await demandRefusal(hello, 'invalid', 'a hello with protocol 99', /99/);
    },
  },
  {
    area: 'hello',
    rule: 'rejects a worker with an unknown requirement and names the requirement',
    async run(stage) {
      const hello = new ScriptedWorker(stage.link).hello({ requires: ['telepathy'] });
      await demandRefusal(hello, 'invalid', 'a hello with an unknown requirement', /telepathy/);
    },
  },
  {
    area: 'access',
    rule: 'rejects a wrong key',
    async run(stage) {
      await demandRefusal(
        new ScriptedWorker(stage.wrongKeyLink).hello(),
        'unauthorized',
        'a hello with a wrong key',
      );
    },
  },
  {
    area: 'hello',
    rule: 'is required before any other call',
    async run(stage) {
      const worker = new ScriptedWorker(stage.link);
      await demandRefusal(worker.take(), 'unknown_worker', 'a take without hello');
      await demandRefusal(worker.renew([]), 'unknown_worker', 'a renewal without hello');
      await demandRefusal(worker.report(), 'unknown_worker', 'a report without hello');
    },
  },
  {
    area: 'incarnation',
    rule: 'rejects the calls of a process after a newer one has said hello',
    async run(stage) {
      const old = await connectWorker(stage, { incarnation: 1 });
      await connectWorker(stage, { id: old.id, incarnation: 2 });
      await demandRefusal(old.take(), 'stale_incarnation', 'a take of the older process');
      await demandRefusal(old.renew([]), 'stale_incarnation', 'a renewal of the older process');
      await demandRefusal(old.report(), 'stale_incarnation', 'a report of the older process');
      await demandRefusal(old.hello(), 'stale_incarnation', 'a hello of the older process');
      await demandRefusal(old.bye('drained'), 'stale_incarnation', 'a bye of the older process');
    },
  },
  {
    area: 'incarnation',
    rule: 'keeps jobs in the outbox for the newer process and requeues the others',
    async run(stage) {
      const [kept, lost] = [await submit(stage), await submit(stage)];
      const old = await connectWorker(stage, { incarnation: 1 });
      const first = await old.takeJob(kept);
      await old.renew([first, await old.takeJob(lost)]);
      const next = new ScriptedWorker(stage.link, { id: old.id, incarnation: 2 });
      stage.workers.push(next);
      const { attempt, jobId, token } = first;
      await next.hello({ outbox: [{ attempt, jobId, token }] });
      const other = await connectWorker(stage);
      demandSame((await other.takeJob(lost)).attempt, 2, 'the attempt of the other job');
      demandSame(
        (await next.finish(first, completed, '"kept"'))?.answer,
        'applied',
        'the answer to the outcome',
      );
      demandSame((await stage.client.status(kept)).output, 'kept', 'the output');
    },
  },
];

const takes: ConformanceCheck<PlatformStage>[] = [
  {
    area: 'take',
    rule: 'waits for the requested time, then returns no leases',
    async run(stage) {
      const { answerMs, now, pass } = stage.time;
      const worker = await connectWorker(stage);
      const at = now();
      const take = begin(
        worker.take({ waitMs: 500 }).then((leases) => ({ leases, ms: now() - at })),
      );
      await pass(500);
      const { leases, ms } = await within(answerMs, 'the take was not answered', take);
      demandSame(leases, [], 'the leases');
      demand(ms >= 400, `the take was answered after ${ms} ms instead of 500 ms`);
    },
  },
  {
    area: 'take',
    rule: 'returns a job as soon as it is submitted, with its exact input',
    async run(stage) {
      const worker = await connectWorker(stage);
      const waitMs = Math.min(stage.terms.takeWaitMs, 10_000);
      const take = begin(worker.take({ waitMs }));
      await stage.time.pass(200);
      const input = { text: 'ä "\\ 😀', list: [1, -2.5e-3, null] };
      const id = await submit(stage, input);
      const [lease] = await within(stage.time.answerMs, 'the take was not answered', take);
      demand(lease !== undefined && lease.jobId === id, 'the answer does not contain the job');
      demandSame(lease.attempt, 1, 'the attempt');
      demandSame(JSON.parse(Buffer.from(lease.input).toString()), input, 'the input');
    },
  },
  {
    area: 'take',
    rule: 'returns the same leases for the same takeId',
    async run(stage) {
      const id = await submit(stage);
      const worker = await connectWorker(stage);
      const takeId = `again-${worker.id}`;
      const first = await worker.takeJob(id, { takeId });
      const again = await worker.take({ takeId, held: [] });
      demandSame(again.map(showLease), [showLease(first)], 'the leases');
    },
  },
  {
    area: 'take',
    rule: 'revokes a lease that the next take does not name, without counting a failure',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      const again = await worker.takeJob(id, { held: [] });
      demandSame(again.attempt, lease.attempt + 1, 'the attempt');
      demand(again.token !== lease.token, 'the new lease has the token of the old one');
    },
  },
  {
    area: 'take',
    rule: 'returns at most the requested number of jobs, in queue order',
    async run(stage) {
      const ids = [await submit(stage), await submit(stage), await submit(stage)];
      const leases = await (await connectWorker(stage)).take({ max: 2, waitMs: 2_000 });
      demandSame(
        leases.map(({ jobId }) => jobId),
        ids.slice(0, 2),
        'the jobs',
      );
    },
  },
  {
    area: 'take',
    rule: 'carries inputs and outputs of 5 MB',
    async run(stage) {
      const text = 'ü'.repeat(2_500_000);
      const id = await submit(stage, { text });
      const worker = await connectWorker(stage);
      const lease = await worker.takeJob(id);
      demand(Buffer.from(lease.input).includes(text), 'the input differs from the submitted one');
      await worker.finish(lease, completed, JSON.stringify(text));
      demandSame((await stage.client.status(id)).output, text, 'the output');
    },
  },
];

function showLease({ input, ...header }: Lease): object {
  return { ...header, input: Buffer.from(input).toString() };
}

const reports: ConformanceCheck<PlatformStage>[] = [
  {
    area: 'report',
    rule: 'applies a report once and answers a repeat as a duplicate',
    async run(stage) {
      for (const make of supportedReports(stage)) {
        const { worker, id, lease } = await startJob(stage);
        const report = make(lease, 1);
        demandSame(await worker.report(report), [{ answer: 'applied' }], 'the first answer');
        demandSame(await worker.report(report), [{ answer: 'duplicate' }], 'the second answer');
        if (report.kind !== 'outcome') continue;
        const { output, status } = await stage.client.status(id);
        demandSame({ output, status }, { output: 1, status: 'COMPLETED' }, 'the job');
      }
    },
  },
  {
    area: 'report',
    rule: 'refuses a report with a gap before it and names the expected number',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      for (const make of supportedReports(stage)) {
        const early = await worker.report(make(lease, 2));
        demandSame(early, [{ answer: 'gap', expected: 1 }], 'the answer');
      }
      const { progress, status } = await stage.client.status(id);
      demandSame({ progress, status }, { status: 'IN_PROGRESS' }, 'the job');
      await worker.report(chunksOf(lease, 1, 0, ['first']));
      await worker.report(outcomeOf(lease, 2, { ...completed, output: 'chunks' }));
      demandSame((await stage.client.status(id)).output, ['first'], 'the output');
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

export const platformChecks: readonly ConformanceCheck<PlatformStage>[] = [
  ...hellos,
  ...takes,
  ...reports,
  ...leaseChecks,
].map((check) => ({ ...check, run: (stage) => runAndCleanUp(check, stage) }));

/** Jobs of a failed check must not reach the next check. */
async function runAndCleanUp(
  check: ConformanceCheck<PlatformStage>,
  stage: PlatformStage,
): Promise<void> {
  try {
    await check.run(stage);
  } finally {
    for (const id of stage.submitted.splice(0)) await stage.client.cancel(id).catch(() => {});
    for (const worker of stage.workers.splice(0)) await worker.bye('drained').catch(() => {});
  }
}
