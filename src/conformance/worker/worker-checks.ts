// What a worker has to do on a Millrace platform, one check for each rule of docs/protocol.md that can be
// seen from there. They run in this order: the last one has the worker leave.
import { reassemble } from '../../wire/chunk/chunk-reassembly.ts';
import { PROTOCOL_VERSION } from '../../wire/link/worker-link.ts';
import { listYields } from '../check-inputs.ts';
import { type Check, Deviation, demand, demandSame } from '../checks.ts';
import { demandCleanExit } from '../worker-exit.ts';
import { demandOutput, demandWork, leaseOf, outcomeOf, SOON_MS } from './worker-asks.ts';
import { allAlongChecks, faultChecks } from './worker-fault-checks.ts';
import { TERMS, type WorkerStand } from './worker-stand.ts';

const LEAVING_MS = 60_000;
const MAX_CHUNK_BYTES = 1_000_000;

const coming: Check<WorkerStand>[] = [
  {
    area: 'hello',
    rule: 'says who it is before anything else, in this version of the protocol',
    isBasic: true,
    run({ witness }) {
      const [first] = witness.order;
      demandSame(first?.verb, 'hello', 'the first call');
      const [hello] = witness.calls.hello;
      demandSame(hello?.request.protocol, PROTOCOL_VERSION, 'the protocol');
      demandSame(hello?.request.outbox, [], 'the outbox of a new worker');
    },
  },
  {
    area: 'take',
    rule: 'asks for jobs, for no more than it has slots',
    isBasic: true,
    async run({ witness }) {
      const take = await witness.until(SOON_MS, 'no take came', () => witness.calls.take[0]);
      const slots = witness.calls.hello.at(-1)?.request.slots ?? 0;
      demand(take.request.max <= slots, `a take for ${take.request.max} jobs, with ${slots} slots`);
      demandSame(take.request.held, [], 'the held leases of a new worker');
    },
  },
  {
    area: 'take',
    rule: 'asks again after an answer without jobs, by a new takeId, one call at a time',
    async run({ witness }) {
      await witness.until(SOON_MS, 'no second take came', () => witness.calls.take[1]);
      const takes = witness.calls.take;
      const ids = new Set(takes.map(({ request }) => request.takeId));
      demandSame(ids.size, takes.length, 'different takeIds');
      for (const [index, { at }] of takes.entries()) {
        const before = takes[index - 1];
        const isAlone =
          before === undefined || (before.answeredAt ?? Number.POSITIVE_INFINITY) <= at;
        demand(isAlone, 'a take came while the one before it still waited');
      }
    },
  },
  {
    area: 'renew',
    rule: 'is heard of in the rhythm of renewals, also without jobs',
    async run({ witness }) {
      await witness.until(SOON_MS, 'no second renewal came', () => witness.calls.renew[1]);
    },
  },
];

const working: Check<WorkerStand>[] = [
  {
    area: 'outcome',
    rule: 'gives a value back as it is',
    isBasic: true,
    async run(stand) {
      const value = { text: 'ä "\\ \u2028 😀', list: [1, -2.5e-3, null, true, []], 'é key': {} };
      await demandOutput(stand, await stand.submit({ do: 'echo', value }), value);
    },
  },
  {
    area: 'outcome',
    rule: 'carries 5 MB in and out',
    async run(stand) {
      const value = 'ü'.repeat(2_500_000);
      await demandOutput(stand, await stand.submit({ do: 'echo', value }), value);
    },
  },
  {
    area: 'outcome',
    rule: 'says that the handler failed, and why',
    async run(stand) {
      const id = await stand.submit({ do: 'fail', message: 'as it was told' });
      const outcome = await outcomeOf(stand, await leaseOf(stand, id));
      demandSame(outcome.kind, 'failed', 'the outcome');
      const { error, status } = await stand.ended(id, SOON_MS);
      demandSame(
        { status, code: error?.code },
        { status: 'FAILED', code: 'handler_error' },
        'the job',
      );
      demand(error?.message.includes('as it was told') ?? false, `its message: ${error?.message}`);
    },
  },
  {
    area: 'chunks',
    rule: 'come in their order, numbered from 0, each once',
    async run(stand) {
      const id = await stand.submit({ do: 'stream', count: 300, bytes: 8 });
      await demandOutput(stand, id, listYields({ count: 300, bytes: 8 }));
      const { token } = await leaseOf(stand, id);
      const sent = stand.witness.calls.report
        .flatMap(({ request }) => request.reports)
        .filter((report) => report.kind === 'chunks' && report.token === token);
      let next = 0;
      for (const report of sent) {
        if (report.kind !== 'chunks') continue;
        demandSame(report.first, next, 'the number of the next chunk');
        next += report.sizes.length;
      }
      demandSame(next, 300, 'the chunks');
    },
  },
  {
    area: 'chunks',
    rule: 'are at most 1,000,000 bytes: a larger value travels in pieces',
    async run(stand) {
      const size = { count: 2, bytes: 2_500_000 };
      const id = await stand.submit({ do: 'stream', ...size });
      const outcome = await outcomeOf(stand, await leaseOf(stand, id), SOON_MS * 2);
      demandSame(outcome.kind, 'completed', 'the outcome');
      const texts = stand.witness.calls.report
        .flatMap(({ request }) => request.reports)
        .filter((report) => report.kind === 'chunks' && report.jobId === id)
        .map((report) => Buffer.from(report.body).toString());
      const chunks = JSON.parse(`[${texts.join(',')}]`);
      for (const chunk of chunks) {
        const bytes = Buffer.byteLength(JSON.stringify(chunk));
        demand(bytes <= MAX_CHUNK_BYTES, `a chunk of ${bytes} bytes`);
      }
      demandSame(reassemble(chunks), listYields(size), 'the values put together');
    },
  },
  {
    area: 'renew',
    rule: 'keeps the lease of a running job, for as long as that takes',
    async run(stand) {
      const id = await stand.submit({ do: 'echo', value: 1, ms: 2.5 * TERMS.leaseMs });
      const { token } = await leaseOf(stand, id);
      const record = await stand.ended(id, 2.5 * TERMS.leaseMs + SOON_MS);
      demandSame(record.status, 'COMPLETED', 'the status');
      demandSame(record.attempt, 1, 'the attempts');
      const times = stand.witness.calls.renew
        .filter(({ request }) => request.leases.some((lease) => lease.token === token))
        .map(({ at }) => at);
      demand(times.length >= 2, `${times.length} renewals named the lease`);
      for (const [index, at] of times.entries()) {
        const gapMs = at - (times[index - 1] ?? at);
        demand(gapMs < TERMS.leaseMs, `${gapMs} ms passed between two renewals of the lease`);
      }
    },
  },
];

/** Behind the faults: a worker that does not stop a handler may have no room for anything after it. */
const stopping: Check<WorkerStand>[] = [
  {
    area: 'cancel',
    rule: 'ends the handler of a cancelled job, and says so',
    async run(stand) {
      const id = await stand.submit({ do: 'hang' });
      const lease = await leaseOf(stand, id);
      await stand.cancel(id);
      const outcome = await outcomeOf(stand, lease);
      demandSame(outcome.kind, 'cancelled', 'the outcome');
    },
  },
  {
    area: 'timeout',
    rule: 'ends a handler that runs out of time, and says so',
    async run(stand) {
      const id = await stand.submit({ do: 'hang' }, { executionTimeout: 1_000 });
      const outcome = await outcomeOf(stand, await leaseOf(stand, id));
      demandSame(outcome.kind, 'timed_out', 'the outcome');
      demandSame((await stand.ended(id, SOON_MS)).status, 'TIMED_OUT', 'the status');
    },
  },
  {
    area: 'lost',
    rule: 'lets an attempt go that the platform gave up, and takes on',
    async run(stand) {
      const { witness } = stand;
      const id = await stand.submit({ do: 'hang' });
      const { jobId, token } = await leaseOf(stand, id);
      const isNamed = (renew: { leases: { token: string; stopping: boolean }[] }) =>
        renew.leases.some((lease) => lease.token === token && !lease.stopping);
      const forged = { ended: [{ jobId, token, verdict: 'lost' as const }], drain: false };
      witness.answerNext('renew', () => forged, isNamed);
      const told = await witness.until(SOON_MS, 'no renewal named the lease', () =>
        witness.calls.renew.findLast(({ answer }) => answer === forged),
      );
      await witness.until(SOON_MS, 'the lease was still renewed', () =>
        witness.calls.renew.find(({ at, request }) => at > told.at && !isNamed(request)),
      );
      await stand.cancel(id);
      await demandWork(stand, SOON_MS);
    },
  },
];

const leaving: Check<WorkerStand>[] = [
  {
    area: 'drain',
    rule: 'lets a running job end on SIGTERM, takes no other, and says bye',
    async run(stand) {
      const { witness } = stand;
      const id = await stand.submit({ do: 'echo', value: 'last', ms: 2_000 });
      // It is told to leave in any case: the next check waits for that.
      await leaseOf(stand, id).finally(stand.options.terminate);
      let isGone = false;
      void stand.options.exitCode?.then(() => {
        isGone = true;
        witness.look();
      });
      const end = await witness.until(LEAVING_MS, 'no bye came', () => {
        return witness.calls.bye[0] ?? (isGone ? 'gone' : undefined);
      });
      if (end === 'gone') throw new Deviation('it ended without a bye');
      const bye = end;
      demandSame(bye.request.reason, 'drained', 'the reason');
      const { status } = await stand.record(id);
      demand(status === 'COMPLETED' || status === 'IN_QUEUE', `its job is ${status}`);
      const late = witness.order.slice(witness.order.indexOf(bye) + 1);
      demand(
        late.every(({ verb }) => verb === 'bye'),
        `after bye came ${late.map(({ verb }) => verb).join(', ')}`,
      );
    },
  },
  {
    area: 'drain',
    rule: 'ends its process with the code 0',
    run: ({ options }) => demandCleanExit(options, LEAVING_MS),
  },
];

export const workerChecks: readonly Check<WorkerStand>[] = [
  ...coming,
  ...working,
  ...faultChecks,
  ...stopping,
  ...allAlongChecks,
  ...leaving,
];
