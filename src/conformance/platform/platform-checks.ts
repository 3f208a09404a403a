// What a Millrace platform has to do for its workers, one check for each rule of docs/protocol.md that
// a worker can see. Each cleans up behind it; they wait in real time for leases to run out.
import { type Check, demand, demandSame, within } from '../checks.ts';
import { completed } from '../words.ts';
import { leaseChecks } from './platform-lease-checks.ts';
import { reportChecks } from './platform-report-checks.ts';
import {
  demandRefusal,
  enter,
  meet,
  type PlatformStage,
  sleep,
  submit,
  Visitor,
} from './scripted-worker.ts';

/** An answer that is to come at once may take so long. */
const AT_ONCE_MS = 2_000;
const MARGIN_MS = 2_000;

const visits: Check<PlatformStage>[] = [
  {
    area: 'hello',
    rule: 'is answered with numbers that fit together',
    isBasic: true,
    async run(stage) {
      const hand = new Visitor(stage.link);
      stage.visitors.push(hand);
      const { leaseMs, renewEveryMs, takeWaitMs } = await hand.hello();
      stage.terms = { leaseMs, renewEveryMs, takeWaitMs };
      demand(
        renewEveryMs > 0 && takeWaitMs > 0,
        `renewEveryMs ${renewEveryMs}, takeWaitMs ${takeWaitMs}`,
      );
      demand(
        leaseMs > renewEveryMs,
        `leaseMs ${leaseMs} is not more than renewEveryMs ${renewEveryMs}`,
      );
    },
  },
  {
    area: 'hello',
    rule: 'passes over members that it does not know',
    async run(stage) {
      await new Visitor(stage.link).hello({ mood: 'good' });
    },
  },
  {
    area: 'hello',
    rule: 'refuses another protocol, and names its number',
    async run(stage) {
      const hello = new Visitor(stage.link).hello({ protocol: 99 });
      await demandRefusal(hello, 'invalid', 'protocol 99', /99/);
    },
  },
  {
    area: 'hello',
    rule: 'refuses a worker that requires what it does not have, and names that',
    async run(stage) {
      const hello = new Visitor(stage.link).hello({ requires: ['telepathy'] });
      await demandRefusal(hello, 'invalid', 'the requirement', /telepathy/);
    },
  },
  {
    area: 'access',
    rule: 'lets nobody in with a wrong key',
    async run(stage) {
      await demandRefusal(new Visitor(stage.strangerLink).hello(), 'unauthorized', 'a wrong key');
    },
  },
  {
    area: 'hello',
    rule: 'has to come before everything else',
    async run(stage) {
      const hand = new Visitor(stage.link);
      await demandRefusal(hand.take(), 'unknown_worker', 'a take without hello');
      await demandRefusal(hand.renew([]), 'unknown_worker', 'a renewal without hello');
    },
  },
  {
    area: 'incarnation',
    rule: 'ends the rights of the older process when a newer one says hello',
    async run(stage) {
      const old = await enter(stage, { incarnation: 1 });
      await enter(stage, { id: old.id, incarnation: 2 });
      await demandRefusal(old.take(), 'stale_incarnation', 'a take of the older process');
      await demandRefusal(old.renew([]), 'stale_incarnation', 'a renewal of the older process');
      await demandRefusal(old.report(), 'stale_incarnation', 'a report of the older process');
      await demandRefusal(old.hello(), 'stale_incarnation', 'a hello of the older process');
    },
  },
  {
    area: 'incarnation',
    rule: 'keeps what lies in the outbox for the newer process, and gives the rest to others',
    async run(stage) {
      const [kept, lost] = [await submit(stage), await submit(stage)];
      const old = await enter(stage, { incarnation: 1 });
      const first = await old.takeJob(kept);
      await old.renew([first, await old.takeJob(lost)]);
      const next = new Visitor(stage.link, { id: old.id, incarnation: 2 });
      stage.visitors.push(next);
      const { attempt, jobId, token } = first;
      await next.hello({ outbox: [{ attempt, jobId, token }] });
      const other = await enter(stage);
      demandSame((await other.takeJob(lost)).attempt, 2, 'the attempt of the other job');
      demandSame((await next.finish(first, completed, '"kept"'))?.answer, 'applied', 'the answer');
      demandSame((await stage.client.status(kept)).output, 'kept', 'the output');
    },
  },
];

const takes: Check<PlatformStage>[] = [
  {
    area: 'take',
    rule: 'waits as long as it is asked to, and answers with nothing then',
    async run(stage) {
      const hand = await enter(stage);
      const at = Date.now();
      const take = hand.take({ waitMs: 500 });
      demandSame(await within(500 + MARGIN_MS, 'no answer came', take), [], 'the leases');
      demand(Date.now() - at >= 400, `it waited ${Date.now() - at} ms, not 500`);
    },
  },
  {
    area: 'take',
    rule: 'is answered the moment a job comes, with its input byte by byte',
    async run(stage) {
      const hand = await enter(stage);
      const waitMs = Math.min(stage.terms.takeWaitMs, 10_000);
      const take = hand.take({ waitMs });
      await sleep(200);
      const input = { text: 'ä "\\ 😀', list: [1, -2.5e-3, null] };
      const id = await submit(stage, input);
      const [lease] = await within(AT_ONCE_MS, 'the take was not answered', take);
      demand(lease !== undefined && lease.jobId === id, 'it was answered without the job');
      demandSame(lease.attempt, 1, 'the attempt');
      demandSame(JSON.parse(Buffer.from(lease.input).toString()), input, 'the input');
    },
  },
  {
    area: 'take',
    rule: 'gives the same leases again for the same takeId',
    async run(stage) {
      const id = await submit(stage);
      const hand = await enter(stage);
      const takeId = `again-${hand.id}`;
      const first = await hand.takeJob(id, { takeId });
      const again = await hand.take({ takeId, held: [] });
      demandSame(
        again.map(({ token }) => token),
        [first.token],
        'the tokens',
      );
    },
  },
  {
    area: 'take',
    rule: 'takes a lease back that the next take does not name, without counting it',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      const again = await hand.takeJob(id, { held: [] });
      demandSame(again.attempt, lease.attempt + 1, 'the attempt');
      demand(again.token !== lease.token, 'the token is the same');
    },
  },
  {
    area: 'take',
    rule: 'gives no more than it is asked for, in the order of the queue',
    async run(stage) {
      const ids = [await submit(stage), await submit(stage), await submit(stage)];
      const leases = await (await enter(stage)).take({ max: 2, waitMs: 2_000 });
      demandSame(
        leases.map(({ jobId }) => jobId),
        ids.slice(0, 2),
        'the jobs',
      );
    },
  },
  {
    area: 'take',
    rule: 'carries 5 MB',
    async run(stage) {
      const text = 'ü'.repeat(2_500_000);
      const id = await submit(stage, { text });
      const hand = await enter(stage);
      const lease = await hand.takeJob(id);
      demand(Buffer.from(lease.input).includes(text), 'the input is another one');
      await hand.finish(lease, completed, JSON.stringify(text));
      demandSame((await stage.client.status(id)).output, text, 'the output');
    },
  },
];

export const platformChecks: readonly Check<PlatformStage>[] = [
  ...visits,
  ...takes,
  ...reportChecks,
  ...leaseChecks,
].map((check) => ({ ...check, run: (stage) => runAndCleanUp(check, stage) }));

/** Jobs of a check that fails must not meet the next one. */
async function runAndCleanUp(check: Check<PlatformStage>, stage: PlatformStage): Promise<void> {
  try {
    await check.run(stage);
  } finally {
    for (const id of stage.submitted.splice(0)) await stage.client.cancel(id).catch(() => {});
    for (const visitor of stage.visitors.splice(0)) await visitor.bye('drained').catch(() => {});
  }
}
