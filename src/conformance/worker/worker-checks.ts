// Checks a worker of a Millrace platform: one check for each rule of docs/protocol.md that the
// platform can observe. The order matters: the last checks end the worker.
import { reassemble } from '../../wire/chunk/chunk-pieces.ts';
import { PROTOCOL_VERSION } from '../../wire/link/worker-link.ts';
import {
  type ConformanceCheck,
  Deviation,
  demand,
  demandCleanExit,
  demandSame,
  listYields,
} from '../checks.ts';
import { allAlongChecks, faultChecks } from './worker-fault-checks.ts';
import {
  demandOutput,
  demandWork,
  leaseOf,
  SOON_MS,
  TERMS,
  type WorkerStand,
  waitForOutcome,
} from './worker-stand.ts';

const EXIT_MS = 60_000;
const MAX_CHUNK_BYTES = 1_000_000;

const connecting: ConformanceCheck<WorkerStand>[] = [
  {
    area: 'hello',
    rule: 'sends hello first, with this protocol version',
    isBasic: true,
    run({ recorder }) {
      const [first] = recorder.order;
      demandSame(first?.verb, 'hello', 'the first call');
      const [hello] = recorder.calls.hello;
      demandSame(hello?.request.protocol, PROTOCOL_VERSION, 'the protocol');
      demandSame(hello?.request.outbox, [], 'the outbox of a new worker');
    },
  },
  {
    area: 'take',
    rule: 'requests at most as many jobs as it has slots',
    isBasic: true,
    async run({ recorder }) {
      const take = await recorder.until(
        SOON_MS,
        'the worker sent no take',
        () => recorder.calls.take[0],
      );
      const slots = recorder.calls.hello.at(-1)?.request.slots ?? 0;
      demand(
        take.request.max <= slots,
        `a take requests ${take.request.max} jobs with ${slots} slots`,
      );
      demandSame(take.request.held, [], 'the held leases of a new worker');
    },
  },
  {
    area: 'take',
    rule: 'takes again after an empty answer, with a new takeId, one call at a time',
    async run({ recorder }) {
      await recorder.until(SOON_MS, 'the worker sent no second take', () => recorder.calls.take[1]);
      const takes = recorder.calls.take;
      const ids = new Set(takes.map(({ request }) => request.takeId));
      demandSame(ids.size, takes.length, 'the number of different takeIds');
      for (const [index, { at }] of takes.entries()) {
        const before = takes[index - 1];
        const isAlone =
          before === undefined || (before.answeredAt ?? Number.POSITIVE_INFINITY) <= at;
        demand(isAlone, 'the worker sent a take while the previous one was open');
      }
    },
  },
  {
    area: 'renew',
    rule: 'renews at the required interval, even without jobs',
    async run({ recorder }) {
      await recorder.until(
        SOON_MS,
        'the worker sent no second renewal',
        () => recorder.calls.renew[1],
      );
    },
  },
];

const working: ConformanceCheck<WorkerStand>[] = [
  {
    area: 'outcome',
    rule: 'returns a value unchanged',
    isBasic: true,
    async run(stand) {
      const value = { text: 'ä "\\ \u2028 😀', list: [1, -2.5e-3, null, true, []], 'é key': {} };
      await demandOutput(stand, await stand.submit({ do: 'echo', value }), value);
    },
  },
  {
    area: 'outcome',
    rule: 'carries inputs and outputs of 5 MB',
    async run(stand) {
      const value = 'ü'.repeat(2_500_000);
      await demandOutput(stand, await stand.submit({ do: 'echo', value }), value);
    },
  },
  {
    area: 'outcome',
    rule: 'reports the failure of a handler, with its message',
    async run(stand) {
      const id = await stand.submit({ do: 'fail', message: 'the thrown message' });
      const outcome = await waitForOutcome(stand, await leaseOf(stand, id));
      demandSame(outcome.kind, 'failed', 'the outcome');
      const { error, status } = await stand.ended(id, SOON_MS);
      demandSame(
        { status, code: error?.code },
        { status: 'FAILED', code: 'handler_error' },
        'the job',
      );
      demand(
        error?.message.includes('the thrown message') ?? false,
        `the error does not contain the thrown message: ${error?.message}`,
      );
    },
  },
  {
    area: 'chunks',
    rule: 'arrive in order, numbered from 0, each once',
    async run(stand) {
      const id = await stand.submit({ do: 'stream', count: 300, bytes: 8 });
      await demandOutput(stand, id, listYields({ count: 300, bytes: 8 }));
      const { token } = await leaseOf(stand, id);
      const sent = stand.recorder.calls.report
        .flatMap(({ request }) => request.reports)
        .filter((report) => report.kind === 'chunks' && report.token === token);
      let next = 0;
      for (const report of sent) {
        if (report.kind !== 'chunks') continue;
        demandSame(report.first, next, 'the number of the next chunk');
        next += report.sizes.length;
      }
      demandSame(next, 300, 'the number of chunks');
    },
  },
  {
    area: 'chunks',
    rule: 'are at most 1,000,000 bytes; a larger value is split',
    async run(stand) {
      const size = { count: 2, bytes: 2_500_000 };
      const id = await stand.submit({ do: 'stream', ...size });
      const outcome = await waitForOutcome(stand, await leaseOf(stand, id), SOON_MS * 2);
      demandSame(outcome.kind, 'completed', 'the outcome');
      const texts = stand.recorder.calls.report
        .flatMap(({ request }) => request.reports)
        .filter((report) => report.kind === 'chunks' && report.jobId === id)
        .map((report) => Buffer.from(report.body).toString());
      const chunks = JSON.parse(`[${texts.join(',')}]`);
      for (const chunk of chunks) {
        const bytes = Buffer.byteLength(JSON.stringify(chunk));
        demand(bytes <= MAX_CHUNK_BYTES, `a chunk has ${bytes} bytes`);
      }
      demandSame(reassemble(chunks), listYields(size), 'the reassembled values');
    },
  },
  {
    area: 'renew',
    rule: 'renews the lease of a job as long as the job runs',
    async run(stand) {
      const id = await stand.submit({ do: 'echo', value: 1, ms: 2.5 * TERMS.leaseMs });
      const { token } = await leaseOf(stand, id);
      const record = await stand.ended(id, 2.5 * TERMS.leaseMs + SOON_MS);
      demandSame(record.status, 'COMPLETED', 'the status');
      demandSame(record.attempt, 1, 'the attempts');
      const times = stand.recorder.calls.renew
        .filter(({ request }) => request.leases.some((lease) => lease.token === token))
        .map(({ at }) => at);
      demand(times.length >= 2, `only ${times.length} renewals named the lease`);
      for (const [index, at] of times.entries()) {
        const gapMs = at - (times[index - 1] ?? at);
        demand(gapMs < TERMS.leaseMs, `${gapMs} ms passed between two renewals of the lease`);
      }
    },
  },
];

/**
 * After the fault checks: a worker that does not stop a handler may have no free slot afterwards.
 */
const stopping: ConformanceCheck<WorkerStand>[] = [
  {
    area: 'cancel',
    rule: 'ends the handler of a cancelled job and reports it',
    async run(stand) {
      const id = await stand.submit({ do: 'hang' });
      const lease = await leaseOf(stand, id);
      await stand.cancel(id);
      const outcome = await waitForOutcome(stand, lease);
      demandSame(outcome.kind, 'cancelled', 'the outcome');
    },
  },
  {
    area: 'timeout',
    rule: 'ends a handler that times out and reports it',
    async run(stand) {
      const id = await stand.submit({ do: 'hang' }, { executionTimeout: 1_000 });
      const outcome = await waitForOutcome(stand, await leaseOf(stand, id));
      demandSame(outcome.kind, 'timed_out', 'the outcome');
      demandSame((await stand.ended(id, SOON_MS)).status, 'TIMED_OUT', 'the status');
    },
  },
  {
    area: 'lost',
    rule: 'drops an attempt that the platform gave up, and takes new jobs',
    async run(stand) {
      const { recorder } = stand;
      const id = await stand.submit({ do: 'hang' });
      const { jobId, token } = await leaseOf(stand, id);
      const isNamed = (renew: { leases: { token: string; stopping: boolean }[] }) =>
        renew.leases.some((lease) => lease.token === token && !lease.stopping);
      const forged = { ended: [{ jobId, token, verdict: 'lost' as const }], drain: false };
      recorder.answerNext('renew', () => forged, isNamed);
      const dropped = await recorder.until(SOON_MS, 'no renewal named the lease', () =>
        recorder.calls.renew.findLast(({ answer }) => answer === forged),
      );
      await recorder.until(SOON_MS, 'the lease was still renewed', () =>
        recorder.calls.renew.find(({ at, request }) => at > dropped.at && !isNamed(request)),
      );
      await stand.cancel(id);
      await demandWork(stand, SOON_MS);
    },
  },
];

const exitChecks: ConformanceCheck<WorkerStand>[] = [
  {
    area: 'drain',
    rule: 'completes the running job after SIGTERM, takes no other, and says bye',
    async run(stand) {
      const { recorder } = stand;
      const id = await stand.submit({ do: 'echo', value: 'last', ms: 2_000 });
      // SIGTERM even if the job is never taken: the next check waits for the exit.
      await leaseOf(stand, id).finally(stand.options.terminate);
      let isGone = false;
      void stand.options.exitCode?.then(() => {
        isGone = true;
        recorder.check();
      });
      const end = await recorder.until(EXIT_MS, 'the worker sent no bye', () => {
        return recorder.calls.bye[0] ?? (isGone ? 'gone' : undefined);
      });
      if (end === 'gone') throw new Deviation('the worker exited without a bye');
      const bye = end;
      demandSame(bye.request.reason, 'drained', 'the reason');
      const { status } = await stand.record(id);
      demand(
        status === 'COMPLETED' || status === 'IN_QUEUE',
        `the running job is ${status} after the exit`,
      );
      const late = recorder.order.slice(recorder.order.indexOf(bye) + 1);
      demand(
        late.every(({ verb }) => verb === 'bye'),
        `the worker sent more calls after bye: ${late.map(({ verb }) => verb).join(', ')}`,
      );
    },
  },
  {
    area: 'drain',
    rule: 'exits with code 0',
    run: ({ options }) => demandCleanExit(options, EXIT_MS),
  },
];

export const workerChecks: readonly ConformanceCheck<WorkerStand>[] = [
  ...connecting,
  ...working,
  ...faultChecks,
  ...stopping,
  ...allAlongChecks,
  ...exitChecks,
];
