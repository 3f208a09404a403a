// How many connections there may be, with real sockets; loopback counts here as any other address.
import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { Writable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { groupOf, listAddresses } from '../../../../src/api/http/client-origin.ts';
import { Connections } from '../../../../src/api/limits/connections.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';

/** More than the buffers of a connection hold. */
const LARGE_BYTES = 32 * 1_048_576;

interface Stage {
  /**
   * Opens a connection. With a name: sends a request and reads the answer. `unknown` shows no valid key,
   * other names are those of the key's user.
   */
  open: (name?: string) => Promise<Socket>;
  /** The same with a request that is not answered. */
  hold: (name: string) => Promise<Socket>;
  /** Sends a request. @returns the status, or undefined if the connection was closed */
  ask: (socket: Socket, name: string) => Promise<string | undefined>;
  clock: ManualClock;
  logged: () => string[];
}

async function startStage(bounds: {
  maxConnections: number;
  maxAddressConnections: number;
  maxUserConnections?: number;
  trustedProxies?: string[];
}): Promise<Stage> {
  const lines: string[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(String(line));
      done();
    },
  });
  const clock = new ManualClock();
  const connections = new Connections({
    bounds: {
      stallMs: 30_000,
      trustedProxies: [],
      maxUserConnections: 99,
      ...bounds,
    },
    ...{ clock, log: createLog({ level: 'trace', destination }), exempt: [] },
  });
  const held = new EventEmitter();
  const server = createServer((request, response) => {
    if (!connections.noteRequest(request, response)) return;
    const [, verb, name = ''] = request.url?.split('/') ?? [];
    held.emit(name);
    const isRefused = name !== 'unknown' && !connections.noteUser(request.socket, name);
    if (isRefused) response.writeHead(429, { connection: 'close' }).end();
    else if (verb === 'ask') response.end('ok');
    else if (verb === 'load') response.end(Buffer.alloc(LARGE_BYTES));
  });
  // The server would close idle connections after 5 s, which pass in a test on a busy machine.
  server.keepAliveTimeout = 0;
  connections.watch(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  onTestFinished(() => {
    connections.stop();
    connections.closeAll();
    server.close();
  });
  const ask: Stage['ask'] = async (socket, name) => {
    const answered = new AbortController();
    const { signal } = answered;
    socket.write(`GET /ask/${name} HTTP/1.1\r\nHost: x\r\n\r\n`);
    const events = ['data', 'close'].map((event) => once(socket, event, { signal }));
    const [answer] = await Promise.race(events);
    // A connection is asked many times: its listeners must not add up.
    answered.abort();
    return /^HTTP\/1\.1 (\d+)/.exec(String(answer))?.[1];
  };
  const open: Stage['open'] = async (name) => {
    const socket = connect(port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {});
    await once(socket, 'connect');
    socket.resume();
    if (name) await ask(socket, name);
    return socket;
  };
  const hold: Stage['hold'] = async (name) => {
    const socket = await open();
    const arrived = once(held, name);
    socket.write(`GET /hold/${name} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await arrived;
    return socket;
  };
  return { ask, open, hold, clock, logged: () => lines };
}

async function countOpen(sockets: readonly Socket[]): Promise<number> {
  // A refused connection is closed by the server, which takes a moment to arrive.
  await setTimeout(50);
  return sockets.filter((socket) => !isClosed(socket)).length;
}

function isClosed({ closed, readableEnded }: Socket): boolean {
  return closed || readableEnded;
}

describe('the connections of one address without a valid key', () => {
  it('are bounded; excess ones are closed and logged once a minute', async () => {
    const { clock, logged, open } = await startStage({
      maxConnections: 99,
      maxAddressConnections: 3,
    });
    const first = [await open(), await open(), await open('unknown')];
    const beyond = [await open(), await open()];
    await Promise.all(beyond.map((socket) => socket.closed || once(socket, 'close')));
    expect(await countOpen(first)).toBe(3);
    expect(logged()).toHaveLength(1);
    expect(JSON.parse(logged()[0] ?? '')).toMatchObject({
      ...{ msg: 'connections dropped', cause: 'connections of an address', address: '127.0.0.1' },
    });
    await clock.advance(60_000);
    const later = await open();
    if (!later.closed) await once(later, 'close');
    expect(logged()).toHaveLength(2);
    expect(JSON.parse(logged()[1] ?? '')).toMatchObject({ count: 2 });
  });

  it('count no more once a request has a valid key, or once they are closed', async () => {
    const { logged, open } = await startStage({ maxConnections: 99, maxAddressConnections: 2 });
    for (let n = 0; n < 6; n += 1) await open('known');
    const closing = [await open(), await open()];
    for (const socket of closing) {
      socket.end();
      await once(socket, 'close');
    }
    const sockets = [await open('unknown'), await open('unknown')];
    expect(await countOpen(sockets)).toBe(2);
    expect(logged()).toEqual([]);
  });

  it('are not bounded when they come from a trusted proxy', async () => {
    const bounds = { maxConnections: 99, maxAddressConnections: 1 };
    const { open } = await startStage({ ...bounds, trustedProxies: ['10.0.0.1', '127.0.0.0/8'] });
    const sockets = await Promise.all(Array.from({ length: 5 }, () => open('unknown')));
    expect(await countOpen(sockets)).toBe(5);
  });
});

describe('all connections', () => {
  it('are bounded: the oldest without a valid key is closed', async () => {
    const { open } = await startStage({ maxConnections: 3, maxAddressConnections: 99 });
    const known = await open('known');
    const oldest = await open();
    const young = await open();
    const added = await open('known');
    expect(await countOpen([known, young, added])).toBe(3);
    await expect.poll(() => isClosed(oldest)).toBe(true);
  });

  it('are bounded: the oldest idle one with a key is closed', async () => {
    const { open } = await startStage({ maxConnections: 2, maxAddressConnections: 99 });
    const oldest = await open('known');
    const young = await open('known');
    const added = await open('known');
    expect(await countOpen([young, added])).toBe(2);
    await expect.poll(() => isClosed(oldest)).toBe(true);
  });
});

describe('the connections of one user', () => {
  const bounds = { maxConnections: 99, maxAddressConnections: 99, maxUserConnections: 3 };

  it('are bounded: the oldest without a request is closed for a new one', async () => {
    const { hold, logged, open } = await startStage(bounds);
    const busy = await hold('mallory');
    const oldest = await open('mallory');
    const young = await open('mallory');
    const added = await open('mallory');
    expect(await countOpen([busy, young, added])).toBe(3);
    await expect.poll(() => isClosed(oldest)).toBe(true);
    expect(JSON.parse(logged()[0] ?? '')).toMatchObject({
      ...{ cause: 'connections of a user', userId: 'mallory' },
    });
  });

  it('are bounded: a new one is refused while all have a request', async () => {
    const { ask, hold, open } = await startStage(bounds);
    const busy = [await hold('mallory'), await hold('mallory'), await hold('mallory')];
    expect(await ask(await open(), 'mallory')).toBe('429');
    expect(await ask(await open(), 'alice')).toBe('200');
    expect(await countOpen(busy)).toBe(3);
    busy[0]?.destroy();
    await expect.poll(async () => ask(await open(), 'mallory')).toBe('200');
  });

  it('count for the user of the last request if they are of a proxy', async () => {
    const { ask, hold, open } = await startStage(bounds);
    const shared = await open('mallory');
    await hold('mallory');
    await hold('mallory');
    expect(await ask(shared, 'alice')).toBe('200');
    await hold('mallory');
    expect(await ask(shared, 'mallory')).toBe('429');
  });
});

describe('an address', () => {
  it.each([
    ['10.1.2.3', '10.1.2.3'],
    ['::ffff:10.1.2.3', '10.1.2.3'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8:1:2::9', '2001:db8:1:2::/64'],
    ['2001:db8::9', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
  ])('%s counts as %s', (address, group) => {
    expect(groupOf(address)).toBe(group);
  });
});

describe('a list of addresses', () => {
  it.each(['10.0.0', '10.0.0.1/33', 'fe80::/129', 'proxy.example', '10.0.0.0/x', ''])(
    'refuses %j',
    (entry) => {
      expect(() => listAddresses([entry])).toThrow(RangeError);
    },
  );

  it('takes addresses and networks of both families', () => {
    expect(listAddresses(['10.0.0.1', '10.0.0.0/8', '::1', 'fd00::/8']).rules).toHaveLength(4);
  });
});

it('closes the connection of a client that reads nothing after the stall time', async () => {
  const { clock, logged, open } = await startStage({ maxConnections: 9, maxAddressConnections: 9 });
  const socket = await open();
  socket.pause();
  socket.write('GET /load/ada HTTP/1.1\r\nHost: x\r\n\r\n');
  const stalled = () => logged().filter((line) => line.includes('stalled reader')).length;
  // Until the buffers of the system are full.
  await setTimeout(200);
  await clock.advance(25_000);
  expect(stalled()).toBe(0);
  await expect
    .poll(async () => {
      await clock.advance(5_000);
      return stalled();
    })
    .toBe(1);
});
