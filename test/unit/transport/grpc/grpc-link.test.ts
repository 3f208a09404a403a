// WorkerLink over gRPC against a scripted server on loopback: what travels, and what each end means.
import { createServer as createHttpServer } from 'node:http';
import {
  type AddressInfo,
  createServer as createNetServer,
  type Server as NetServer,
} from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import {
  Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  status,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { createGrpcLink, type GrpcLinkOptions } from '../../../../src/transport/grpc/grpc-link.ts';
import type { RoutedLink } from '../../../../src/transport/routed-link.ts';
import type { LinkError, Report, TakeRequest } from '../../../../src/wire/link/worker-link.ts';
import {
  type Envelope,
  METADATA,
  openEnvelope,
  PROTO_OPTIONS,
  PROTO_PATH,
  SERVICE_NAME,
} from '../../../../src/wire/link/worker-stream.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../../support/certificates.ts';

type Call = ServerDuplexStream<object, object>;
/** What the platform does with a question. */
type Handle = (call: Call, question: Envelope) => void;

const servers: Server[] = [];
const links: RoutedLink[] = [];

afterEach(async () => {
  for (const link of links.splice(0)) await link.close();
  for (const server of servers.splice(0)) server.forceShutdown();
});

interface Script {
  port: number;
  /** Each stream that was opened. */
  streams: Call[];
  stop(): void;
}

async function listen(
  handle: Handle,
  onOpen: (call: Call) => unknown = () => {},
  port = 0,
): Promise<Script> {
  const service = loadSync(PROTO_PATH, PROTO_OPTIONS)[SERVICE_NAME];
  if (!service || 'format' in service) throw new Error('no such service');
  const streams: Call[] = [];
  const server = new Server();
  server.addService(service, {
    Open(call: Call) {
      streams.push(call);
      call.on('error', () => {});
      call.on('data', (message: object) => handle(call, openEnvelope(message)));
      onOpen(call);
    },
  });
  servers.push(server);
  const bound = await new Promise<number>((resolve, reject) => {
    const how = ServerCredentials.createInsecure();
    server.bindAsync(`127.0.0.1:${port}`, how, (error, found) =>
      error ? reject(error) : resolve(found),
    );
  });
  return { port: bound, streams, stop: () => server.forceShutdown() };
}

function connect(
  port: number,
  options: Partial<Pick<GrpcLinkOptions, 'clock' | 'key'>> = {},
): RoutedLink {
  const url = `grpc://127.0.0.1:${port}`;
  const link = createGrpcLink({ url, endpointId: 'echo', key: 'mr_k', log: silentLog, ...options });
  links.push(link);
  return link;
}

async function serve(handle: Handle, options: { clock?: ManualClock } = {}) {
  const script = await listen(handle);
  return { ...script, link: connect(script.port, options) };
}

function errorOf(call: Promise<unknown>): Promise<LinkError> {
  return call.then(
    () => {
      throw new Error('the call was answered');
    },
    (error: LinkError) => error,
  );
}

const never = new AbortController().signal;
/** Default of the link's option `answerMarginMs`. */
const DEFAULT_MARGIN_MS = 15_000;
const identity = { workerId: 'w1', incarnation: 3 };
const hello = { ...identity, protocol: 1, version: '0.0.0', slots: 2, devices: [], outbox: [] };
const welcome = {
  ...{ protocol: 1, capabilities: [], leaseMs: 15_000, renewEveryMs: 5_000, takeWaitMs: 20_000 },
};
const take: TakeRequest = { ...identity, takeId: 't', max: 2, waitMs: 20, held: ['x'] };
const renew = { ...identity, waitMs: 0, leases: [] };
const lease = {
  ...{ jobId: 'a', attempt: 1, token: 's', executionTimeoutMs: 1_000, solo: false, submittedAt: 5 },
};
const outcome: Report = {
  ...{ kind: 'outcome', jobId: 'a', attempt: 1, token: 's', seq: 1, body: Buffer.from('"äöü"') },
  outcome: { kind: 'completed', executionMs: 3, output: 'value' },
};
const answerHello = (call: Call, { call: number }: Pick<Envelope, 'call'>) =>
  call.write({ call: number, welcome });

describe('the gRPC link', () => {
  it('makes all calls on one stream, opened with the key and the endpoint', async () => {
    const asked: unknown[] = [];
    const { link, streams } = await serve((call, { call: number, content, kind }) => {
      asked.push([number, kind, content]);
      const answers: Record<string, object> = {
        hello: { welcome },
        credit: { leases: { leases: [] } },
        renew: { renewed: { ended: [], drain: true } },
        reports: { reportAnswers: { answers: [{ answer: 'gap', expected: 4 }] } },
        bye: { goodbye: {} },
      };
      call.write({ call: number, ...answers[kind ?? ''] });
    });
    expect(await link.hello(hello)).toEqual(welcome);
    expect(await link.take(take, never)).toEqual([]);
    expect(await link.renew(renew, never)).toEqual({ ended: [], drain: true });
    const reports = { ...identity, reports: [outcome] };
    expect(await link.report(reports)).toEqual([{ answer: 'gap', expected: 4 }]);
    await link.bye({ ...identity, reason: 'drained', outbox: [] });
    const { body, ...header } = outcome;
    expect(asked).toMatchObject([
      [1, 'hello', hello],
      [2, 'credit', take],
      [3, 'renew', renew],
      [4, 'reports', { ...identity, reports: [{ ...header, bodyBytes: 8 }], payload: body }],
      [5, 'bye', { ...identity, reason: 'drained' }],
    ]);
    expect(streams).toHaveLength(1);
    expect(streams[0]?.metadata.get(METADATA.key)).toEqual(['Bearer mr_k']);
    expect(streams[0]?.metadata.get(METADATA.endpoint)).toEqual(['echo']);
  });

  it('matches answers to calls in any order', async () => {
    const waiting: (() => void)[] = [];
    const { link } = await serve((call, { call: number, kind }) => {
      const answer = kind === 'renew' ? { renewed: { drain: true } } : { leases: {} };
      waiting.push(() => call.write({ call: number, ...answer }));
      if (waiting.length === 2) for (const tell of waiting.reverse()) tell();
    });
    const [leases, renewed] = await Promise.all([link.take(take, never), link.renew(renew, never)]);
    expect(leases).toEqual([]);
    expect(renewed).toEqual({ ended: [], drain: true });
  });

  it('joins leases whose inputs arrive in pieces', async () => {
    const { link } = await serve((call, { call: number }) => {
      const headers = [
        { ...lease, bodyBytes: 3 },
        { ...lease, token: 's2', bodyBytes: 2 },
      ];
      call.write({ call: number, leases: { leases: headers, payload: Buffer.from('ab') } });
      call.write({ call: number, piece: { payload: Buffer.from('cd') } });
      call.write({ call: number, piece: { payload: Buffer.from('e') } });
    });
    const leases = await link.take(take, never);
    expect(leases).toEqual([
      { ...lease, input: Buffer.from('abc') },
      { ...lease, token: 's2', input: Buffer.from('de') },
    ]);
  });

  it('waits for a payload as long as its pieces arrive', async () => {
    const clock = new ManualClock();
    const asked = Promise.withResolvers<{ call: Call; number: number }>();
    const { link } = await serve(
      (call, { call: number, kind }) => {
        if (kind === 'credit') asked.resolve({ call, number });
        else answerHello(call, { call: number });
      },
      { clock },
    );
    const taken = link.take(take, never);
    const { call, number } = await asked.promise;
    const headers = [{ ...lease, bodyBytes: 5 }];
    call.write({ call: number, leases: { leases: headers, payload: Buffer.from('a') } });
    for (const byte of ['b', 'c', 'd', 'e']) {
      // The answer to a later question shows that the pieces before it have arrived.
      await link.hello(hello);
      await clock.advance(take.waitMs + DEFAULT_MARGIN_MS - 1);
      call.write({ call: number, piece: { payload: Buffer.from(byte) } });
    }
    expect(await taken).toEqual([{ ...lease, input: Buffer.from('abcde') }]);
  });

  it('encodes the endpoint ID for metadata', async () => {
    const { port, streams } = await listen(answerHello);
    const url = `grpc://127.0.0.1:${port}`;
    const link = createGrpcLink({ url, endpointId: 'bläh %', key: 'mr_k', log: silentLog });
    links.push(link);
    await link.hello(hello);
    expect(streams[0]?.metadata.get(METADATA.endpoint)).toEqual(['bl%C3%A4h%20%25']);
  });

  it('sends a large payload in pieces, with urgent calls between them', async () => {
    const order: (string | undefined)[] = [];
    let bytes = 0;
    let begin: (() => void) | undefined;
    const begun = new Promise<void>((resolve) => {
      begin = resolve;
    });
    const { link } = await serve((call, { call: number, kind, payload }) => {
      order.push(kind);
      begin?.();
      bytes += payload.length;
      if (kind === 'renew') call.write({ call: number, renewed: {} });
      if (bytes < 3_000_000 || kind === 'renew') return;
      call.write({ call: number, reportAnswers: { answers: [{ answer: 'applied' }] } });
    });
    const body = Buffer.alloc(3_000_000, 0x31);
    const reported = link.report({ ...identity, reports: [{ ...outcome, body }] });
    await begun;
    await link.renew(renew, never);
    expect(await reported).toEqual([{ answer: 'applied' }]);
    expect(order[0]).toBe('reports');
    expect(order.indexOf('renew')).toBeLessThan(order.length - 10);
  });
});

describe('a refusal is', () => {
  it.each(['stale_incarnation', 'unknown_worker', 'unauthorized', 'invalid', 'unavailable'])(
    'an error of its own code: %s',
    async (code) => {
      const { link } = await serve((call, { call: number }) =>
        call.write({ call: number, refusal: { code, detail: 'why', retryAfterMs: 40 } }),
      );
      expect(await errorOf(link.hello(hello))).toMatchObject({
        ...{ name: 'LinkError', code, message: expect.stringContaining('why'), retryAfterMs: 40 },
      });
    },
  );

  it('unavailable if its code is newer than the worker', async () => {
    const { link } = await serve((call, { call: number }) =>
      call.write({ call: number, refusal: { code: 'moon_phase' } }),
    );
    expect(await errorOf(link.hello(hello))).toMatchObject({
      ...{ code: 'unavailable', retryAfterMs: undefined },
    });
  });
});

describe('a stream that ends', () => {
  it.each([
    [status.UNAUTHENTICATED, 'unauthorized', undefined],
    [status.PERMISSION_DENIED, 'unauthorized', undefined],
    [status.INVALID_ARGUMENT, 'invalid', undefined],
    [status.NOT_FOUND, 'unavailable', 10_000],
    [status.UNIMPLEMENTED, 'unavailable', 10_000],
    [status.RESOURCE_EXHAUSTED, 'unavailable', undefined],
    [status.INTERNAL, 'unavailable', undefined],
  ])('turns status %d into %s', async (code, expected, retryAfterMs) => {
    const { port } = await listen(
      () => {},
      (call) => call.emit('error', { code, details: 'the reason' }),
    );
    const error = await errorOf(connect(port).hello(hello));
    expect(error).toMatchObject({ code: expected, retryAfterMs });
    expect(error.message).toContain('the reason');
  });

  it.each([
    ['1500', 1_500],
    ['999999999', 3_600_000],
    ['soon', undefined],
  ])('passes on the platform’s retry delay: %s', async (told, retryAfterMs) => {
    const metadata = new Metadata();
    metadata.set(METADATA.retryAfterMs, told);
    const { port } = await listen(
      () => {},
      (call) => call.emit('error', { code: status.UNAVAILABLE, details: 'stopping', metadata }),
    );
    expect(await errorOf(connect(port).hello(hello))).toMatchObject({ retryAfterMs });
  });

  it('ends every open call, and the next call opens another stream', async () => {
    let isWell = false;
    const { link, streams } = await serve((call, question) => {
      if (isWell) answerHello(call, question);
      else if (question.kind === 'renew') call.end();
    });
    const open = [link.take(take, never), link.renew(renew, never)].map(errorOf);
    for (const error of await Promise.all(open)) expect(error.code).toBe('unavailable');
    isWell = true;
    expect(await link.hello(hello)).toEqual(welcome);
    expect(streams).toHaveLength(2);
  });

  it('reopens when the platform is back', async () => {
    const first = await listen(answerHello);
    const link = connect(first.port);
    await link.hello(hello);
    first.stop();
    expect(await errorOf(link.renew(renew, never))).toMatchObject({ code: 'unavailable' });
    await listen(answerHello, undefined, first.port);
    const greet = () => link.hello(hello).catch(() => undefined);
    await expect.poll(greet).toEqual(welcome);
  });
});

describe('a platform that is silent', () => {
  it('is abandoned after the margin, with all open calls, for a new connection', async () => {
    const clock = new ManualClock();
    let isSilent = true;
    const arrived = Promise.withResolvers<void>();
    const handle: Handle = (call, question) => {
      if (!isSilent) answerHello(call, question);
      else if (question.kind === 'hello') arrived.resolve();
    };
    const peers = new Set<string>();
    const { port } = await listen(handle, (call) => peers.add(call.getPeer()));
    const link = connect(port, { clock });
    let isOpen = true;
    const waiting = errorOf(link.take({ ...take, waitMs: 60_000 }, never));
    const greeting = errorOf(link.hello(hello)).finally(() => {
      isOpen = false;
    });
    await arrived.promise;
    await clock.advance(DEFAULT_MARGIN_MS - 1);
    expect(isOpen).toBe(true);
    await clock.advance(1);
    expect(await greeting).toMatchObject({ code: 'unavailable' });
    expect(await waiting).toMatchObject({ code: 'unavailable' });
    isSilent = false;
    await link.hello(hello);
    expect(peers.size).toBe(2);
  });

  it('is abandoned with a renewal if nothing has arrived since', async () => {
    const clock = new ManualClock();
    const { link } = await serve(() => {}, { clock });
    const waiting = errorOf(link.take({ ...take, waitMs: 60_000 }, never));
    const overdue = new AbortController();
    const renewal = errorOf(link.renew(renew, overdue.signal));
    await clock.advance(renew.waitMs + 1);
    overdue.abort();
    expect(await renewal).toMatchObject({
      ...{ code: 'unavailable', message: expect.stringContaining('cancelled') },
    });
    expect(await waiting).toMatchObject({ code: 'unavailable' });
  });
});

describe('a cancelled call', () => {
  it('is cancelled at the platform and does not affect others', async () => {
    const kinds: (string | undefined)[] = [];
    const { link, streams } = await serve((call, question) => {
      kinds.push(question.kind);
      if (question.kind === 'hello') answerHello(call, question);
    });
    const leaving = new AbortController();
    const waiting = errorOf(link.take({ ...take, waitMs: 60_000 }, leaving.signal));
    await link.hello(hello);
    leaving.abort();
    expect(await waiting).toMatchObject({ code: 'unavailable' });
    await link.hello(hello);
    expect(kinds).toEqual(['credit', 'hello', 'abort', 'hello']);
    expect(streams).toHaveLength(1);
  });

  it('may still be answered, and only that answer is ignored', async () => {
    const { link, streams } = await serve((call, { call: number, kind }) => {
      if (kind === 'abort') call.write({ call: number, leases: { leases: [lease] } });
      if (kind === 'hello') call.write({ call: number, welcome });
    });
    const leaving = new AbortController();
    const waiting = errorOf(link.take({ ...take, waitMs: 60_000 }, leaving.signal));
    leaving.abort();
    expect(await waiting).toMatchObject({ code: 'unavailable' });
    expect(await link.hello(hello)).toEqual(welcome);
    expect(streams).toHaveLength(1);
  });

  it('is not sent if it is cancelled before', async () => {
    const { link } = await serve(() => {});
    const gone = AbortSignal.abort();
    expect(await errorOf(link.take(take, gone))).toMatchObject({ code: 'unavailable' });
  });
});

describe('an unreadable answer is unavailable:', () => {
  it.each([
    ['of another kind', { goodbye: {} }],
    ['with a lease without a token', { leases: { leases: [{ jobId: 'a', attempt: 1 }] } }],
    ['with more payload than it names', { leases: { leases: [lease], payload: Buffer.from('x') } }],
    ['with a piece before the first one', { piece: { payload: Buffer.from('x') } }],
    ['without a kind', {}],
  ])('%s', async (_name, answer) => {
    const { link } = await serve((call, { call: number }) =>
      call.write({ call: number, ...answer }),
    );
    expect(await errorOf(link.take(take, never))).toMatchObject({ code: 'unavailable' });
  });

  it('fewer answers than reports', async () => {
    const { link } = await serve((call, { call: number }) =>
      call.write({ call: number, reportAnswers: { answers: [] } }),
    );
    const reported = link.report({ ...identity, reports: [outcome] });
    expect(await errorOf(reported)).toMatchObject({
      ...{ code: 'unavailable', message: expect.stringMatching(/\b0\b.*\b1\b/) },
    });
  });
});

describe('a link', () => {
  it('is unavailable without a server, with the reason', async () => {
    const script = await listen(() => {});
    script.stop();
    const error = await errorOf(connect(script.port).hello(hello));
    expect(error.code).toBe('unavailable');
    expect(error.message).toContain('ECONNREFUSED');
  });

  const TLS_ASKED = 'closed while opening; check whether the port needs TLS or another client';
  it.each<[string, string, () => NetServer, string]>([
    [
      'without TLS to a TLS port',
      'grpc',
      () => createTlsServer({ cert: CERTIFICATE, key: CERTIFICATE_KEY }),
      TLS_ASKED,
    ],
    [
      'to a port that resets connections',
      'grpc',
      () =>
        createNetServer((socket) => {
          // Not before the other end takes the connection for open.
          socket.on('error', () => {}).once('data', () => socket.resetAndDestroy());
        }),
      TLS_ASKED,
    ],
    [
      'to a port whose certificate is not trusted',
      'grpcs',
      () => createTlsServer({ cert: CERTIFICATE, key: CERTIFICATE_KEY, ALPNProtocols: ['h2'] }),
      'self-signed certificate; give the worker --ca FILE',
    ],
    ['with TLS to a plain port', 'grpcs', () => createHttpServer(), 'TLS: wrong version number'],
    ['to an HTTP/1 port', 'grpc', () => createHttpServer(), 'check that the port is the gRPC port'],
  ])('gives the reason %s, in the same words each time', async (_name, scheme, create, words) => {
    const server = create();
    onTestFinished(() => void server.close());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const link = createGrpcLink({
      ...{ url: `${scheme}://127.0.0.1:${port}`, endpointId: 'echo', key: 'mr_k', log: silentLog },
    });
    links.push(link);
    const first = await errorOf(link.hello(hello));
    expect(first).toMatchObject({ code: 'unavailable', message: expect.stringContaining(words) });
    expect(first.message).toMatch(/^[^\n]*$/);
    // The library tells when its last try was; by then it has tried again.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await errorOf(link.hello(hello))).message).toBe(first.message);
  });

  it('rejects all calls once closed', async () => {
    const { link } = await serve(() => {});
    const open = errorOf(link.take({ ...take, waitMs: 60_000 }, never));
    await link.close();
    expect(await open).toMatchObject({ code: 'unavailable' });
    expect(await errorOf(link.hello(hello))).toMatchObject({ code: 'unavailable' });
  });

  it('is unauthorized with a key that cannot be sent, without quoting the key', async () => {
    const { port } = await listen(() => {});
    const error = await errorOf(connect(port, { key: 'sécret' }).hello(hello));
    expect(error.code).toBe('unauthorized');
    expect(error.message).not.toContain('cret');
  });

  it.each(['ftp://a:1', 'grpc://a:1/path', 'grpc:', 'nothing'])('is not created for %s', (url) => {
    const options = { url, endpointId: 'echo', key: 'mr_k', log: silentLog };
    expect(() => createGrpcLink(options)).toThrow(TypeError);
  });

  it('is not created with an invalid certificate', () => {
    const key = '-----BEGIN PRIVATE KEY-----\nnone\n-----END PRIVATE KEY-----\n';
    const tls = () => ({ cert: CERTIFICATE, key });
    const options = { url: 'grpcs://a:1', endpointId: 'echo', key: 'mr_k', log: silentLog, tls };
    expect(() => createGrpcLink(options)).toThrow(TypeError);
  });
});
