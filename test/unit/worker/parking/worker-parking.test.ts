// A worker that the platform parks and wakes: what it says, what it takes, and what it does when the machine or the models
// do otherwise.
import { describe, expect, it } from 'vitest';
import { type Lease, LinkError, type RenewReply } from '../../../../src/wire/link/worker-link.ts';
import {
  type ExecutorParking,
  NoDeviceRoomError,
} from '../../../../src/worker/execution/executor.ts';
import type { ParkingMachine, ParkingWish } from '../../../../src/worker/parking/worker-parking.ts';
import { lease, type Script, startScript } from '../../../support/workers/worker-script.ts';

const GB = 2 ** 30;

class ScriptedParking implements ExecutorParking {
  readonly acts: string[] = [];
  way: 'hooks' | 'driver' | undefined = 'driver';
  bytes: number | undefined = 5 * GB;
  /** How the next wakes end. */
  wakes: ('no room' | 'broken')[] = [];
  hold: Promise<void> | undefined;
  onAct: () => void = () => undefined;
  readonly hows: string[] = [];
  suspends = false;
  suspension: { bytes: number; failure?: string } = { bytes: 5 * GB };

  async findWay() {
    return this.way;
  }

  async letGo(how: 'parked' | 'ended') {
    this.acts.push(how);
    this.onAct();
    await this.hold;
    return how === 'parked' ? this.bytes : 0;
  }

  async canSuspend() {
    return this.suspends;
  }

  async suspend() {
    this.acts.push('suspended');
    await this.hold;
    return this.suspension;
  }

  async wakeUp(how: 'together' | 'in turn') {
    this.hows.push(how);
    const end = this.wakes.shift();
    this.acts.push(end ?? 'woken');
    if (end === 'no room') throw new NoDeviceRoomError('full');
    if (end === 'broken') throw new Error('the ledger cannot be written');
  }
}

class ScriptedMachine implements ParkingMachine {
  readonly hostLimitBytes = 64 * GB;
  readonly notes: string[] = [];
  /** Answers of the next requests; then yes. */
  rooms: boolean[] = [];
  /** Others take the host's memory while the model moves. */
  isTaken = false;
  isBroken = false;
  usedBytes = 0;
  isMeasured = true;

  async readUsedBytes() {
    return this.usedBytes;
  }

  async hasHostRoom(bytes: number, _isMoved: boolean) {
    return bytes <= this.hostLimitBytes;
  }

  async noteParked(bytes: number) {
    if (this.isBroken) throw new Error('the disk is full');
    this.notes.push(`parked ${bytes / GB}`);
    return bytes <= (this.isTaken ? 0 : this.hostLimitBytes);
  }

  async noteResident() {
    this.notes.push('resident');
  }

  async reserve() {
    const isGranted = this.rooms.shift() ?? true;
    this.notes.push(isGranted ? 'granted' : 'refused');
    const { isMeasured } = this;
    return { isGranted, isMeasured, holders: isGranted ? [] : ['b'] };
  }
}

interface Parked extends Script {
  parking: ScriptedParking;
  machine: ScriptedMachine;
  /** Lets the open renewal answer with a wish. */
  wish: (wish: ParkingWish, more?: Partial<RenewReply>) => Promise<void>;
  /** The states that the platform has heard, without repetitions. */
  states: () => string[];
}

async function start(
  changes: (parking: ScriptedParking, machine: ScriptedMachine) => void = () => undefined,
  options: { isSpare?: boolean } = {},
): Promise<Parked> {
  const parking = new ScriptedParking();
  const machine = new ScriptedMachine();
  changes(parking, machine);
  const script = await startScript({ parking, parkingMachine: machine, ...options });
  const { clock, link } = script;
  await clock.advance(0);
  const wish = async (parking: ParkingWish, more: Partial<RenewReply> = {}) => {
    const open = link.renewals.findLast(({ request }) => request.waitMs > 0);
    open?.answer({ ended: [], drain: false, parking, ...more });
    await clock.advance(1);
  };
  const states = () => {
    const heard = link.renewals.map(({ request }) => request.parking?.state ?? 'none');
    return heard.filter((state, place) => state !== heard[place - 1]);
  };
  return { ...script, parking, machine, wish, states };
}

/** Answers the take that tells which leases have arrived, after the worker has broken off the one that was open. */
async function endTake({ clock, link }: Parked, leases: Lease[] = []): Promise<void> {
  expect(link.lastTake.signal.aborted).toBe(true);
  link.lastTake.fail(new LinkError('unavailable', 'aborted'));
  await clock.advance(1);
  expect(link.lastTake.request).toMatchObject({ waitMs: 0, max: 1 });
  link.lastTake.answer(leases);
  await clock.advance(10);
}

describe('a worker that can be parked', () => {
  it('says so as soon as its models run', async () => {
    const { link, states } = await start();
    expect(states()).toEqual(['none', 'ready']);
    expect(link.lastRenewal.request).toMatchObject({
      waitMs: 0,
      parking: { way: 'driver', state: 'ready', change: 0, vramBytes: 0, hostLimitBytes: 64 * GB },
    });
  });

  it('parks and wakes, and takes nothing meanwhile', async () => {
    const worker = await start();
    const { link, machine, parking, states, wish } = worker;
    await wish('parked');
    await endTake(worker);
    const takes = link.takes.length;
    expect(parking.acts).toEqual(['parked']);
    expect(link.lastRenewal.request.parking).toMatchObject({ state: 'parked', vramBytes: 5 * GB });
    await worker.clock.advance(60_000);
    expect(worker.worker.health()).toMatchObject({ parking: 'parked' });
    expect(worker.worker.health().reason).not.toContain('no slot is free');
    // Each reply says the wish again.
    await wish('parked');
    expect(link.takes).toHaveLength(takes);
    await wish('ready');
    expect(parking.acts).toEqual(['parked', 'woken']);
    expect(machine.notes).toEqual(['parked 5', 'granted', 'resident']);
    expect(link.takes.length).toBeGreaterThan(takes);
    expect(states()).toEqual(['none', 'ready', 'parking', 'parked', 'waking', 'ready']);
    expect(link.renewals.map(({ request }) => request.parking?.change ?? 0)).toEqual(
      expect.arrayContaining([0, 1, 2, 3, 4]),
    );
    expect(worker.worker.health().ready).toBe(true);
  });

  it('lets its jobs end first, also one that arrives with the last take', async () => {
    const worker = await start();
    const { clock, executor, link, parking, wish } = worker;
    link.lastTake.answer([lease('a')]);
    await clock.advance(1);
    await wish('parked');
    await endTake(worker, [lease('b')]);
    expect(link.lastTake.request.held).toEqual(['token-a']);
    expect(executor.executions).toHaveLength(2);
    for (const execution of executor.executions) {
      expect(parking.acts).toEqual([]);
      execution.complete();
      await clock.advance(10);
    }
    expect(parking.acts).toEqual(['parked']);
  });

  it('goes on if the platform changes its mind while jobs run', async () => {
    const worker = await start();
    const { clock, executor, link, parking, wish } = worker;
    link.lastTake.answer([lease('a')]);
    await clock.advance(1);
    await wish('parked');
    await endTake(worker);
    const takes = link.takes.length;
    await wish('ready');
    expect(link.takes.length).toBeGreaterThan(takes);
    executor.last.complete();
    await clock.advance(10);
    expect(parking.acts).toEqual([]);
    expect(worker.states()).toEqual(['none', 'ready', 'parking', 'ready']);
  });

  it('stays parked if the platform changes its mind while it moves, until it is asked again', async () => {
    const held = Promise.withResolvers<void>();
    const worker = await start((parking) => {
      parking.hold = held.promise;
    });
    await worker.wish('parked');
    await endTake(worker);
    await worker.wish('ready');
    held.resolve();
    await worker.clock.advance(10);
    expect(worker.worker.health().parking).toBe('parked');
    // An answer from before the platform knew that it is parked.
    await worker.wish('ready', { parkingChange: 1 });
    expect(worker.parking.acts).toEqual(['parked']);
    await worker.wish('ready', { parkingChange: 2 });
    expect(worker.parking.acts).toEqual(['parked', 'woken']);
    expect(worker.worker.health().parking).toBe('ready');
  });

  it('waits for room, and gives up the wait when it should be parked after all', async () => {
    const worker = await start();
    const { clock, machine, parking, wish } = worker;
    await wish('parked');
    await endTake(worker);
    machine.rooms = [false, false, true, false, false];
    parking.wakes = ['no room'];
    await wish('ready');
    await clock.advance(200);
    expect(parking.acts).toEqual(['parked', 'no room']);
    expect(machine.notes.slice(1)).toEqual(['refused', 'refused', 'granted', 'parked 5']);
    await wish('parked');
    expect(worker.worker.health().parking).toBe('parked');
    await wish('ready');
    await clock.advance(300);
    expect(parking.acts).toEqual(['parked', 'no room', 'woken']);
  });

  it('waits on for room though the clock is set forward', async () => {
    const worker = await start();
    const { clock, machine, parking, wish } = worker;
    await wish('parked');
    await endTake(worker);
    machine.rooms = [false, false];
    await wish('ready');
    clock.startFrom(clock.now() + 3_600_000);
    await clock.advance(300);
    expect(parking.acts).toEqual(['parked', 'woken']);
  });

  it('asks for a new process if there is no room for a minute', async () => {
    const worker = await start();
    await worker.wish('parked');
    await endTake(worker);
    worker.machine.rooms = Array.from({ length: 1_000 }, () => false);
    await worker.wish('ready');
    await worker.clock.advance(61_000);
    expect(await worker.worker.ended).toMatchObject({
      name: 'stopped',
      recycle: { reason: expect.stringContaining('the GPU has had no room for 60000 ms') },
    });
    expect(worker.link.byes).toHaveLength(1);
  });

  it('asks for a new process if the wake fails in another way', async () => {
    const worker = await start((parking) => {
      parking.wakes = ['broken'];
    });
    await worker.wish('parked');
    await endTake(worker);
    await worker.wish('ready');
    expect(await worker.worker.ended).toMatchObject({
      recycle: { reason: expect.stringContaining('the ledger cannot be written') },
    });
  });

  it('ends a model that does not fit the memory of the host', async () => {
    const known = await start();
    known.worker.noteGpuFigures({ vramBytes: 65 * GB, vramScope: 'process' });
    await known.wish('parked');
    await endTake(known);
    expect(known.parking.acts).toEqual(['ended']);
    expect(known.link.lastRenewal.request.parking).toMatchObject({ state: 'parked', vramBytes: 0 });
    const unknown = await start((parking) => {
      parking.bytes = 65 * GB;
    });
    await unknown.wish('parked');
    await endTake(unknown);
    expect(unknown.parking.acts).toEqual(['parked', 'ended']);
  });

  it('takes what was in use for the size of a model whose hooks do not tell it', async () => {
    const worker = await start((parking) => {
      parking.way = 'hooks';
      parking.bytes = undefined;
    });
    const { clock, link, machine, parking, wish } = worker;
    const sizes: unknown[] = [];
    const note = (vramBytes: number) =>
      worker.worker.noteGpuFigures({ vramBytes, vramScope: 'devices' });
    for (const bytes of [0, 7 * GB, undefined]) {
      if (bytes !== undefined) note(bytes);
      await wish('parked');
      await endTake(worker);
      sizes.push(link.lastRenewal.request.parking?.vramBytes);
      note(60 * GB);
      await wish('ready');
      await clock.advance(10);
    }
    // 0 would say that it was ended. What the device shows meanwhile is another worker's.
    expect(sizes).toEqual([1, 7 * GB, 7 * GB]);
    expect(machine.notes.filter((note) => note.startsWith('parked')).at(-1)).toBe('parked 7');
    expect(parking.acts).toEqual(Array(3).fill(['parked', 'woken']).flat());
  });

  it('leaves out what stays on the device, if hooks do not tell what they have freed', async () => {
    const worker = await start((parking, machine) => {
      parking.way = 'hooks';
      parking.bytes = undefined;
      machine.usedBytes = 8 * GB;
      parking.onAct = () => {
        machine.usedBytes = GB;
      };
    });
    worker.worker.noteGpuFigures({ vramBytes: 8 * GB, vramScope: 'process' });
    await worker.wish('parked');
    await endTake(worker);
    expect(worker.link.lastRenewal.request.parking?.vramBytes).toBe(7 * GB);
  });

  it('ends a model if others have taken the memory of the host meanwhile', async () => {
    const worker = await start();
    worker.machine.isTaken = true;
    await worker.wish('parked');
    await endTake(worker);
    expect(worker.parking.acts).toEqual(['parked', 'ended']);
    expect(worker.machine.notes).toEqual(['parked 5', 'parked 0']);
  });

  it('leaves its device also if the ledger cannot be written', async () => {
    const worker = await start();
    worker.machine.isBroken = true;
    await worker.wish('parked');
    await endTake(worker);
    expect(worker.parking.acts).toEqual(['parked', 'ended']);
    expect(worker.link.lastRenewal.request.parking).toMatchObject({ state: 'parked' });
    expect(worker.worker.health().state).toBe('ready');
  });

  it('ends without waking when it is drained', async () => {
    const worker = await start();
    await worker.wish('parked');
    await endTake(worker);
    await worker.wish('parked', { drain: true });
    expect(await worker.worker.ended).toMatchObject({ name: 'stopped' });
    expect(worker.parking.acts).toEqual(['parked']);
  });

  it.each(['no model process', 'no machine'])('says nothing with %s', async (what) => {
    const parking = new ScriptedParking();
    if (what === 'no model process') parking.way = undefined;
    const machine = what === 'no machine' ? undefined : new ScriptedMachine();
    const { clock, link, worker } = await startScript({ parking, parkingMachine: machine });
    await clock.advance(0);
    expect(link.renewals.every(({ request }) => request.parking === undefined)).toBe(true);
    link.lastRenewal.answer({ ended: [], drain: false, parking: 'parked' });
    await clock.advance(10);
    expect(parking.acts).toEqual([]);
    expect(worker.health()).not.toHaveProperty('parking');
  });
});

describe('a spare worker', () => {
  const spare = { isSpare: true };

  it('is parked before it takes a job, and takes jobs when it has been woken', async () => {
    const { clock, link, parking, states, wish, worker } = await start(undefined, spare);
    await clock.advance(10);
    expect(parking.acts).toEqual(['parked']);
    expect(link.takes).toEqual([]);
    expect(states()).toEqual(['none', 'parking', 'parked']);
    expect(worker.health()).toMatchObject({ ready: true, parking: 'parked' });
    await wish('ready');
    expect(parking.acts).toEqual(['parked', 'woken']);
    expect(link.takes).toHaveLength(1);
  });

  it('asks the driver how much memory its model has, because there is no sample yet', async () => {
    const big = (_: ScriptedParking, machine: ScriptedMachine) => {
      machine.usedBytes = 65 * GB;
    };
    const { clock, parking } = await start(big, spare);
    await clock.advance(10);
    expect(parking.acts).toEqual(['ended']);
  });

  it('that is needed before it is parked takes jobs', async () => {
    const held = Promise.withResolvers<void>();
    const hold = (parking: ScriptedParking) => {
      parking.hold = held.promise;
    };
    const { clock, link, parking, states, wish } = await start(hold, spare);
    await clock.advance(10);
    await wish('ready');
    held.resolve();
    await clock.advance(10);
    // The platform asks again when it knows that the worker is parked.
    await wish('ready', { parkingChange: 2 });
    expect(parking.acts).toEqual(['parked', 'woken']);
    expect(states().at(-1)).toBe('ready');
    expect(link.takes).toHaveLength(1);
  });

  it('that cannot be parked takes no job', async () => {
    const cannot = (parking: ScriptedParking) => {
      parking.way = undefined;
    };
    const { clock, link } = await start(cannot, spare);
    await clock.advance(10_000);
    expect(link.takes).toEqual([]);
  });
});

it('wakes its models one after the other if nobody tells the memory in use', async () => {
  const unknown = (_: ScriptedParking, machine: ScriptedMachine) => {
    machine.isMeasured = false;
  };
  const { clock, parking, wish } = await start(unknown, { isSpare: true });
  await clock.advance(10);
  await wish('ready');
  expect(parking.hows).toEqual(['in turn']);
});

describe('a worker that can be suspended in the middle of its jobs', () => {
  const startAble = () =>
    start((parking) => {
      parking.suspends = true;
    });

  it('leaves its device with a job, and goes on when it is asked', async () => {
    const worker = await startAble();
    const { clock, link, machine, parking, wish } = worker;
    expect(link.lastRenewal.request.parking).toMatchObject({ suspendable: true });
    link.lastTake.answer([lease('a')]);
    await clock.advance(10);
    const { token } = lease('a');
    await wish('suspended');
    await endTake(worker);
    expect(link.lastRenewal.request).toMatchObject({
      parking: { state: 'parked', suspended: true, vramBytes: 5 * GB },
    });
    expect(worker.worker.health()).toMatchObject({ parking: 'suspended', state: 'ready' });
    // Its lease is renewed as before.
    expect(
      link.renewals.findLast(({ request }) => request.waitMs > 0)?.request.leases,
    ).toMatchObject([{ token }]);
    await wish('ready');
    await clock.advance(10);
    expect(parking.acts).toEqual(['suspended', 'woken']);
    expect(machine.notes).toEqual(['parked 5', 'granted', 'resident']);
    const { parking: last } = link.lastRenewal.request;
    expect(last).toMatchObject({ state: 'ready' });
    expect(last).not.toHaveProperty('suspended');
  });

  it.each<[why: string, change: (worker: Parked) => void, acts: string[]]>([
    [
      'a kernel does not end',
      ({ parking }) => {
        parking.suspension = { bytes: 0, failure: 'a kernel still runs' };
      },
      ['suspended', 'woken'],
    ],
    [
      'one of its models cannot leave',
      ({ parking }) => {
        parking.suspension = { bytes: GB, failure: 'a kernel still runs' };
      },
      ['suspended', 'woken'],
    ],
    [
      'others have taken the memory of the host meanwhile',
      ({ machine }) => {
        machine.isTaken = true;
      },
      ['suspended', 'woken'],
    ],
    [
      'the host has no room',
      ({ worker }) => worker.noteGpuFigures({ vramBytes: 65 * GB, vramScope: 'process' }),
      ['woken'],
    ],
  ])('runs on if %s, says so, and does not try again by itself', async (_, change, acts) => {
    const worker = await startAble();
    change(worker);
    const { clock, link, parking, wish } = worker;
    await wish('suspended');
    await endTake(worker);
    await clock.advance(1_000);
    expect(link.lastRenewal.request.parking).toMatchObject({ state: 'ready', refusals: 1 });
    await wish('suspended');
    expect(parking.acts).toEqual(acts);
    await wish('ready');
    await wish('suspended');
    await endTake(worker);
    expect(link.lastRenewal.request.parking).toMatchObject({ refusals: 2 });
  });

  it('tries again after a refusal if another platform asks, which has not heard of it', async () => {
    const worker = await startAble();
    const { clock, link, parking, wish } = worker;
    parking.suspension = { bytes: 0, failure: 'a kernel still runs' };
    await wish('suspended');
    await endTake(worker);
    const open = link.renewals.findLast(({ request }) => request.waitMs > 0);
    open?.answer({ ended: [], drain: false });
    await clock.advance(1);
    await wish('suspended');
    await endTake(worker);
    expect(link.lastRenewal.request.parking).toMatchObject({ refusals: 2 });
  });

  it('gives its jobs back to the queue if it finds no room for a minute', async () => {
    const worker = await startAble();
    const { clock, executor, link, machine, wish } = worker;
    link.lastTake.answer([lease('a')]);
    await clock.advance(10);
    await wish('suspended');
    await endTake(worker);
    machine.rooms = Array(1_000).fill(false);
    await wish('ready');
    await clock.advance(61_000);
    expect(executor.last.stops).toEqual(['shutdown']);
    await clock.advance(60_000);
    expect(link.reported).toEqual(['a#1 released']);
  });

  it('gives its jobs back at once when it is drained', async () => {
    const worker = await startAble();
    const { clock, executor, link, wish } = worker;
    link.lastTake.answer([lease('a')]);
    await clock.advance(10);
    await wish('suspended');
    await endTake(worker);
    await wish('suspended', { drain: true });
    expect(executor.last.stops).toEqual(['shutdown']);
    await clock.advance(60_000);
    expect(link.reported).toEqual(['a#1 released']);
    expect(worker.worker.state.name).toBe('stopped');
  });

  it('never leaves with jobs if its models cannot be suspended', async () => {
    const { parking, wish } = await start();
    await wish('suspended');
    expect(parking.acts).toEqual([]);
  });
});
