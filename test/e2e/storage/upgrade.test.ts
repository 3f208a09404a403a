// Nodes are replaced by builds of later versions, whose schemas have one and two steps more.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { findOldest, MIGRATIONS } from '../../../src/store/postgres/schema.ts';
import { buildWithSteps, type LaterBuild } from '../../support/builds/later-build.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import type { PlatformProcess } from '../../support/processes.ts';
import { until } from '../../support/until.ts';

const jobRef = z.object({ id: z.string() });
const ENDPOINTS = ['square-1', 'square-2'];
const SHARDS = 4;
const THIS = MIGRATIONS.length;

/** Columns in tables that the version before reads and writes all the time. */
const compatible = {
  isCompatible: true,
  sql: ['endpoint', 'job', 'worker', 'api_key', 'resource', 'node']
    .map((table) => `alter table ${table} add column later bigint not null default 0;`)
    .join('\n'),
};
const incompatible = { isCompatible: false, sql: 'alter table node drop column later;' };

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/upgrade.test.ts');

describe.skipIf(isLeftOut)('two nodes of a version', () => {
  let server: PostgresServer;
  let store: string;
  let nodes: NodeProcesses;
  let next: LaterBuild;
  let breaking: LaterBuild;
  /** Job that nobody works on until the last version runs. */
  let waiting: string;

  beforeAll(async () => {
    const builds = Promise.all([
      buildWithSteps([compatible]),
      buildWithSteps([compatible, incompatible]),
    ]);
    server = await PostgresServer.start();
    store = await server.createDatabase();
    [next, breaking] = await builds;
    const endpoints = [...ENDPOINTS, 'waiting'];
    nodes = await NodeProcesses.start({ store, count: 2, shards: SHARDS, endpoints });
    for (const [index, endpoint] of ENDPOINTS.entries()) {
      nodes.at(index).startWorker(endpoint, 'square.ts');
    }
    const submitted = await nodes.at(0).post('/v2/waiting/run', { input: { n: 5, ms: 0 } });
    waiting = jobRef.parse(await submitted.json()).id;
  });
  afterAll(async () => {
    await nodes?.close();
    await server?.stop();
    await next?.remove();
    await breaking?.remove();
  });

  const readVersion = async () => {
    const database = new URL(store).pathname.slice(1);
    return server.query('select version, oldest from schema_version', database);
  };

  it('keep out a version that cannot run beside them', async () => {
    const args = ['--store-lock-wait-ms', '500'];
    await expect(nodes.add({ bin: breaking.bin, args })).rejects.toThrow(
      `this version changes the schema to version ${THIS + 2}, which versions before ${THIS + 2} cannot use, and running ` +
        `nodes have version ${THIS}; stop these nodes, then start this version`,
    );
    expect(await readVersion()).toBe(`${THIS}|${findOldest()}`);
  });

  it('are replaced one after another by the next version, and no request fails', async () => {
    const inService = new Set(nodes.all);
    const failed: unknown[] = [];
    let answered = 0;
    let isOver = false;
    const ask = async (
      send: (node: PlatformProcess, n: number) => Promise<Response>,
      pauseMs = 0,
    ) => {
      for (let n = 0; !isOver; n++) {
        await sleep(pauseMs);
        const asked = [...inService];
        const node = asked[n % asked.length] ?? nodes.at(0);
        try {
          const response = await send(node, n);
          const body = await response.text();
          if (response.ok) answered += 1;
          else failed.push({ url: response.url, status: response.status, body });
        } catch (error) {
          failed.push(error);
        }
      }
    };
    const asking = [
      ...ENDPOINTS.map((id) =>
        ask((node, n) => node.post(`/v2/${id}/runsync`, { input: { n, ms: 0 } })),
      ),
      ask((node) => node.fetch('/v1/endpoints'), 20),
      ask((node, n) => node.post('/v1/keys', { name: `key ${n}`, scopes: ['jobs:read'] }), 100),
    ];
    for (const node of nodes.all) {
      // As a load balancer does.
      inService.delete(node);
      expect(await node.process.end('SIGTERM')).toBe(0);
      await node.restart(next.bin);
      await until(async () => (await node.fetch('/readyz')).status === 200);
      inService.add(node);
      const before = answered;
      // Two versions run side by side, then only the next one.
      await expect.poll(() => answered - before, { timeout: 30_000 }).toBeGreaterThan(20);
      expect(await readVersion()).toBe(`${THIS + 1}|${THIS}`);
    }
    isOver = true;
    await Promise.all(asking);
    expect(failed).toEqual([]);
  });

  it('make room for a version that cannot run beside them, and keep out none of their jobs', async () => {
    await Promise.all(nodes.all.map((node) => node.process.end('SIGTERM')));
    for (const node of nodes.all) await node.restart(breaking.bin);
    expect(await readVersion()).toBe(`${THIS + 2}|${THIS + 2}`);
    nodes.at(0).startWorker('waiting', 'square.ts');
    const look = async () => (await nodes.at(1).fetch(`/v2/waiting/status/${waiting}`)).json();
    await expect
      .poll(look, { timeout: 30_000 })
      .toMatchObject({ status: 'COMPLETED', output: { n: 5, square: 25 } });
    await expect(nodes.add()).rejects.toThrow(
      `The database has schema version ${THIS + 2}; this version of millrace knows versions up to ${THIS}.`,
    );
  });

  it('end with a clear error when a schema appears that they cannot use', async () => {
    const later = THIS + 3;
    const database = new URL(store).pathname.slice(1);
    // As after a pause in which all of them were counted dead.
    await server.query(`update schema_version set version = ${later}, oldest = ${later}`, database);
    for (const { process } of nodes.all) {
      expect(await process.exited).toBe(1);
      expect(process.output).toContain('this node cannot be a member of its cluster any more');
      expect(process.output).toContain(`The database has schema version ${later}`);
    }
  });
});
