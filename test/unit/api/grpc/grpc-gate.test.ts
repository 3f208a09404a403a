// What the gRPC port takes from callers without a valid key, and from workers, seen by a raw HTTP/2 client.
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type ClientSessionOptions,
  connect,
  constants,
} from 'node:http2';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createGrpcServer } from '../../../../src/api/grpc/server.ts';
import {
  completeBounds,
  type HttpBounds,
  type KeylessLimits,
} from '../../../../src/api/limits/bounds.ts';
import { createWorkerBudget } from '../../../../src/api/limits/flows.ts';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { ENDPOINT, startPlatform } from '../../../support/api/platform.ts';

const CHECK = '/grpc.health.v1.Health/Check';
const WATCH = '/grpc.health.v1.Health/Watch';
const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
const OPEN = '/millrace.worker.v1.WorkerLink/Open';
/** An empty message: the health of the whole server. */
const EMPTY = Buffer.alloc(5);
/** What may be on its way when the server resets a stream: the window that it had granted. */
const WINDOW_BYTES = 65_535;
const MB = 1_048_576;
const ENDED = { [status('DEADLINE_EXCEEDED')]: true };

function status(
  name: 'RESOURCE_EXHAUSTED' | 'DEADLINE_EXCEEDED' | 'UNIMPLEMENTED' | 'UNAUTHENTICATED' | 'OK',
): string {
  return {
    ...{ OK: '0', DEADLINE_EXCEEDED: '4', RESOURCE_EXHAUSTED: '8' },
    ...{ UNIMPLEMENTED: '12', UNAUTHENTICATED: '16' },
  }[name];
}

async function startPort(
  keylessLimits: Partial<KeylessLimits> = {},
  bounds: Partial<HttpBounds> = {},
) {
  const { endpoints, keys, queue, worker } = await startPlatform();
  const begun = { count: 0 };
  const metadata = { authorization: `Bearer ${worker}`, 'millrace-endpoint': ENDPOINT };
  const budget = createWorkerBudget(completeBounds(bounds), systemClock);
  const server = createGrpcServer({
    ...{ keys, endpoints, clock: systemClock, log: silentLog, host: '127.0.0.1', port: 0 },
    linkTo(id) {
      begun.count += 1;
      return id === ENDPOINT ? queue.link(id) : undefined;
    },
    noteCrash: () => {},
    isClosing: () => queue.isClosing,
    keylessLimits,
    bounds,
    budget,
  });
  const { url } = await server.start();
  const sessions: ClientHttp2Session[] = [];
  onTestFinished(async () => {
    for (const session of sessions) session.destroy();
    await server.close();
  });
  const join = (options: ClientSessionOptions = {}) => {
    const session = connect(url.replace('grpc:', 'http:'), options);
    session.on('error', () => {});
    sessions.push(session);
    return session;
  };
  /** `begun`: streams with a valid key that the server has begun. `budget`: of all workers' calls. */
  return { join, metadata, begun, budget };
}

interface Call {
  stream: ClientHttp2Stream;
  /** Status in the headers or the trailers; undefined if the stream was reset without one. */
  ended: Promise<{ grpcStatus: string | undefined; rstCode: number }>;
}

function call(session: ClientHttp2Session, path: string, headers: object = {}): Call {
  const how = {
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
  };
  const stream = session.request({ ...how, ...headers }, { endStream: false });
  let grpcStatus: string | undefined;
  const note = (given: object) => {
    const value: unknown = Reflect.get(given, 'grpc-status');
    if (value !== undefined) grpcStatus = String(value);
  };
  stream
    .on('response', note)
    .on('trailers', note)
    .on('error', () => {})
    .resume();
  const ended = new Promise<{ grpcStatus: string | undefined; rstCode: number }>((resolve) => {
    stream.once('close', () => resolve({ grpcStatus, rstCode: stream.rstCode ?? 0 }));
  });
  return { stream, ended };
}

/** Of a message of so many bytes. */
function prefix(bytes: number): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes, 1);
  return head;
}

/** Sends until the server takes no more. @returns the bytes that went out */
async function flood({ ended, stream }: Call, bytes: number): Promise<number> {
  let sent = 0;
  let isOpen = true;
  const closed = ended.then(() => {
    isOpen = false;
  });
  for (let piece = prefix(bytes); isOpen && sent < bytes; piece = Buffer.alloc(16_384)) {
    const written = new Promise<boolean>((resolve) => {
      stream.write(piece, (error) => resolve(!error));
    });
    if (await Promise.race([written, closed.then(() => false)])) sent += piece.length;
    else break;
  }
  return sent;
}

describe('a call without a valid key', () => {
  it.each([
    ['health', CHECK],
    ['a watch of the health', WATCH],
    ['reflection', REFLECTION],
    ['a method that does not exist', '/grpc.health.v1.Health/Nothing'],
  ])('is reset on %s once it has sent more than 64 KB', async (_name, path) => {
    const { join } = await startPort();
    const asked = call(join(), path);
    const sent = await flood(asked, 20_000_000);
    expect(sent).toBeLessThanOrEqual(65_536 + 5 + 2 * WINDOW_BYTES);
    const { grpcStatus, rstCode } = await asked.ended;
    // The library itself answers at once where there is no such method.
    if (grpcStatus === undefined) expect(rstCode).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  });

  it('reads little of sixty messages of 20 MB', async () => {
    const { join } = await startPort();
    const session = join();
    const calls = Array.from({ length: 60 }, () => call(session, CHECK));
    const sent = await Promise.all(calls.map((each) => flood(each, 20_000_000)));
    const total = sent.reduce((sum, bytes) => sum + bytes, 0);
    expect(total).toBeLessThanOrEqual(60 * (65_536 + 5 + 2 * WINDOW_BYTES));
  });

  it.each([
    ['health', CHECK],
    ['a watch without a request', WATCH],
    ['reflection', REFLECTION],
  ])('ends on %s at its time limit', async (_name, path) => {
    const { join } = await startPort({ ms: 100 });
    const { ended, stream } = call(join(), path);
    stream.write(EMPTY.subarray(0, 3));
    expect(ENDED).toHaveProperty((await ended).grpcStatus ?? '');
  });

  it('is closed on both sides after the answer, even if the caller keeps its side open', async () => {
    const { join } = await startPort({ ms: 100 });
    const authorization = `Bearer mr_${'x'.repeat(43)}`;
    const { ended } = call(join(), OPEN, { authorization, 'millrace-endpoint': ENDPOINT });
    expect(await ended).toEqual({ grpcStatus: status('UNAUTHENTICATED'), rstCode: 0 });
  });

  it('is refused if it is compressed, because a small message could become a large one', async () => {
    const { join } = await startPort();
    const { ended } = call(join(), CHECK, { 'grpc-encoding': 'gzip' });
    expect(await ended).toMatchObject({ grpcStatus: status('UNIMPLEMENTED') });
  });

  it('counts for the client that a trusted proxy names, and for nobody that a client names', async () => {
    const from = (address: string) => ({ 'x-forwarded-for': `192.0.2.1, ${address}` });
    for (const [trustedProxies, second] of [
      [['127.0.0.1'], '203.0.113.6'],
      [[], '203.0.113.5'],
    ] as const) {
      const { join } = await startPort({ calls: 1 }, { trustedProxies });
      const session = join();
      call(session, CHECK, from('203.0.113.5'));
      // Without a trusted proxy, both are calls of the peer.
      const other = call(session, CHECK, from(second));
      const same = call(session, CHECK, from('203.0.113.5'));
      expect(await same.ended).toMatchObject({ grpcStatus: status('RESOURCE_EXHAUSTED') });
      other.stream.end(EMPTY);
      const expected = trustedProxies.length > 0 ? 'OK' : 'RESOURCE_EXHAUSTED';
      expect(await other.ended).toMatchObject({ grpcStatus: status(expected) });
    }
  });

  it('is refused beyond the limit of an address until one of them ends', async () => {
    const { join } = await startPort({ calls: 3 });
    const session = join();
    const open = Array.from({ length: 3 }, () => call(session, CHECK));
    const refused = call(join(), CHECK);
    expect(await refused.ended).toMatchObject({ grpcStatus: status('RESOURCE_EXHAUSTED') });
    open[0]?.stream.close();
    await open[0]?.ended;
    await expect
      .poll(() => {
        const again = call(session, CHECK);
        again.stream.end(EMPTY);
        return again.ended;
      })
      .toMatchObject({ grpcStatus: status('OK') });
  });
});

describe('a watch of the health', () => {
  it('lasts longer than other calls, up to a limit per address', async () => {
    const { join } = await startPort({ ms: 100, watches: 2, calls: 2 });
    const session = join();
    const watches = Array.from({ length: 2 }, () => call(session, WATCH));
    const answered = watches.map(
      ({ stream }) => new Promise((resolve) => stream.once('response', resolve)),
    );
    for (const { stream } of watches) stream.end(EMPTY);
    await Promise.all(answered);
    // Its end shows that the time is over.
    await call(session, CHECK).ended;
    const isOpen = watches.map(({ stream }) => !stream.closed && !stream.destroyed);
    expect(isOpen).toEqual([true, true]);
    const third = call(session, WATCH);
    expect(await third.ended).toMatchObject({ grpcStatus: status('RESOURCE_EXHAUSTED') });
  });
});

describe("a worker's stream", () => {
  it('has the limits of workers: it lasts and accepts large messages', async () => {
    const { join, metadata } = await startPort({ ms: 50 });
    const session = join();
    const opened = call(session, OPEN, metadata);
    expect(await flood(opened, 2_000_000)).toBeGreaterThanOrEqual(2_000_000);
    await call(session, CHECK).ended;
    expect(opened.stream.closed).toBe(false);
  });

  it('keeps its connection when there are too many, and the oldest without a key is closed', async () => {
    const { join, metadata } = await startPort({}, { maxConnections: 3 });
    const connected = async () => {
      const session = join();
      await new Promise((resolve) => session.once('remoteSettings', resolve));
      return session;
    };
    const known = await connected();
    const opened = call(known, OPEN, metadata);
    await new Promise((resolve) => opened.stream.once('response', resolve));
    const sessions = [await connected(), await connected()];
    const closed = new Promise((resolve) => sessions[0]?.once('close', resolve));
    sessions.push(await connected());
    await closed;
    expect([known, ...sessions].map((session) => session.closed)).toEqual([
      false,
      true,
      false,
      false,
    ]);
    expect(opened.stream.closed).toBe(false);
  });

  it('is refused on a connection with a hundred open streams', async () => {
    const { join } = await startPort();
    const session = join();
    await new Promise((resolve) => session.once('remoteSettings', resolve));
    expect(session.remoteSettings.maxConcurrentStreams).toBe(100);
  });

  it('is refused beyond the limit of its user until one of them ends', async () => {
    const { join, metadata } = await startPort({}, { maxUserStreams: 2 });
    const session = join();
    const open = [call(session, OPEN, metadata), call(join(), OPEN, metadata)];
    await Promise.all(
      open.map(({ stream }) => new Promise((resolve) => stream.once('response', resolve))),
    );
    const { ended } = call(session, OPEN, metadata);
    expect(await ended).toMatchObject({ grpcStatus: status('RESOURCE_EXHAUSTED') });
    open[0]?.stream.close();
    await open[0]?.ended;
    await expect
      .poll(async () => {
        const again = call(session, OPEN, metadata);
        const answered = new Promise((resolve) => again.stream.once('response', resolve));
        return Promise.race([again.ended, answered.then(() => 'answered')]);
      })
      .toBe('answered');
  });

  it('starts in a batch of a burst, one batch per iteration of the event loop', async () => {
    const { begun, join, metadata } = await startPort();
    const session = join();
    const perTurn: number[] = [];
    let isOver = false;
    const watch = async () => {
      for (let before = 0; !isOver; before = begun.count) {
        await setImmediate();
        perTurn.push(begun.count - before);
      }
    };
    const watching = watch();
    await new Promise((resolve) => session.once('remoteSettings', resolve));
    const calls = Array.from({ length: 100 }, () => call(session, OPEN, metadata));
    await Promise.all(
      calls.map(({ stream }) => new Promise((resolve) => stream.once('response', resolve))),
    );
    isOver = true;
    await watching;
    expect(begun.count).toBe(100);
    expect(Math.max(...perTurn)).toBeLessThan(100);
  });

  it('is reset if its user has too many bytes in incomplete messages', async () => {
    const { budget, join, metadata } = await startPort({}, { maxWorkerInFlightBytes: 64 * MB });
    const first = call(join(), OPEN, metadata);
    first.stream.write(prefix(20 * MB));
    await expect.poll(() => budget.usedBytes).toBe(20 * MB);
    const second = call(join(), OPEN, metadata);
    expect(await flood(second, 20 * MB)).toBeLessThanOrEqual(2 * WINDOW_BYTES);
    expect(await second.ended).toMatchObject({ rstCode: constants.NGHTTP2_ENHANCE_YOUR_CALM });
    expect(first.stream.closed).toBe(false);
    first.stream.close();
    await expect.poll(() => budget.usedBytes).toBe(0);
    expect(await flood(call(join(), OPEN, metadata), 20 * MB)).toBeGreaterThanOrEqual(20 * MB);
  });

  it('is closed on both sides after the platform has ended it, even if the worker keeps its side open', async () => {
    const { join, metadata } = await startPort({}, { stallMs: 100 });
    const opened = call(join(), OPEN, metadata);
    // No message has this form.
    opened.stream.write(Buffer.concat([prefix(3), Buffer.alloc(3, 0xff)]));
    const { grpcStatus, rstCode } = await opened.ended;
    expect([grpcStatus, rstCode]).toEqual([expect.any(String), constants.NGHTTP2_NO_ERROR]);
  });

  it('is reset when a message stalls', async () => {
    const { join, metadata } = await startPort({}, { stallMs: 100 });
    const opened = call(join(), OPEN, metadata);
    opened.stream.write(prefix(1_000).subarray(0, 3));
    expect(await opened.ended).toMatchObject({ rstCode: constants.NGHTTP2_CANCEL });
  });

  it('is reset when the worker never opens its flow-control window', async () => {
    const { join, metadata } = await startPort({}, { stallMs: 100 });
    const session = join({ settings: { initialWindowSize: 0 } });
    const quiet = call(session, OPEN, metadata);
    const asked = call(session, OPEN, metadata);
    // A question of no kind, which is refused with a message.
    asked.stream.write(EMPTY);
    expect(await asked.ended).toMatchObject({ rstCode: constants.NGHTTP2_CANCEL });
    expect(quiet.stream.closed).toBe(false);
  });

  it('keeps its connection open; a connection without a stream is closed for others of the user', async () => {
    const { join, metadata } = await startPort({}, { maxUserConnections: 2 });
    const opened = async () => {
      const session = join();
      const { ended, stream } = call(session, OPEN, metadata);
      await Promise.race([ended, new Promise((resolve) => stream.once('response', resolve))]);
      return { session, stream, ended };
    };
    const [idle, busy] = [await opened(), await opened()];
    expect((await (await opened()).ended).grpcStatus).toBe(status('RESOURCE_EXHAUSTED'));
    idle.stream.close();
    await idle.ended;
    const closed = new Promise((resolve) => idle.session.once('close', resolve));
    await expect.poll(async () => (await opened()).stream.closed).toBe(false);
    await closed;
    expect(busy.stream.closed).toBe(false);
  });
});
