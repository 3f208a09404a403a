// GET /v1/endpoints/<id>/scaler: the last decisions about an endpoint's workers.
import { describe, expect, it } from 'vitest';
import { Decisions } from '../../../src/control/scaling/decisions.ts';
import type { Store } from '../../../src/store/store.ts';
import { type DecisionRecord, decisionList } from '../../../src/wire/resources/scaling.ts';
import { ENDPOINT, startPlatform } from '../../support/api/platform.ts';

function decision(want: number): DecisionRecord {
  return {
    at: '2026-01-01T00:00:00.000Z',
    ...{ want, start: 1, drain: [], cause: 'first', reason: '1 job waits' },
    started: [{ pod: 'pod_1', gpu: null }],
    input: {
      ...{ now: 0, type: 'QUEUE', workersMin: 0, workersMax: 1, idleTimeoutMs: 5_000 },
      scaler: { type: 'QUEUE_DELAY', seconds: 4 },
      load: { waiting: 1, running: 0, oldestQueuedAt: 0, peak: 1 },
      ...{ workers: [], lastStartAt: null, lastWant: null, places: null },
      crashes: { streak: 0, notBefore: 0, reason: null },
    },
  };
}

async function openDecided(wants: readonly number[]) {
  const stores: Store[] = [];
  const platform = await startPlatform({
    wrapStore: (store) => {
      stores.push(store);
      return store;
    },
  });
  for (const store of stores) {
    const decisions = await Decisions.open(store);
    const source = { endpointId: ENDPOINT, userId: 'owner' };
    for (const want of wants) await decisions.add(source, decision(want));
  }
  const read = async (query = '') => {
    const response = await platform.call(`/v1/endpoints/${ENDPOINT}/scaler${query}`);
    return decisionList.parse(await response.json());
  };
  return { platform, read };
}

describe('the decisions of a scaler', () => {
  it('are shown newest first, with their inputs', async () => {
    const { read } = await openDecided([1, 2]);
    expect(await read()).toEqual({ decisions: [decision(2), decision(1)] });
  });

  it('are paged', async () => {
    const { read } = await openDecided([1, 2, 3]);
    const first = await read('?limit=2');
    expect(first.decisions.map(({ want }) => want)).toEqual([3, 2]);
    const rest = await read(`?limit=2&cursor=${first.cursor}`);
    expect(rest).toEqual({ decisions: [decision(1)] });
  });

  it('are not found for an unknown endpoint', async () => {
    const { platform } = await openDecided([]);
    expect((await platform.call('/v1/endpoints/none/scaler')).status).toBe(404);
  });

  it('can be read with the read scope alone', async () => {
    const { platform } = await openDecided([1]);
    const statusWith = async (scope: string) => {
      const { key } = await platform.keys.issue({ name: scope, scopes: [scope] });
      const headers = { authorization: `Bearer ${key}` };
      return (await platform.call(`/v1/endpoints/${ENDPOINT}/scaler`, { headers })).status;
    };
    expect(await statusWith('endpoints:read')).toBe(200);
    expect(await statusWith('jobs:read')).toBe(403);
  });
});
