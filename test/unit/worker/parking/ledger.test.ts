// The ledger of GPU memory: a parked model comes back only if its memory is free, whatever others do meanwhile.
import { describe, expect, it } from 'vitest';
import {
  dropDead,
  grantWake,
  hasHostRoom,
  type Ledger,
  type LedgerEntry,
  put,
  remove,
} from '../../../../src/worker/parking/ledger.ts';
import { createRandom } from '../../../support/random.ts';

const GB = 2 ** 30;
const process = { pid: 1, startTicks: '1', bootId: 'boot' };

function tenant(
  id: string,
  state: LedgerEntry['state'],
  gb: number,
  device = 'GPU-0',
): LedgerEntry {
  return { id, state, bytes: gb * GB, device, process, since: 0 };
}

function ask(ledger: Ledger, id: string, usedGb: number, reserveGb = 0) {
  const memory = { totalBytes: 80 * GB, usedBytes: usedGb * GB };
  return grantWake(ledger, { id, memory, reserveBytes: reserveGb * GB, now: 5 });
}

describe('grantWake', () => {
  const parked = tenant('a', 'parked', 40);

  it.each<[string, Ledger, number, number, boolean]>([
    ['an empty device', [parked], 0, 0, true],
    ['a device with exactly as much free', [parked], 40, 0, true],
    ['a byte too little', [parked], 40.5, 0, false],
    ['the reserve of the machine', [parked], 40, 1, false],
    [
      'a resident model, which the figures contain',
      [parked, tenant('b', 'resident', 40)],
      40,
      0,
      true,
    ],
    ['a promise of which nothing is in use yet', [parked, tenant('b', 'waking', 50)], 0, 0, false],
    [
      'a promise that is in use already: the careful reading',
      [parked, tenant('b', 'waking', 30)],
      30,
      0,
      false,
    ],
    ['a small promise', [parked, tenant('b', 'waking', 30)], 10, 0, true],
    ['a promise on another device', [parked, tenant('b', 'waking', 50, 'GPU-1')], 0, 0, true],
    ['a parked neighbour, which holds nothing', [parked, tenant('b', 'parked', 70)], 0, 0, true],
    ['its own earlier promise', [tenant('a', 'waking', 40)], 0, 0, true],
  ])('judges %s', (_, ledger, usedGb, reserveGb, isGranted) => {
    expect(ask(ledger, 'a', usedGb, reserveGb).kind).toBe(isGranted ? 'granted' : 'no_room');
  });

  it('says how much is missing and who holds the device', () => {
    const ledger = [parked, tenant('b', 'resident', 50), tenant('c', 'parked', 10)];
    expect(ask(ledger, 'a', 50)).toEqual({
      kind: 'no_room',
      missingBytes: 10 * GB,
      others: ['b'],
    });
  });

  it('does not know a tenant that was never parked', () => {
    expect(ask([], 'a', 0).kind).toBe('no_room');
  });

  it('never promises more than the device has, over random histories', () => {
    for (let seed = 1; seed <= 200; seed += 1) {
      const random = createRandom(seed);
      const pick = (count: number) => Math.floor(random() * count);
      let ledger: Ledger = ['a', 'b', 'c'].map((id) => tenant(id, 'parked', 10 + pick(40)));
      // What the driver would show: the resident ones, and any part of those that wake.
      const inUse = new Map<string, number>();
      const used = () => [...inUse.values()].reduce((sum, each) => sum + each, 0);
      for (let step = 0; step < 60; step += 1) {
        const one = ledger[pick(ledger.length)];
        if (!one) break;
        if (one.state === 'parked') {
          const answer = ask(ledger, one.id, used() / GB);
          if (answer.kind === 'granted') ledger = answer.ledger;
        } else if (one.state === 'waking') {
          inUse.set(one.id, random() < 0.5 ? one.bytes : one.bytes * random());
          if (inUse.get(one.id) === one.bytes) ledger = put(ledger, { ...one, state: 'resident' });
        } else {
          inUse.delete(one.id);
          ledger = put(ledger, { ...one, state: 'parked' });
        }
        const held = ledger.filter(({ state }) => state !== 'parked');
        expect(held.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(80 * GB);
      }
    }
  });
});

it('forgets tenants that are gone', () => {
  const ledger = [
    tenant('a', 'waking', 40),
    { ...tenant('b', 'parked', 1), process: { ...process, pid: 2 } },
  ];
  expect(dropDead(ledger, ({ pid }) => pid === 2).map(({ id }) => id)).toEqual(['b']);
  expect(remove(ledger, 'a').map(({ id }) => id)).toEqual(['b']);
});

it('bounds the memory of the host over all parked models', () => {
  const ledger = [
    tenant('a', 'parked', 30),
    tenant('b', 'resident', 50),
    tenant('c', 'waking', 10),
  ];
  const ask = (id: string, gb: number) =>
    hasHostRoom(ledger, { id, bytes: gb * GB, limitBytes: 64 * GB });
  expect([ask('b', 24), ask('b', 25), ask('a', 54), ask('a', 55)]).toEqual([
    true,
    false,
    true,
    false,
  ]);
});
