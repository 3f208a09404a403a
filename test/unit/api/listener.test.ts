// Which requests are parsed and served, and when, with real sockets.
import { once } from 'node:events';
import { type RequestListener, type ServerResponse, request as send } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ClientOrigins } from '../../../src/api/http/client-origin.ts';
import { DEFAULT_BOUNDS, type HttpBounds } from '../../../src/api/limits/bounds.ts';
import { Connections } from '../../../src/api/limits/connections.ts';
import { createListener, type IntakeOptions } from '../../../src/api/listener.ts';
import { findUpgrade } from '../../../src/api/proxy/upgrade.ts';
import { ByteBudget } from '../../../src/base/byte-budget.ts';
import { ManualClock } from '../../../src/base/clock.ts';
import { FairScheduler } from '../../../src/base/fair-scheduler.ts';
import { createLog } from '../../../src/base/log.ts';
import { Dice } from '../../support/fuzz/dice.ts';

interface StageOptions {
  bounds?: Partial<HttpBounds>;
  perIteration?: number;
  maxBytes?: number;
  /** Is called for requests that wait. Default: the header `key` names the user. */
  findUser?: IntakeOptions['findUser'];
  origins?: ClientOrigins;
  listener: RequestListener;
}

const findByHeader: IntakeOptions['findUser'] = ({ headers }) => headers['key']?.toString();

/** A path that begins with `/as/` shows a valid key. */
async function startStage(options: StageOptions) {
  const { bounds, findUser = findByHeader, listener, maxBytes = 1e9, perIteration = 64 } = options;
  const { origins } = options;
  const clock = new ManualClock();
  const all = { ...DEFAULT_BOUNDS, ...bounds };
  const connections = new Connections({ bounds: all, clock, log: createLog({ level: 'fatal' }) });
  const server = createListener(
    (request, response) => {
      if (request.url?.startsWith('/as/')) connections.noteUser(request.socket, 'ada');
      listener(request, response);
    },
    {
      ...{ bounds: all, clock, scheduler: new FairScheduler(perIteration) },
      ...{ findUser, origins },
      budget: new ByteBudget({ clock, maxBytes, maxOwnerBytes: maxBytes }),
    },
    connections,
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  onTestFinished(() => {
    connections.stop();
    connections.closeAll();
    server.close();
  });
  const open = async (): Promise<Socket> => {
    const socket = connect(port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {});
    await once(socket, 'connect');
    return socket;
  };
  return { clock, open, port, server };
}

const get = (path: string, header = '') => `GET ${path} HTTP/1.1\r\nHost: x\r\n${header}\r\n`;

/** Long enough for the event loop to have read what has arrived. */
async function passIterations(count = 50): Promise<void> {
  for (let at = 0; at < count; at++) await setImmediate();
}

describe('requests that are sent without waiting for answers', () => {
  async function holdAll(bounds: Partial<HttpBounds>) {
    const held: ServerResponse[] = [];
    let served = 0;
    const { open } = await startStage({
      bounds,
      listener: (_request, response) => {
        held.push(response);
        served += 1;
      },
    });
    return { open, held, countServed: () => served };
  }

  it.each([
    ['/', 4],
    ['/as/ada', 9],
  ])('are read a bounded number ahead on %s, and all are answered', async (path, bound) => {
    const { countServed, held, open } = await holdAll({ maxPipelinedRequests: 9 });
    const socket = await open();
    socket.write(get(path).repeat(99));
    await expect.poll(countServed).toBe(bound);
    await passIterations();
    expect(countServed()).toBe(bound);
    let answers = '';
    socket.on('data', (data) => {
      answers += data;
    });
    while (answers.split('HTTP/1.1 200').length <= 99) {
      for (const response of held.splice(0)) response.end();
      expect(held.length).toBeLessThanOrEqual(bound);
      await setImmediate();
    }
    expect(countServed()).toBe(99);
  });

  it('are read on within the body of the last one that is served', async () => {
    const bodies: string[] = [];
    const { open } = await startStage({
      async listener(request) {
        let body = '';
        for await (const piece of request) body += piece;
        bodies.push(body);
      },
    });
    const socket = await open();
    socket.write(`${get('/').repeat(3)}POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n`);
    await expect.poll(() => bodies.length).toBe(3);
    socket.write(`0123456789${get('/')}`);
    await expect.poll(() => bodies).toEqual(['', '', '', '0123456789']);
    await passIterations();
    expect(bodies).toHaveLength(4);
  });

  it('are read one by one if the end of a head comes in a piece of its own', async () => {
    const { countServed, open } = await holdAll({ maxKeylessPipelinedRequests: 1 });
    const socket = (await open()).setNoDelay();
    socket.write(get('/').slice(0, -1));
    await passIterations();
    socket.write(`\n${get('/')}`);
    await expect.poll(countServed).toBe(1);
    await passIterations();
    expect(countServed()).toBe(1);
  });

  it('wait for their turn one of each connection at a time', async () => {
    let waiting = 0;
    let most = 0;
    let served = 0;
    const { open } = await startStage({
      perIteration: 1,
      findUser() {
        waiting += 1;
        most = Math.max(most, waiting - served);
        return 'ada';
      },
      listener(_request, response) {
        served += 1;
        response.end();
      },
    });
    const sockets = await Promise.all(Array.from({ length: 10 }, open));
    for (const socket of sockets) socket.resume().write(get('/as/ada').repeat(20));
    await expect.poll(() => served).toBe(200);
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(10);
  });

  it('close their connection beyond the budget of bytes', async () => {
    const { open } = await startStage({ maxBytes: 40_000, listener: () => {} });
    const [first, second] = [await open(), await open()];
    for (const socket of [first, second]) socket.write(get(`/${'x'.repeat(5_000)}`).repeat(9));
    await Promise.race([first, second].map((socket) => once(socket.resume(), 'close')));
    expect([first, second].filter(({ closed }) => closed)).toHaveLength(1);
  });
});

it('answers bytes that are not HTTP with one error, whatever follows them', async () => {
  const { open, server } = await startStage({ listener: () => {} });
  let errors = 0;
  server.on('clientError', () => {
    errors += 1;
  });
  const socket = await open();
  socket.write(`not HTTP at all\r\n\r\n`.repeat(1_000));
  await expect.poll(() => errors).toBeGreaterThan(0);
  await passIterations();
  expect(errors).toBe(1);
});

it('requests and bodies arrive whole, wherever the network has cut them', async () => {
  const dice = new Dice(7, 1);
  const seen: string[] = [];
  const { open } = await startStage({
    async listener(request, response) {
      let body = '';
      for await (const piece of request) body += piece;
      seen.push(`${request.url} ${body}`);
      response.end();
    },
  });
  const parts: [string, ...string[]] = ['\r\n\r\n', 'x', '\n', 'GET / HTTP/1.1\r\n\r\n', '\r\n'];
  for (let round = 0; round < 40; round++) {
    const wanted: string[] = [];
    let bytes = '';
    for (let n = 0; n < 8; n++) {
      const body = Array.from({ length: dice.integer(0, 5) }, () => dice.pick(parts)).join('');
      const path = dice.chance(0.5) ? `/as/${n}` : `/${n}`;
      const isChunked = dice.chance(0.5);
      const chunk = body && `${body.length.toString(16)}\r\n${body}\r\n`;
      bytes += `POST ${path} HTTP/1.1\r\nHost: x\r\n`;
      bytes += isChunked
        ? `Transfer-Encoding: chunked\r\n\r\n${chunk}0\r\n\r\n`
        : `Content-Length: ${body.length}\r\n\r\n${body}`;
      wanted.push(`${path} ${body}`);
    }
    const socket = await open();
    let answers = 0;
    socket.on('data', (data: Buffer) => {
      answers += data.toString().split('HTTP/1.1 200').length - 1;
    });
    for (let at = 0; at < bytes.length; ) {
      const next = at + dice.integer(1, dice.chance(0.5) ? 12 : 400);
      await new Promise((resolve) => socket.write(bytes.slice(at, next), resolve));
      at = next;
    }
    await expect.poll(() => answers, { interval: 1 }).toBe(8);
    expect(seen.splice(0).sort()).toEqual(wanted.sort());
    socket.destroy();
  }
});

it.each([
  ['line feeds between the ends of heads', `${'\n'.repeat(60_000)}\r\n\r\n`],
  ['ends of heads', '\r\n\r\n'.repeat(15_000)],
])('parses a body of %s in few pieces', async (_what, block) => {
  const { open } = await startStage({
    listener(request, response) {
      let pieces = 0;
      request.on('data', () => {
        pieces += 1;
      });
      request.on('end', () => response.end(`${pieces} pieces`));
    },
  });
  const body = block.repeat(20);
  const socket = await open();
  socket.write('POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
  socket.write(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`);
  const [answer] = await once(socket, 'data');
  const pieces = Number(/(\d+) pieces/.exec(String(answer))?.[1]);
  expect(pieces).toBeLessThan(body.length / 16);
});

it('closes a connection with too many requests of which none is answered for a while', async () => {
  const held: ServerResponse[] = [];
  const { clock, open } = await startStage({
    bounds: { idleMs: 60_000 },
    listener: (_request, response) => void held.push(response),
  });
  const socket = (await open()).resume();
  socket.write(get('/').repeat(5));
  await expect.poll(() => held.length).toBe(4);
  await passIterations();
  await clock.advance(59_000);
  // One answer: the fifth request is read, and the time begins anew with the sixth.
  socket.write(get('/'));
  held[0]?.end();
  await expect.poll(() => held.length).toBe(5);
  await passIterations();
  await clock.advance(59_000);
  expect(socket.closed).toBe(false);
  await clock.advance(1_000);
  await expect.poll(() => socket.closed).toBe(true);
});

describe('while requests of 200 connections without a key wait', () => {
  it.each([
    ['a probe of the health', '/healthz', {}],
    ['a new connection with a key', '/mine', { key: 'ada' }],
    ['a new connection of another address', '/mine', { 'other-address': 'yes' }],
    ['one of another client behind the proxy', '/mine', { 'x-forwarded-for': '203.0.113.9' }],
  ])('serves %s after a few of them', async (_who, path, headers: Record<string, string>) => {
    const served: string[] = [];
    let servedAtArrival: number | undefined;
    const { open, port } = await startStage({
      // One in each iteration of the event loop.
      perIteration: 1,
      origins: new ClientOrigins({
        ...{ trustedProxies: ['127.0.0.1'], forwardedHeaders: 'x-forwarded' },
      }),
      findUser(request) {
        if (request.url === path) servedAtArrival = served.length;
        return request.headers['key']?.toString();
      },
      listener(request, response) {
        served.push(request.url ?? '');
        response.end();
      },
    });
    const sockets = await Promise.all(Array.from({ length: 200 }, open));
    for (const socket of sockets) socket.resume().write(get('/crowd').repeat(20));
    await expect.poll(() => served.length).toBeGreaterThan(20);
    const localAddress = headers['other-address'] ? '127.0.0.2' : '127.0.0.1';
    const sent = send({ port, path, headers, localAddress, agent: false }).end();
    const [response] = await once(sent, 'response');
    response.resume();
    expect(servedAtArrival).toBeGreaterThan(20);
    expect(served.indexOf(path) - (servedAtArrival ?? 0)).toBeLessThanOrEqual(3);
    expect(served.length).toBeLessThan(3_900);
  });
});

it('leaves bytes that follow an upgrade to the reader of the new protocol', async () => {
  const early = '\r\n\r\n'.repeat(30);
  let read = '';
  const { open } = await startStage({
    listener(request, response) {
      const upgrade = findUpgrade(request);
      response.writeHead(101, { connection: 'upgrade', upgrade: 'x' }).end();
      read += upgrade?.takeEarly().toString();
      upgrade?.socket
        .on('data', (piece) => {
          read += piece;
        })
        .resume();
    },
  });
  const socket = await open();
  socket.write(`${get('/lb/demo/x', 'Connection: upgrade\r\nUpgrade: x\r\n')}${early}`);
  await expect.poll(() => read).toBe(early);
});
