// Messages of a worker with a good key, on both carriers, with far more in them than a worker has.
import type { ClientHttp2Session, ClientSessionOptions } from 'node:http2';
import { encodeFrames, FRAMES_MEDIA_TYPE } from '../../../../src/wire/link/http-form.ts';
import { fillPath } from '../../../../src/wire/routes/route.ts';
import { RUNPOD_BASE, WORKER_HEADERS, WORKER_ROUTES } from '../../../../src/wire/routes/routes.ts';
import type { Attack, AttackContext, Target } from '../attack.ts';
import { OPEN, openSession, prefixMessage, RawCall } from '../raw-grpc.ts';
import { inTurns, JSON_TYPE, RawExchange } from '../raw-http.ts';

const MB = 1_048_576;
const REFUSED = ['400', '413', '422', '429', '503', 'closed'];
const GRPC_REFUSED = ['grpc 3', 'grpc 8', 'grpc 9', 'grpc 13', 'grpc 16', 'reset', 'answered'];
const REPORTER = [
  `Content-Type: ${FRAMES_MEDIA_TYPE}`,
  `${WORKER_HEADERS.worker}: w`,
  `${WORKER_HEADERS.incarnation}: 1`,
];

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  for (; left > 0x7f; left = Math.floor(left / 128)) bytes.push((left % 128) | 0x80);
  return Buffer.from([...bytes, left]);
}

/** A field of protobuf that holds bytes. */
function field(number: number, content: Uint8Array): Buffer {
  return Buffer.concat([varint(number * 8 + 2), varint(content.length), content]);
}

const WORKER = Buffer.concat([field(1, Buffer.from('w')), Buffer.from([0x10, 1])]);
const CALL = Buffer.from([0x08, 1]);
/** Numbers of `ToPlatform`'s kinds. */
const KIND = { hello: 2, credit: 3, renew: 4, reports: 5 } as const;

function repeat(element: Uint8Array, maxBytes: number): Buffer {
  return Buffer.alloc(Math.floor(maxBytes / element.length) * element.length, element);
}

function describeWorker({ endpoint, key }: Target): Record<string, string> {
  return { authorization: `Bearer ${key}`, 'millrace-endpoint': endpoint };
}

/** So many streams, at most 90 of them on one connection. */
function openStreams(target: Target, count: number, options: ClientSessionOptions = {}) {
  const sessions: ClientHttp2Session[] = [];
  const calls = Array.from({ length: count }, (_, n) => {
    if (n % 90 === 0) sessions.push(openSession(target, options));
    const session = sessions.at(-1) ?? openSession(target, options);
    return new RawCall(session, OPEN, describeWorker(target));
  });
  return { sessions, calls };
}

/** A worker's stream with a good key and one message on it. */
async function sendMessage(
  { count, hold, note, target }: AttackContext,
  kind: keyof typeof KIND,
  content: Buffer,
): Promise<void> {
  const message = Buffer.concat([CALL, field(KIND[kind], content)]);
  const sessions = Array.from({ length: count }, () => openSession(target));
  const calls = sessions.map((session) => new RawCall(session, OPEN, describeWorker(target)));
  for (const { stream } of calls) {
    stream.write(prefixMessage(message.length));
    stream.write(message);
  }
  await hold();
  for (const call of calls) note(call.state, call.bytes);
  for (const session of sessions) session.destroy();
}

function frame(header: object): Buffer {
  return Buffer.concat(encodeFrames([{ header, body: Buffer.alloc(0) }]));
}

async function postAll(context: AttackContext, path: string, body: Buffer, headers = [JSON_TYPE]) {
  const { count, note, target } = context;
  await inTurns({ count, width: 4 }, async () => {
    const { answer, bytes } = await new RawExchange(target, { path, headers, body }).answered;
    note(answer, bytes);
  });
}

const worker = { workerId: 'w', incarnation: 1 };
const lease = { jobId: crypto.randomUUID(), attempt: 1, token: 'x'.repeat(43) };
const hello = { ...worker, protocol: 1, version: '0', slots: 1, devices: [], outbox: [] };

function listInBody(rest: object, name: string, element: object, maxBytes: number): Buffer {
  const text = JSON.stringify(element);
  const elements = Array.from({ length: Math.floor(maxBytes / (text.length + 1)) }, () => text);
  return Buffer.from(JSON.stringify({ ...rest, [name]: [] }).replace('[]', `[${elements.join()}]`));
}

function callAs(target: Target, verb: 'hello' | 'take', body: object): RawExchange {
  return new RawExchange(target, {
    ...{ path: fillPath(WORKER_ROUTES[verb], { endpoint: target.endpoint }), headers: [JSON_TYPE] },
    body: Buffer.from(JSON.stringify(body)),
  });
}

export const workerMessageAttacks: Attack[] = [
  {
    name: 'a gRPC message of 16 MB with 8,400,000 empty reports',
    count: { short: 2, full: 5 },
    answers: GRPC_REFUSED,
    send(context) {
      const reports = repeat(Buffer.from([0x1a, 0]), 16 * MB);
      return sendMessage(context, 'reports', Buffer.concat([WORKER, reports]));
    },
  },
  {
    name: 'a gRPC message of 16 MB with a report of 16,000,000 chunk sizes',
    count: { short: 2, full: 5 },
    answers: GRPC_REFUSED,
    send(context) {
      const sizes = field(8, Buffer.alloc(16 * MB, 2));
      return sendMessage(context, 'reports', Buffer.concat([WORKER, field(3, sizes)]));
    },
  },
  {
    name: 'a gRPC hello of 16 MB with 8,400,000 empty outbox entries',
    count: { short: 2, full: 5 },
    answers: GRPC_REFUSED,
    send(context) {
      const outbox = repeat(Buffer.from([0x3a, 0]), 16 * MB);
      return sendMessage(context, 'hello', Buffer.concat([WORKER, outbox]));
    },
  },
  {
    name: 'a gRPC renewal of 16 MB with 8,400,000 empty leases, and a credit that holds as many',
    count: { short: 2, full: 4 },
    answers: GRPC_REFUSED,
    async send(context) {
      const leases = repeat(Buffer.from([0x22, 0]), 16 * MB);
      await sendMessage(context, 'renew', Buffer.concat([WORKER, leases]));
      const held = repeat(Buffer.from([0x32, 0]), 16 * MB);
      await sendMessage(context, 'credit', Buffer.concat([WORKER, held]));
    },
  },
  {
    name: 'gRPC messages of 16 MB that stop before their end',
    count: { short: 40, full: 300 },
    answers: ['open', 'grpc 8', 'reset'],
    // 64 MB of one user.
    atMost: { open: 4 },
    growthMb: 400,
    async send({ count, hold, note, target }) {
      const { calls, sessions } = openStreams(target, count);
      for (const { stream } of calls) {
        stream.write(prefixMessage(16 * MB));
        stream.write(Buffer.alloc(16 * MB - 1));
      }
      await hold();
      for (const call of calls) note(call.state, call.bytes);
      for (const session of sessions) session.destroy();
    },
  },
  {
    name: 'gRPC streams of one user, more than there may be',
    platform: 'impatient',
    count: { short: 300, full: 5_000 },
    // Streams beyond those that may wait for their turn are reset.
    answers: ['open', 'grpc 8', 'reset'],
    atMost: { open: 200 },
    async send({ count, hold, note, target }) {
      const { calls, sessions } = openStreams(target, count);
      const isOver = () => calls.filter(({ state }) => state === 'open').length > 200;
      await hold();
      for (let turn = 0; turn < 20 && isOver(); turn++) await hold();
      for (const call of calls) note(call.state, call.bytes);
      for (const session of sessions) session.destroy();
    },
  },
  {
    name: 'gRPC streams that never open the window for an answer',
    platform: 'impatient',
    count: { short: 100, full: 200 },
    answers: ['reset', 'grpc 8', 'grpc 13'],
    async send({ count, hold, note, target }) {
      const { calls, sessions } = openStreams(target, count, {
        settings: { initialWindowSize: 0 },
      });
      for (const { stream } of calls) stream.write(prefixMessage(0));
      await hold();
      // Until the platform has dropped it, whatever the well-behaved client's rounds took.
      for (const call of calls) {
        await call.ended;
        note(call.state, call.bytes);
      }
      for (const session of sessions) session.destroy();
    },
  },
  {
    name: 'an HTTP message of 64 MB with 233,016 reports',
    count: { short: 2, full: 5 },
    answers: REFUSED,
    send(context) {
      const header = { ...lease, seq: 1, kind: 'progress', traceparent: '0'.repeat(55) };
      const padded = { ...header, more: 'x'.repeat(37) };
      const path = fillPath(WORKER_ROUTES.report, { endpoint: context.target.endpoint });
      return postAll(context, path, repeat(frame(padded), 64 * MB), REPORTER);
    },
  },
  {
    name: 'an HTTP message of 64 MB with frames of two bytes',
    count: { short: 2, full: 5 },
    answers: REFUSED,
    send(context) {
      const path = fillPath(WORKER_ROUTES.report, { endpoint: context.target.endpoint });
      return postAll(context, path, repeat(frame({}), 64 * MB - 1_000), REPORTER);
    },
  },
  {
    name: 'an HTTP message of 20 MB with a report of millions of chunk sizes',
    count: { short: 2, full: 5 },
    answers: REFUSED,
    send(context) {
      const sizes = Array.from({ length: 10 * MB }, () => 2);
      const body = frame({ ...lease, seq: 1, kind: 'chunks', first: 0, sizes });
      return postAll(
        context,
        fillPath(WORKER_ROUTES.report, { endpoint: context.target.endpoint }),
        body,
        REPORTER,
      );
    },
  },
  {
    name: 'an HTTP hello of 4 MB whose outbox has an entry for every 100 bytes',
    count: { short: 4, full: 20 },
    answers: REFUSED,
    send(context) {
      const body = listInBody(hello, 'outbox', lease, 4 * MB - 1_000);
      return postAll(
        context,
        fillPath(WORKER_ROUTES.hello, { endpoint: context.target.endpoint }),
        body,
      );
    },
  },
  {
    name: 'an HTTP renewal of 4 MB with 1,000,000 empty leases',
    count: { short: 4, full: 20 },
    answers: REFUSED,
    send(context) {
      const body = listInBody({ ...worker, waitMs: 0 }, 'leases', {}, 4 * MB - 1_000);
      return postAll(
        context,
        fillPath(WORKER_ROUTES.renew, { endpoint: context.target.endpoint }),
        body,
      );
    },
  },
  {
    name: 'workers with one key, each with another id and a take that waits',
    count: { short: 1_050, full: 5_000 },
    answers: [
      'open',
      '200',
      '204',
      'closed',
      'hello 200',
      ...REFUSED.map((each) => `hello ${each}`),
    ],
    atMost: { open: 1_000, 'hello 200': 1_000 },
    async send({ count, hold, note, target }) {
      const open: RawExchange[] = [];
      await inTurns({ count, width: 32 }, async (n) => {
        const identity = { workerId: `w${n}`, incarnation: 1 };
        const { answer, bytes } = await callAs(target, 'hello', { ...hello, ...identity }).answered;
        note(`hello ${answer}`, bytes);
        if (answer !== '200') return;
        const take = { takeId: String(n), max: 1, waitMs: 20_000, held: [] };
        open.push(callAs(target, 'take', { ...identity, ...take }));
      });
      await hold();
      for (const exchange of open) {
        note(exchange.state);
        exchange.close();
      }
    },
  },
  {
    name: 'results of a RunPod worker whose error is 500,000 line breaks',
    count: { short: 2, full: 20 },
    answers: ['200'],
    send(context) {
      const path = `${RUNPOD_BASE}/v2/${context.target.endpoint}/job-done/w/nothing`;
      const body = JSON.stringify({ error: '\n'.repeat(500_000) });
      return postAll(context, path, Buffer.from(body), [JSON_TYPE]);
    },
  },
];
