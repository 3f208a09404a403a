// What the gRPC port takes from callers without a valid key, seen by a raw HTTP/2 client.
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { KeylessLimits } from '../../../../src/api/grpc/limits.ts';
import { createGrpcServer } from '../../../../src/api/grpc/server.ts';
import type { HttpBounds } from '../../../../src/api/http/bounds.ts';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { ENDPOINT, startPlatform } from '../platform.ts';

const CHECK = '/grpc.health.v1.Health/Check';
const WATCH = '/grpc.health.v1.Health/Watch';
const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
const OPEN = '/millrace.worker.v1.WorkerLink/Open';
/** An empty message: the health of the whole server. */
const EMPTY = Buffer.alloc(5);
/** What may be on its way when the server resets a stream: the window that it had granted. */
const WINDOW_BYTES = 65_535;
const ENDED = { [status('DEADLINE_EXCEEDED')]: true };

function status(
  name: 'RESOURCE_EXHAUSTED' | 'DEADLINE_EXCEEDED' | 'UNAUTHENTICATED' | 'OK',
): string {
  return { OK: '0', DEADLINE_EXCEEDED: '4', RESOURCE_EXHAUSTED: '8', UNAUTHENTICATED: '16' }[name];
}

async function startPort(
  keylessLimits: Partial<KeylessLimits> = {},
  bounds: Partial<HttpBounds> = {},
) {
  const { endpoints, keys, queue, worker } = await startPlatform();
  const server = createGrpcServer({
    ...{ keys, endpoints, clock: systemClock, log: silentLog, host: '127.0.0.1', port: 0 },
    linkTo: (id) => (id === ENDPOINT ? queue.link(id) : undefined),
    noteCrash: () => {},
    isClosing: () => queue.isClosing,
    keylessLimits,
    bounds,
  });
  const { url } = await server.start();
  const sessions: ClientHttp2Session[] = [];
  onTestFinished(async () => {
    for (const session of sessions) session.destroy();
    await server.close();
  });
  const join = () => {
    const session = connect(url.replace('grpc:', 'http:'));
    session.on('error', () => {});
    sessions.push(session);
    return session;
  };
  return { join, worker };
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

/** Sends until the server takes no more. @returns the bytes that went out */
async function flood({ ended, stream }: Call, bytes: number): Promise<number> {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(bytes, 1);
  let sent = 0;
  let isOpen = true;
  const closed = ended.then(() => {
    isOpen = false;
  });
  for (let piece = prefix; isOpen && sent < bytes; piece = Buffer.alloc(16_384)) {
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
  ])('to %s is reset once it has sent more than 64 KB', async (_name, path) => {
    const { join } = await startPort();
    const asked = call(join(), path);
    const sent = await flood(asked, 20_000_000);
    expect(sent).toBeLessThanOrEqual(65_536 + 5 + 2 * WINDOW_BYTES);
    const { grpcStatus, rstCode } = await asked.ended;
    // The library itself answers at once where there is no such method.
    if (grpcStatus === undefined) expect(rstCode).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  });

  it('takes little of sixty messages of 20 MB', async () => {
    const { join } = await startPort();
    const session = join();
    const calls = Array.from({ length: 60 }, () => call(session, CHECK));
    const sent = await Promise.all(calls.map((each) => flood(each, 20_000_000)));
    const total = sent.reduce((sum, bytes) => sum + bytes, 0);
    expect(total).toBeLessThanOrEqual(60 * (65_536 + 5 + 2 * WINDOW_BYTES));
  });

  it.each([
    ['health', CHECK],
    ['a watch that asks nothing', WATCH],
    ['reflection', REFLECTION],
  ])('to %s ends when its time is over', async (_name, path) => {
    const { join } = await startPort({ ms: 100 });
    const { ended, stream } = call(join(), path);
    stream.write(EMPTY.subarray(0, 3));
    expect(ENDED).toHaveProperty((await ended).grpcStatus ?? '');
  });

  it('is closed on both sides when it was answered and the caller keeps its own open', async () => {
    const { join } = await startPort({ ms: 100 });
    const authorization = `Bearer mr_${'x'.repeat(43)}`;
    const { ended } = call(join(), OPEN, { authorization, 'millrace-endpoint': ENDPOINT });
    expect(await ended).toEqual({ grpcStatus: status('UNAUTHENTICATED'), rstCode: 0 });
  });

  it('is refused beyond those that an address may have open, until one of them ends', async () => {
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
  it('lasts beyond the time of other calls, so many an address', async () => {
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
  it('has the limits of workers: it lasts, and takes what is large', async () => {
    const { join, worker } = await startPort({ ms: 50 });
    const session = join();
    const metadata = { authorization: `Bearer ${worker}`, 'millrace-endpoint': ENDPOINT };
    const opened = call(session, OPEN, metadata);
    expect(await flood(opened, 2_000_000)).toBeGreaterThanOrEqual(2_000_000);
    await call(session, CHECK).ended;
    expect(opened.stream.closed).toBe(false);
  });

  it('keeps its connection when there are too many; the oldest without a key is closed', async () => {
    const { join, worker } = await startPort({}, { maxConnections: 3 });
    const connected = async () => {
      const session = join();
      await new Promise((resolve) => session.once('remoteSettings', resolve));
      return session;
    };
    const known = await connected();
    const metadata = { authorization: `Bearer ${worker}`, 'millrace-endpoint': ENDPOINT };
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

  it('is refused on a connection that has a hundred open', async () => {
    const { join } = await startPort();
    const session = join();
    await new Promise((resolve) => session.once('remoteSettings', resolve));
    expect(session.remoteSettings.maxConcurrentStreams).toBe(100);
  });
});
