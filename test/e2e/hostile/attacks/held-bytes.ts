// Bytes that the platform is made to hold: bodies that never end, answers that nobody reads.
import type { Attack, Target } from '../attack.ts';
import { callOwn, JSON_TYPE, RawExchange, settle } from '../raw-http.ts';
import { finishJob, streamJob } from '../worker-calls.ts';

const MB = 1_048_576;
const BODY_BYTES = 20 * MB;
const OUTPUT_BYTES = 19 * MB;
/**
 * A user's budget of 128 MB, and what is collected late: an answer is read from the store before it is known
 * to fit.
 */
const GROWTH_MB = 700;

/** Of the process that prepared the attack, which is the one that sends it. */
let job = '';

function upload(target: Target, key: string | null | undefined): RawExchange {
  const path = `/v2/${target.endpoint}/runsync`;
  const announced = { announcedBytes: BODY_BYTES, headers: [JSON_TYPE] };
  const exchange = new RawExchange(target, {
    ...{ path, ...announced },
    ...(key === undefined ? {} : { key }),
  });
  exchange.socket.write(Buffer.alloc(BODY_BYTES - 100, ' '));
  return exchange;
}

export const heldByteAttacks: Attack[] = [
  {
    name: 'uploads of 20 MB that stop before their end',
    count: { short: 40, full: 100 },
    answers: ['open', 'closed', '408', '503'],
    growthMb: GROWTH_MB,
    async send({ count, hold, note, target }) {
      const open = Array.from({ length: count }, () => upload(target, undefined));
      await hold();
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'uploads of 20 MB without a key that stop before their end',
    count: { short: 40, full: 100 },
    answers: ['401', 'open', 'closed'],
    growthMb: GROWTH_MB,
    async send({ count, hold, note, target }) {
      const open = Array.from({ length: count }, () => upload(target, null));
      await hold();
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'clients that do not read an output of 19 MB',
    count: { short: 40, full: 100 },
    answers: ['open', 'closed', '503'],
    growthMb: GROWTH_MB,
    async prepare(target) {
      job = await finishJob(target, Buffer.from(`"${'x'.repeat(OUTPUT_BYTES)}"`));
    },
    async send({ count, hold, note, target }) {
      const path = `/v2/${target.endpoint}/status/${job}`;
      const open = Array.from(
        { length: count },
        () => new RawExchange(target, { path, isRead: false }),
      );
      await hold();
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'readers of a stream of 16 MB, as one answer and as events, that do not read',
    count: { short: 60, full: 200 },
    answers: ['open', 'closed', '503'],
    growthMb: GROWTH_MB,
    async prepare(target) {
      job = await streamJob(target, { chunks: 16, chunkBytes: 990_000 });
    },
    async send({ count, hold, note, target }) {
      const path = `/v2/${target.endpoint}/stream/${job}?after=0`;
      const open = Array.from({ length: count }, (_, n) => {
        const headers = n % 2 ? ['Accept: text/event-stream'] : [];
        return new RawExchange(target, { path, headers, isRead: false });
      });
      await hold();
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'readers of the events of a job that never runs',
    count: { short: 300, full: 3_000 },
    answers: ['200', 'closed', '429', '503'],
    growthMb: GROWTH_MB,
    async prepare(target) {
      const { id } = await callOwn(target, `/v2/${target.endpoint}/run`, { input: {} });
      job = String(id);
    },
    async send({ count, hold, note, target }) {
      const path = `/v2/${target.endpoint}/stream/${job}?after=0`;
      const headers = ['Accept: text/event-stream'];
      const open = Array.from({ length: count }, () => new RawExchange(target, { path, headers }));
      await hold();
      await settle(open);
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
];
