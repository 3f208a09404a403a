import { describe, expect, it, onTestFinished } from 'vitest';
import { Decisions } from '../../../../src/control/scaling/decisions.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { endpointSettings } from '../../../../src/wire/resources/endpoint.ts';
import type { DecisionRecord } from '../../../../src/wire/resources/scaling.ts';

const SOURCE = { endpointId: 'a', userId: 'owner' };

function decision(want: number): DecisionRecord {
  return {
    at: '2026-01-01T00:00:00.000Z',
    ...{ want, start: 0, drain: [], cause: 'enough', reason: 'so', started: [] },
    input: {
      ...{ now: 0, type: 'QUEUE', workersMin: 0, workersMax: 1, idleTimeoutMs: 5_000 },
      scaler: { type: 'QUEUE_DELAY', seconds: 4 },
      load: { waiting: 0, running: 0, oldestQueuedAt: null, peak: 0 },
      ...{ workers: [], lastStartAt: null, lastWant: null, places: null },
      crashes: { streak: 0, notBefore: 0, reason: null },
    },
  };
}

async function openDecisions() {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const settings = endpointSettings.parse({});
  for (const id of ['a', 'b']) {
    await store.write((tx) => tx.putEndpoint({ id, settings, createdAt: 0 }));
  }
  const reopen = () => Decisions.open(store);
  return { store, reopen, decisions: await reopen() };
}

async function listWants(decisions: Decisions, endpointId = 'a', limit = 1_000) {
  const { decisions: page } = await decisions.list({ endpointId, before: undefined, limit });
  return page.map(({ want }) => want);
}

describe('decisions', () => {
  it('are listed newest first, each endpoint its own, in pages', async () => {
    const { decisions } = await openDecisions();
    for (const want of [1, 2, 3]) await decisions.add(SOURCE, decision(want));
    await decisions.add({ ...SOURCE, endpointId: 'b' }, decision(9));
    expect(await listWants(decisions)).toEqual([3, 2, 1]);
    expect(await listWants(decisions, 'b')).toEqual([9]);
    const first = await decisions.list({ endpointId: 'a', before: undefined, limit: 2 });
    expect(first.decisions.map(({ want }) => want)).toEqual([3, 2]);
    const rest = await decisions.list({ endpointId: 'a', before: first.next, limit: 2 });
    expect(rest).toMatchObject({ decisions: [{ want: 1 }], next: undefined });
  });

  it('come after those of an earlier run, also when the clock was set back', async () => {
    const { decisions, reopen } = await openDecisions();
    await decisions.add(SOURCE, decision(1));
    const again = await reopen();
    await again.add(SOURCE, { ...decision(2), at: '2020-01-01T00:00:00.000Z' });
    expect(await listWants(again)).toEqual([2, 1]);
    expect((await again.last('a'))?.want).toBe(2);
  });

  it('are limited to about the 200 newest', async () => {
    const { decisions } = await openDecisions();
    await decisions.add({ ...SOURCE, endpointId: 'b' }, decision(9));
    for (let want = 0; want < 500; want++) await decisions.add(SOURCE, decision(want));
    const wants = await listWants(decisions);
    expect(wants.slice(0, 200)).toEqual(Array.from({ length: 200 }, (_, n) => 499 - n));
    expect(wants.length).toBeLessThan(220);
    expect(await listWants(decisions, 'b')).toEqual([9]);
  });

  it('are pruned by the first decision after a restart', async () => {
    const { decisions, reopen } = await openDecisions();
    for (let want = 0; want < 219; want++) await decisions.add(SOURCE, decision(want));
    const before = await listWants(decisions);
    expect(before.length).toBeGreaterThan(200);
    await (await reopen()).add(SOURCE, decision(219));
    expect(await listWants(decisions)).toEqual([219, ...before.slice(0, 199)]);
  });

  it('are not stored for an endpoint that is being deleted', async () => {
    const { decisions, store } = await openDecisions();
    const settings = endpointSettings.parse({});
    await store.write((tx) => tx.putEndpoint({ id: 'a', settings, createdAt: 0, deleted: true }));
    await decisions.add(SOURCE, decision(1));
    expect(await listWants(decisions)).toEqual([]);
  });
});
