// Requirements for carriers under network faults: lost answers, repeated and reordered calls, half-open
// connections, and restarts of either side.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type Lease,
  LinkError,
  type Report,
  type ReportReply,
} from '../../../src/wire/link/worker-link.ts';
import type { WorkerVerb } from '../../../src/wire/routes/routes.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  Hand,
  type HandOptions,
  logOf,
  outcomeOf,
  Platform,
  progressOf,
  refTo,
} from '../../support/queue-platform.ts';
import { type FaultyCarrier, repeat } from './faulty-carrier.ts';

const UNAVAILABLE = { name: 'LinkError', code: 'unavailable' };
const MOST_ROUNDS = 20;

export function describeFaults(
  name: string,
  open: (platform: Platform) => Promise<FaultyCarrier>,
): void {
  describe(`${name}, in a bad network`, () => {
    let platform: Platform;
    let carrier: FaultyCarrier;

    beforeEach(async () => {
      platform = new Platform();
      await platform.start();
      carrier = await open(platform);
    });

    afterEach(async () => {
      await carrier.close();
      await platform.close();
    });

    function silent() {
      return { ...UNAVAILABLE, message: expect.stringMatching(carrier.silence) };
    }

    function startHand(options?: HandOptions): Hand {
      const link = carrier.openLink();
      return new Hand(() => link, options);
    }

    async function startWorker(options?: HandOptions): Promise<Hand> {
      const hand = startHand(options);
      await hand.hello();
      return hand;
    }

    /** Repeat all of its calls. */
    async function startImpatientWorker(): Promise<Hand> {
      const link = carrier.openLink('impatient');
      const hand = new Hand(() => link);
      await repeat(() => hand.hello());
      return hand;
    }

    /** The platform executes the call, and its answer is lost. */
    async function loseAnswer(verb: WorkerVerb, call: () => Promise<unknown>): Promise<void> {
      const answered = platform.answered(verb);
      carrier.mute();
      const lost = call();
      lost.catch(() => {});
      await answered;
      carrier.cut();
      await expect(lost).rejects.toMatchObject(UNAVAILABLE);
    }

    describe('a lost answer', () => {
      it('costs nothing if it is that to hello: a repeated hello gets the same answer', async () => {
        const id = await platform.submit();
        const hand = startHand();
        // Opens the connection.
        await expect(hand.take()).rejects.toMatchObject({ code: 'unknown_worker' });
        await loseAnswer('hello', () => hand.hello());
        expect(await hand.hello()).toMatchObject({ leaseMs: 15_000 });
        expect(await hand.takeOne()).toMatchObject({ jobId: id, attempt: 1 });
      });

      it('is repeated to a take with the same takeId', async () => {
        const ids = [await platform.submit(), await platform.submit()];
        const hand = await startWorker();
        await loseAnswer('take', () => hand.take({ max: 2, takeId: 'once' }));
        const leases = await hand.take({ max: 2, takeId: 'once' });
        expect(leases.map(({ jobId, attempt }) => ({ jobId, attempt }))).toEqual(
          ids.map((jobId) => ({ jobId, attempt: 1 })),
        );
      });

      it('releases the job with the next take, uncounted, if its take is not repeated', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        await loseAnswer('take', () => hand.take({ takeId: 'lost' }));
        expect(await hand.takeOne({ takeId: 'next', held: [] })).toMatchObject({ jobId: id });
        expect(await platform.job(id)).toMatchObject({ attempt: 2, failures: 0, releases: 1 });
      });

      it('leaves the lease renewed', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const lease = await hand.takeOne();
        await platform.clock.advance(10_000);
        await loseAnswer('renew', () => hand.renew([lease]));
        await platform.clock.advance(14_999);
        expect(await platform.job(id)).toMatchObject({ status: 'IN_PROGRESS', failures: 0 });
      });

      it('is repeated to a renewal, with the cancel', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const lease = await hand.takeOne();
        await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
        await loseAnswer('renew', () => hand.renew([lease]));
        expect(await hand.renew([lease])).toMatchObject({
          ended: [{ jobId: id, verdict: 'cancelled' }],
        });
      });

      it.each<[Report['kind'], (lease: Lease) => Report]>([
        ['chunks', (lease) => chunksOf(lease, 1, 0, ['a', 'b'])],
        ['progress', (lease) => progressOf(lease, 1, 0.5)],
        ['log', (lease) => logOf(lease, 1, '{"line":1}\n')],
        ['outcome', (lease) => outcomeOf(lease, 1, completed, '"end"')],
      ])('lets a report of %s be repeated, which counts once', async (_, make) => {
        const id = await platform.submit();
        const hand = await startWorker();
        const report = make(await hand.takeOne());
        await loseAnswer('report', () => hand.reportOne(report));
        const after = await platform.job(id);
        expect(await hand.reportOne(report)).toEqual({ answer: 'duplicate' });
        expect(await platform.job(id)).toMatchObject({
          ...{ status: after.status, lastSeq: 1, chunkCount: after.chunkCount },
          logBytes: after.logBytes,
        });
      });

      it('costs nothing if it is that to bye, which can be repeated', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        await hand.takeOne();
        await loseAnswer('bye', () => hand.bye('drained'));
        await hand.bye('drained');
        expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', releases: 1 });
      });
    });

    describe('a call that arrives twice at once', () => {
      it('is applied once if it reports an outcome', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const report = outcomeOf(await hand.takeOne(), 1, completed, '1');
        const replies = await Promise.all([hand.reportOne(report), hand.reportOne(report)]);
        expect(replies.map(({ answer }) => answer).sort()).toEqual(['applied', 'duplicate']);
        expect(await platform.record(id)).toMatchObject({ status: 'COMPLETED', output: 1 });
        expect((await platform.health()).jobs).toMatchObject({ completed: 1 });
      });

      it('gives a job once if it is a take', async () => {
        const ids = [await platform.submit(), await platform.submit()];
        const hand = await startWorker();
        const takes = [1, 2].map(() => hand.take({ max: 1, takeId: 'twice' }));
        const leases = (await Promise.all(takes)).flat();
        const tokens = new Set(leases.map(({ token }) => token));
        expect(tokens.size).toBe(1);
        expect(await platform.job(ids[0] ?? '')).toMatchObject({ attempt: 1 });
        expect(await platform.job(ids[1] ?? '')).toMatchObject({ status: 'IN_QUEUE', attempt: 0 });
      });

      it('releases once if it is bye', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        await hand.takeOne();
        await Promise.all([hand.bye('drained'), hand.bye('drained')]);
        expect(await platform.job(id)).toMatchObject({ status: 'IN_QUEUE', releases: 1 });
      });
    });

    describe('reports out of order', () => {
      const COUNT = 24;

      /** Sends the unacknowledged reports in the given order until all are acknowledged. */
      async function deliver(hand: Hand, reports: Report[]): Promise<ReportReply[]> {
        const replies: ReportReply[] = [];
        for (let round = 0; round < MOST_ROUNDS * COUNT && reports.length > 0; round++) {
          const answers = await Promise.all(reports.map((report) => hand.reportOne(report)));
          replies.push(...answers);
          reports = reports.filter((_, index) => answers[index]?.answer === 'gap');
        }
        expect(reports).toEqual([]);
        return replies;
      }

      it('are refused with the missing number and finally arrive, each once', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const lease = await hand.takeOne();
        const reports = Array.from({ length: COUNT }, (_, i) => chunksOf(lease, i + 1, i, [i]));
        const replies = await deliver(hand, reports.reverse());
        expect(replies.filter(({ answer }) => answer === 'applied')).toHaveLength(COUNT);
        const batches = await platform.store.read((tx) =>
          tx.chunks({ endpointId: ENDPOINT, id, attempt: 1, from: 0, maxBytes: 100_000 }),
        );
        const outputs = batches.map(
          ({ bytes }) => JSON.parse(Buffer.from(bytes).toString()).output,
        );
        expect(outputs).toEqual(Array.from({ length: COUNT }, (_, i) => i));
      });

      it('change nothing after the outcome', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const lease = await hand.takeOne();
        const early = chunksOf(lease, 1, 0, ['a']);
        await hand.report([early, outcomeOf(lease, 2, { ...completed, output: 'chunks' })]);
        const before = await platform.job(id);
        expect(await hand.reportOne(early)).toEqual({ answer: 'duplicate' });
        expect(await platform.job(id)).toEqual(before);
      });

      it('do not let a late renewal restore an ended job', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const lease = await hand.takeOne();
        await hand.finish(lease, completed, { body: '1' });
        await hand.renew([lease]);
        expect(await platform.job(id)).toMatchObject({ status: 'COMPLETED', lease: null });
      });
    });

    describe('a connection that is open on one end only', () => {
      it('is abandoned by a waiting take, and its job arrives with the repeated take', async () => {
        const hand = await startImpatientWorker();
        const take = await platform.park('take', () => hand.take({ waitMs: 200, takeId: 'once' }));
        carrier.kill();
        const id = await platform.submit();
        await expect(take.answer).rejects.toMatchObject(silent());
        const lease = await repeat(() => hand.takeOne({ takeId: 'once' }));
        expect(lease).toMatchObject({ jobId: id, attempt: 1 });
        expect(await platform.job(id)).toMatchObject({ releases: 0, failures: 0 });
      });

      it('is abandoned by a renewal, and the next one reports the cancel at once', async () => {
        const id = await platform.submit();
        const hand = await startImpatientWorker();
        const lease = await repeat(() => hand.takeOne({ takeId: 'once' }));
        const renew = await platform.park('renew', () => hand.renew([lease], { waitMs: 200 }));
        carrier.kill();
        await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
        await expect(renew.answer).rejects.toMatchObject(silent());
        const reply = await repeat(() => hand.renew([lease], { waitMs: 200 }));
        expect(reply.ended).toMatchObject([{ jobId: id, verdict: 'cancelled' }]);
      });

      it('is abandoned by a report, which is then applied once', async () => {
        const id = await platform.submit();
        const hand = await startImpatientWorker();
        const lease = await repeat(() => hand.takeOne({ takeId: 'once' }));
        // Two parallel calls open all connections of a carrier that uses several.
        const progress = progressOf(lease, 1, 0.5);
        await repeat(() => Promise.all([hand.reportOne(progress), hand.reportOne(progress)]));
        carrier.kill();
        const outcome = outcomeOf(lease, 2, completed, '1');
        await expect(hand.reportOne(outcome)).rejects.toMatchObject(silent());
        expect(await platform.job(id)).toMatchObject({ status: 'IN_PROGRESS', lastSeq: 1 });
        expect(await repeat(() => hand.reportOne(outcome))).toEqual({ answer: 'applied' });
        expect(await platform.record(id)).toMatchObject({ status: 'COMPLETED', output: 1 });
      });
    });

    describe('a connection that breaks within an answer', () => {
      it('is abandoned, and the repeated take gets the complete answer', async () => {
        const hand = await startImpatientWorker();
        const wait = { waitMs: 200, takeId: 'once' };
        const take = await platform.park('take', () => hand.take(wait));
        carrier.killAfter(100_000);
        const input = Buffer.from(JSON.stringify({ text: 'x'.repeat(3_000_000) }));
        const id = await platform.submit({}, input);
        await expect(take.answer).rejects.toMatchObject(silent());
        const lease = await repeat(() => hand.takeOne({ takeId: 'once' }));
        expect(lease).toMatchObject({ jobId: id, attempt: 1 });
        expect(Buffer.from(lease.input).equals(input)).toBe(true);
      });
    });

    describe('a broken connection', () => {
      it('fails open calls as unavailable, and the link recovers', async () => {
        const hand = await startWorker();
        const take = await platform.park('take', () => hand.take({ waitMs: 20_000 }));
        const renew = await platform.park('renew', () => hand.renew([], { waitMs: 5_000 }));
        carrier.cut();
        await expect(take.answer).rejects.toMatchObject(UNAVAILABLE);
        await expect(renew.answer).rejects.toMatchObject(UNAVAILABLE);
        // Otherwise an abandoned take would lease the next job.
        await Promise.all([take.served, renew.served]);
        const id = await platform.submit();
        expect(await repeat(() => hand.takeOne())).toMatchObject({ jobId: id });
      });

      it('stores nothing of a large report, whose repetition stores all of it', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const lease = await hand.takeOne();
        const output = JSON.stringify('x'.repeat(8 * 1_048_576));
        const report = outcomeOf(lease, 1, completed, output);
        const first = hand.reportOne(report);
        first.catch(() => {});
        await new Promise((resolve) => setImmediate(resolve));
        carrier.cut();
        await first.catch(() => {});
        const { answer } = await repeat(() => hand.reportOne(report));
        expect(['applied', 'duplicate']).toContain(answer);
        const stored = await platform.store.read((tx) => tx.output({ endpointId: ENDPOINT, id }));
        expect(Buffer.from(stored ?? []).equals(Buffer.from(output))).toBe(true);
      });
    });

    describe('the restart of the platform', () => {
      it('needs no new hello and keeps leases and acknowledged reports', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const lease = await hand.takeOne();
        await hand.reportOne(chunksOf(lease, 1, 0, ['a']));
        await carrier.restart();
        const again = await repeat(() => hand.reportOne(chunksOf(lease, 1, 0, ['a'])));
        expect(again).toEqual({ answer: 'duplicate' });
        const end = outcomeOf(lease, 2, { ...completed, output: 'chunks' });
        expect(await hand.reportOne(end)).toEqual({ answer: 'applied' });
        expect(await platform.record(id)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
      });

      it('ends a waiting take, whose repetition gets the next job', async () => {
        const hand = await startWorker();
        const take = await platform.park('take', () => hand.take({ waitMs: 20_000 }));
        await carrier.restart();
        await take.answer.catch((error: unknown) => expect(error).toMatchObject(UNAVAILABLE));
        const id = await platform.submit();
        expect(await repeat(() => hand.takeOne())).toMatchObject({ jobId: id, attempt: 1 });
      });

      it('does not forget an earlier lost answer', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        const report = outcomeOf(await hand.takeOne(), 1, completed, '1');
        await loseAnswer('report', () => hand.reportOne(report));
        await carrier.restart();
        expect(await repeat(() => hand.reportOne(report))).toEqual({ answer: 'duplicate' });
        expect(await platform.record(id)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
      });

      it('repeats the leases of a lost take by its takeId', async () => {
        const id = await platform.submit();
        const hand = await startWorker();
        await loseAnswer('take', () => hand.take({ takeId: 'once' }));
        await carrier.restart();
        const lease = await repeat(() => hand.takeOne({ takeId: 'once' }));
        expect(lease).toMatchObject({ jobId: id, attempt: 1 });
      });
    });

    describe('the restart of the worker', () => {
      it('delivers outcomes of the old process, which count once', async () => {
        const id = await platform.submit();
        const old = await startWorker({ incarnation: 1 });
        const lease = await old.takeOne();
        const report = outcomeOf(lease, 1, completed, '"kept"');
        await loseAnswer('report', () => old.reportOne(report));
        const next = startHand({ incarnation: 2 });
        await next.hello([refTo(lease)]);
        expect(await next.reportOne(report)).toEqual({ answer: 'duplicate' });
        expect(await platform.record(id)).toMatchObject({ output: 'kept', attempt: 1 });
      });

      it('ends the wait of the old process, which learns that it is stale', async () => {
        const old = await startWorker({ incarnation: 1 });
        const take = await platform.park('take', () => old.take({ waitMs: 20_000 }));
        const next = await startWorker({ incarnation: 2 });
        const late = await take.answer.catch((error: unknown) => error);
        if (late instanceof LinkError) expect(late.code).toBe('stale_incarnation');
        else expect(late).toEqual([]);
        const id = await platform.submit();
        await expect(old.take()).rejects.toMatchObject({ code: 'stale_incarnation' });
        expect(await next.takeOne()).toMatchObject({ jobId: id });
      });

      it('refuses a late report of the old process', async () => {
        const id = await platform.submit();
        const old = await startWorker({ incarnation: 1 });
        const lease = await old.takeOne();
        await old.renew([lease]);
        const next = await startWorker({ incarnation: 2 });
        const late = old.reportOne(outcomeOf(lease, 1, completed, '"old"'));
        await expect(late).rejects.toMatchObject({ code: 'stale_incarnation' });
        expect(await next.takeOne()).toMatchObject({ jobId: id, attempt: 2 });
      });
    });
  });
}
