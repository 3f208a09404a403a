// Nodes that join, renew, claim shards, die and return, on a real Postgres server.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ClusterView } from '../../../src/cluster/cluster-rows.ts';
import { Membership, type MembershipOptions } from '../../../src/cluster/membership.ts';
import { planShards } from '../../../src/cluster/plan-shards.ts';
import { readPostgresUrl } from '../../../src/store/postgres/connection-url.ts';
import { openPostgres, openPostgresStore } from '../../../src/store/postgres/postgres.ts';
import { MIGRATIONS } from '../../../src/store/postgres/schema.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { PostgresProxy } from '../../support/network/postgres-proxy.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

/** Only a guard against hanging: the default of 1 s is too short on a loaded machine. */
const waitFor = <T>(check: () => T | Promise<T>) => vi.waitFor(check, { timeout: 20_000 });

const isLeftOut = leaveOutWithoutPostgres('test/conformance/cluster/membership.test.ts');

const SHARDS = 4;

describe.skipIf(isLeftOut)('the membership of a node', () => {
  let server: PostgresServer;
  /** Between the database and the nodes that a test breaks. */
  let proxy: PostgresProxy;
  const joined: Membership[] = [];

  beforeAll(async () => {
    server = await PostgresServer.start();
    proxy = await PostgresProxy.start(server.port);
  });
  afterAll(async () => {
    await proxy?.close();
    await server?.stop();
  });
  beforeEach(() => server.empty('public'));
  afterEach(async () => {
    proxy.isClosed = false;
    proxy.thaw();
    await Promise.all(joined.splice(0).map((each) => each.leave()));
  });

  interface Choices extends Partial<MembershipOptions> {
    isBreakable?: boolean;
    onView?: (view: ClusterView) => void;
  }

  async function join(
    id: string,
    { isBreakable = false, onView = () => {}, ...options }: Choices = {},
  ) {
    const url = server.url();
    const member = await Membership.open({
      ...{
        id,
        url: `http://${id}`,
        shards: SHARDS,
        onFailure: () => {},
        onEnd: () => {},
      },
      target: readPostgresUrl(isBreakable ? proxy.redirect(url) : url),
      ...options,
      // A node lives long on a loaded machine, and a dead one is found soon.
      timings: {
        ...{ leaseMs: 60_000, renewMs: 50, pollMs: 20, freeLockMs: 700, joinWaitMs: 300 },
        ...options.timings,
      },
    });
    member.onView(onView);
    joined.push(member);
    return member;
  }

  const seenBy = async (member: Membership, id: string) =>
    (await member.refresh()).nodes.find((node) => node.id === id);
  const ownerOf = async (member: Membership, shard: number) =>
    (await member.refresh()).shards[shard]?.owner;

  it('is seen by all, with its URL and its numbers, until it leaves', async () => {
    const onView = vi.fn();
    const a = await join('a', { onView });
    expect(a.isServing).toBe(true);
    expect(a.view.shards.map(({ id, owner }) => [id, owner])).toEqual(
      Array.from({ length: SHARDS }, (_, id) => [id, null]),
    );
    const b = await join('b');
    await b.noteControl(5);
    const node = { isLive: true, isLeaving: false, version: MIGRATIONS.length, controlNumber: 0 };
    expect((await a.refresh()).nodes).toEqual([
      { id: 'a', url: 'http://a', ...node },
      { id: 'b', url: 'http://b', ...node, controlNumber: 5 },
    ]);
    expect(onView).toHaveBeenLastCalledWith(a.view);
    await b.beginLeaving();
    expect(await seenBy(a, 'b')).toMatchObject({ isLive: true, isLeaving: true });
    await b.leave();
    expect(await seenBy(a, 'b')).toBeUndefined();
    expect(b.isServing).toBe(false);
    await expect(b.claim(0)).rejects.toThrow('the node has left the cluster');
  });

  it('is renewed again and again', async () => {
    await join('a', { timings: { leaseMs: 8_000 } });
    const readUntil = async () => Number(await server.query('select until from node'));
    const first = await readUntil();
    await waitFor(async () => expect(await readUntil()).toBeGreaterThan(first + 100));
  });

  it('ends for the node before it ends for others', async () => {
    const timings = { leaseMs: 1_500, marginMs: 700, statementTimeoutMs: 500 };
    const a = await join('a', { isBreakable: true, timings });
    const b = await join('b');
    await a.claim(1);
    expect(await b.claim(1)).toBe(false);
    proxy.isClosed = true;
    proxy.freeze();
    // The server still has its session, and so its lock.
    await until(() => b.claim(1));
    expect(a.isServing).toBe(false);
    expect(await seenBy(b, 'a')).toMatchObject({ isLive: false });
    // It wakes up, is a member again, and does not own the shard any more.
    proxy.isClosed = false;
    proxy.thaw();
    await waitFor(async () => expect(await a.isMine(1)).toBe(false));
    expect(a.isServing).toBe(true);
    expect(await seenBy(b, 'a')).toMatchObject({ isLive: true });
    expect(await a.claim(1)).toBe(false);
    expect(await ownerOf(a, 1)).toBe('b');
  });

  it('ends early if its connection has ended, as that of a killed process does', async () => {
    const onFailure = vi.fn();
    const a = await join('a', { isBreakable: true, onFailure });
    const b = await join('b');
    await a.claim(2);
    proxy.isClosed = true;
    proxy.cut();
    await until(() => b.claim(2));
    expect(a.isServing).toBe(false);
    expect(onFailure).toHaveBeenCalled();
    await expect(a.isMine(2)).rejects.toThrow();
    proxy.isClosed = false;
    await waitFor(async () => expect(await a.isMine(2)).toBe(false));
  });

  it('does not serve again before it has followed who owns the shards now', async () => {
    const seen: { owner: string | null | undefined; isServing: boolean }[] = [];
    const onView = ({ shards }: ClusterView) => {
      seen.push({ owner: shards[2]?.owner, isServing: a.isServing });
    };
    const a: Membership = await join('a', { isBreakable: true, onView });
    const b = await join('b');
    await a.claim(2);
    proxy.isClosed = true;
    proxy.cut();
    await until(() => b.claim(2));
    proxy.isClosed = false;
    await waitFor(() => expect(seen.at(-1)).toEqual({ owner: 'b', isServing: true }));
    const first = seen.find(({ owner }) => owner === 'b');
    expect(first).toEqual({ owner: 'b', isServing: false });
  });

  it('survives a cut connection, and keeps its shards', async () => {
    const a = await join('a', { isBreakable: true });
    const b = await join('b');
    await a.claim(0);
    await a.noteControl(3);
    proxy.cut();
    await waitFor(async () => expect(await a.isMine(0)).toBe(true));
    expect(await b.claim(0)).toBe(false);
    expect(await seenBy(b, 'a')).toMatchObject({ isLive: true, controlNumber: 3 });
  });

  it('outlives a connection that is frozen, if another one is possible', async () => {
    // The client notices it after 2.3 s.
    const timings = { freeLockMs: 1_500, statementTimeoutMs: 300 };
    const onFailure = vi.fn();
    const a = await join('a', { isBreakable: true, onFailure, timings });
    const b = await join('b', { timings });
    await a.claim(0);
    proxy.freeze();
    let isBack = false;
    const returning = waitFor(async () => {
      expect(onFailure).toHaveBeenCalled();
      expect(await a.isMine(0)).toBe(true);
    }).finally(() => {
      isBack = true;
    });
    while (!isBack) {
      expect(await b.claim(0)).toBe(false);
      await sleep(1);
    }
    await returning;
  });

  it('lets a store return after an outage longer than the lease, if nobody has claimed its shard', async () => {
    const timings = { leaseMs: 500, marginMs: 100 };
    const a = await join('a', { isBreakable: true, timings });
    await a.claim(0);
    const onLost = vi.fn();
    const store = await openPostgresStore({
      target: readPostgresUrl(proxy.redirect(server.url())),
      ...{ takeOver: true, mayReturn: () => a.isMine(0), onLost },
    });
    const settings = endpointSettings.parse({ executionTimeoutMs: 5_000, maxQueued: 7 });
    const put = (id: string) => store.write((tx) => tx.putEndpoint({ id, settings, createdAt: 5 }));
    proxy.isClosed = true;
    proxy.cut();
    await waitFor(() => expect(a.isServing).toBe(false));
    await sleep(500);
    proxy.isClosed = false;
    await waitFor(() => put('e'));
    expect(onLost).not.toHaveBeenCalled();
    const b = await join('b');
    await server.query(`update shard set owner = 'b' where id = 0`);
    proxy.cut();
    await waitFor(() => expect(onLost).toHaveBeenCalledOnce());
    await expect(put('f')).rejects.toThrow('another node owns the shard');
    expect(await b.isMine(0)).toBe(true);
    await store.close();
  });

  it('begins again if its row has been removed', async () => {
    const a = await join('a');
    await a.claim(0);
    await a.noteControl(9);
    await server.query('delete from node');
    await waitFor(async () =>
      expect(await seenBy(a, 'a')).toMatchObject({ isLive: true, controlNumber: 9 }),
    );
    expect(await a.isMine(0)).toBe(true);
    expect(a.isServing).toBe(true);
  });

  it('does not depend on the clock of the machine', async () => {
    const clocks = { monotonic: () => performance.now(), wall: () => Date.now() + 3_600_000 };
    const a = await join('a', { clocks });
    const b = await join('b');
    expect(a.isServing).toBe(true);
    await a.claim(0);
    expect(await b.claim(0)).toBe(false);
    expect(await seenBy(b, 'a')).toMatchObject({ isLive: true });
    const offBy = Math.abs(a.databaseNow() - b.databaseNow());
    expect(offBy).toBeLessThan(60_000);
  });

  it('is renewed at once when the clock of the machine is set', async () => {
    let step = 0;
    const clocks = { monotonic: () => performance.now(), wall: () => Date.now() + step };
    const a = await join('a', { clocks, timings: { renewMs: 20_000, pollMs: 20_000 } });
    step = 3_600_000;
    expect(a.isServing).toBe(false);
    await waitFor(() => expect(a.isServing).toBe(true));
  });

  describe('with the URL of a live node', () => {
    it('is refused', async () => {
      const a = await join('a');
      const second = join('b', { url: 'http://a' });
      await expect(second).rejects.toThrow('another node with the URL http://a is running');
      expect((await a.refresh()).nodes).toHaveLength(1);
    });

    it('ends, after a bounded time, if that node has joined while this one was paused', async () => {
      const onEnd = vi.fn();
      const a = await join('a', { onEnd });
      // As if the lease of the first one had ended before the second one joined.
      await server.query(`begin; delete from node where id = 'a';
        insert into node (id, url, version, renewed_at, until)
          select 'b', 'http://a', 1, 9e15, 9e15; commit`);
      await waitFor(() => expect(onEnd).toHaveBeenCalledOnce());
      expect(onEnd.mock.calls[0]?.[0]).toMatchObject({
        message: 'another node with the URL http://a is running; give each node a URL of its own',
      });
      expect(a.isServing).toBe(false);
    });

    it('begins when that node has left, or if it is dead', async () => {
      const first = await join('a');
      const waiting = join('b', { url: 'http://a', timings: { joinWaitMs: 20_000 } });
      await sleep(50);
      await first.leave();
      expect((await waiting).view.nodes.map(({ id }) => id)).toEqual(['b']);
      await server.query(`insert into node (id, url, version, renewed_at, until)
        values ('dead', 'http://c', 1, 1, 1), ('killed', 'http://d', 1, 1, 9e15)`);
      await join('c', { url: 'http://c' });
      const { nodes } = await (await join('d', { url: 'http://d' })).refresh();
      expect(nodes.map(({ id }) => id)).toEqual(['b', 'c', 'd']);
    });
  });

  describe('and a shard', () => {
    it('falls to one of two nodes that claim it at the same time', async () => {
      const [a, b] = [await join('a'), await join('b')];
      for (let round = 0; round < 40; round++) {
        const won = await Promise.all([a.claim(3), b.claim(3)]);
        expect(won.filter(Boolean)).toHaveLength(1);
        const winner = won[0] ? a : b;
        expect(await ownerOf(a, 3)).toBe(winner.id);
        await winner.offer(3, null);
      }
      expect((await a.refresh()).shards[3]?.epoch).toBe(40);
    });

    it('falls to the node that its owner names when it gives it up', async () => {
      const [a, b, c] = [await join('a'), await join('b'), await join('c')];
      await a.claim(1);
      await a.giveUp(1, 'b');
      const given = { owner: null, offeredTo: 'b', failedOn: 'a' };
      expect((await c.refresh()).shards[1]).toMatchObject(given);
      expect([await a.claim(1), await c.claim(1), await b.claim(1)]).toEqual([false, false, true]);
      expect((await a.refresh()).shards[1]).toMatchObject({ owner: 'b', failedOn: 'a' });
      // A node that does not own it gives nothing up.
      await c.giveUp(1, 'a');
      expect(await ownerOf(a, 1)).toBe('b');
    });

    it('falls to one of those that claim it when its node is dead', async () => {
      const [a, b, c] = [await join('a'), await join('b'), await join('c')];
      for (let round = 0; round < 8; round++) {
        await server.query(`update shard set owner = 'dead ${round}'`);
        const won = await Promise.all([a.claim(1), b.claim(1), c.claim(1)]);
        expect(won.filter(Boolean)).toHaveLength(1);
      }
    });

    it('goes only to the node that it is offered to, while that one lives and stays', async () => {
      const [a, b, c] = [await join('a'), await join('b'), await join('c')];
      await a.claim(0);
      await b.offer(0, 'b');
      expect(await a.isMine(0)).toBe(true);
      await a.offer(0, 'b');
      expect(a.view.shards[0]).toMatchObject({ owner: null, offeredTo: 'b' });
      expect(await a.isMine(0)).toBe(false);
      expect([await a.claim(0), await c.claim(0), await b.claim(0)]).toEqual([false, false, true]);
      expect(b.view.shards[0]).toMatchObject({ owner: 'b', offeredTo: null, epoch: 2 });
      await b.offer(0, 'c');
      await c.beginLeaving();
      expect(await a.claim(0)).toBe(true);
      await a.offer(0, 'b');
      await b.leave();
      expect(await c.claim(0)).toBe(true);
    });

    it('is shown as changed if its node changes it during a read, also after the read', async () => {
      const a = await join('a', { timings: { renewMs: 20_000, pollMs: 20_000 } });
      for (let round = 0; round < 50; round++) {
        for (const owner of ['a', null]) {
          const reading = a.refresh();
          await (owner === null ? a.offer(0, null) : a.claim(0));
          await reading;
          expect(a.view.shards[0]).toMatchObject({ owner });
        }
      }
    });

    it('cannot be claimed by a node without a lease', async () => {
      const a = await join('a', { timings: { renewMs: 20_000 } });
      await server.query('update node set until = 1');
      expect(await a.claim(0)).toBe(false);
      await server.query('delete from node');
      expect(await a.claim(0)).toBe(false);
    });

    it('can be claimed again by its owner, and by others once it has left', async () => {
      const [a, b] = [await join('a'), await join('b')];
      expect([await a.claim(0), await a.claim(0), await b.claim(0)]).toEqual([true, true, false]);
      expect(a.view.shards[0]?.epoch).toBe(2);
      await a.leave();
      expect(await b.claim(0)).toBe(true);
    });
  });

  it('lets nodes share the shards by their plans, and take over those of dead ones', async () => {
    const carryOut = (id: string): Choices => ({
      onView: async (view: ClusterView) => {
        const member = joined.find((each) => each.id === id);
        const plan = planShards(view, id);
        for (const shard of plan.claim) await member?.claim(shard).catch(() => {});
        for (const { shard, to } of plan.offer) await member?.offer(shard, to).catch(() => {});
      },
    });
    const expectShares = async (shares: Record<string, number>) =>
      waitFor(async () => {
        const owners = await server.query('select owner, count(*) from shard group by owner');
        const found = owners.split('\n').map((line) => line.split('|'));
        expect(Object.fromEntries(found.map(([id, n]) => [id, Number(n)]))).toEqual(shares);
      });
    await join('a', { shards: 9, ...carryOut('a'), isBreakable: true });
    await expectShares({ a: 9 });
    await join('b', { shards: 9, ...carryOut('b') });
    await join('c', { shards: 9, ...carryOut('c') });
    await expectShares({ a: 3, b: 3, c: 3 });
    proxy.isClosed = true;
    proxy.cut();
    await expectShares({ b: 5, c: 4 });
    proxy.isClosed = false;
    await expectShares({ a: 3, b: 3, c: 3 });
    await joined.find(({ id }) => id === 'b')?.beginLeaving();
    await expectShares({ a: 5, c: 4 });
  });

  describe('at the first start', () => {
    it('makes the tables and the shards, although two nodes start at the same time', async () => {
      const target = readPostgresUrl(await server.createDatabase());
      const [a, b] = await Promise.all([
        join('a', { target, timings: { joinWaitMs: 20_000 } }),
        join('b', { target, timings: { joinWaitMs: 20_000 } }),
      ]);
      expect(a.view.shards).toHaveLength(SHARDS);
      expect(b.view.shards).toHaveLength(SHARDS);
    });

    it('makes each shard once, although many nodes start at the same time', async () => {
      const members = await Promise.all(['a', 'b', 'c', 'd', 'e'].map((id) => join(id)));
      for (const { view } of members) expect(view.shards).toHaveLength(SHARDS);
    });

    it('fixes the number of shards, 16 by default', async () => {
      const named = { target: readPostgresUrl(await server.createDatabase()) };
      await join('a', { ...named, shards: 5 });
      expect((await join('b', { ...named, shards: undefined })).view.shards).toHaveLength(5);
      await join('c', { shards: undefined });
      await expect(join('d', { shards: 5 })).rejects.toThrow(
        'the database has 16 shards, and this node is to use 5; the number cannot change, so use 16',
      );
    });

    it('refuses to share the database of a platform that runs', async () => {
      const target = readPostgresUrl(server.url());
      const store = await openPostgresStore({ target });
      await expect(join('a')).rejects.toThrow('another platform uses');
      await store.close();
      expect((await join('a')).isServing).toBe(true);
    });
  });

  describe('later', () => {
    it('waits for nothing although the store of a shard is open', async () => {
      const target = readPostgresUrl(server.url());
      await join('a');
      const { store } = await openPostgres({ target, takeOver: true });
      expect((await join('b')).isServing).toBe(true);
      await store.close();
    });

    it('keeps out a platform that is no node', async () => {
      await join('a');
      const target = readPostgresUrl(server.url());
      await expect(openPostgresStore({ target })).rejects.toThrow(
        'the database has 4 shards, which nodes share; start this platform as a node, with a node URL',
      );
    });
  });
});
