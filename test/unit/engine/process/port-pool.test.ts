import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { PortPool } from '../../../../src/engine/process/runs.ts';

const servers: Server[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

async function listen(port: number): Promise<void> {
  const server = createServer().listen(port, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
}

const wanted = [
  { private: 8000, protocol: 'http' as const },
  { private: 53, protocol: 'tcp' as const },
];

describe('ports of this machine', () => {
  it('are different and free', async () => {
    const given = await new PortPool().assign(wanted, []);
    expect(given).toMatchObject([
      { private: 8000, type: 'http', ip: '127.0.0.1' },
      { private: 53, type: 'tcp', ip: '127.0.0.1' },
    ]);
    expect(new Set(given.map((port) => port.public)).size).toBe(2);
    for (const port of given) await listen(port.public);
  });

  it('are the same for two protocols of a port', async () => {
    const both = [...wanted, { private: 53, protocol: 'udp' as const }];
    const [, tcp, udp] = await new PortPool().assign(both, []);
    expect(udp).toMatchObject({ type: 'udp', public: tcp?.public });
  });

  it('are the same as before if they are free', async () => {
    const pool = new PortPool();
    const before = await pool.assign(wanted, []);
    pool.release(before);
    expect(await pool.assign(wanted, before)).toEqual(before);
  });

  it('exclude ports on which another process listens', async () => {
    const pool = new PortPool();
    const before = await pool.assign(wanted, []);
    pool.release(before);
    const [first, second] = before;
    await listen(first?.public ?? 0);
    const after = await pool.assign(wanted, before);
    expect(after[0]?.public).not.toBe(first?.public);
    expect(after[1]).toEqual(second);
  });

  it('are reserved until the container listens', async () => {
    const pool = new PortPool();
    const first = await pool.assign(wanted, []);
    const second = await pool.assign(wanted, first);
    const all = [...first, ...second].map((port) => port.public);
    expect(new Set(all).size).toBe(4);
  });

  it('exclude ports that an earlier platform assigned', async () => {
    const before = await new PortPool().assign(wanted, []);
    const pool = new PortPool();
    pool.reserve(before);
    const after = await pool.assign(wanted, before);
    expect(after.map((port) => port.public)).not.toContain(before[0]?.public);
  });
});
