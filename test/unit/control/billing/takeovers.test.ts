// What pods are billed while platforms take over from each other: killed and paused leaders, whose clocks differ from
// each other's and from the machine's. The bill must have exactly the runs that the machine has recorded.

import { expect, it, onTestFinished } from 'vitest';
import { type Clock, ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { addToBill } from '../../../../src/control/billing/bill-rows.ts';
import { Billing } from '../../../../src/control/billing/billing.ts';
import { Pods } from '../../../../src/control/pods/pods.ts';
import { Reconciler } from '../../../../src/control/pods/reconciler.ts';
import { type Container, type Engine, EngineError } from '../../../../src/engine/engine.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';
import { podCreation } from '../../../../src/wire/resources/pod.ts';
import { MemoryEngine, MemoryHost } from '../../../support/containers/memory-engine.ts';
import { createCatalog, GPU } from '../../../support/containers/pod-world.ts';
import { NO_NAMES } from '../../../support/no-names.ts';
import { createRandom } from '../../../support/random.ts';

const OWNER = 'owner';
const DAY_MS = 86_400_000;
/** Clocks are ahead of or behind the machine's by at most this, ms. */
const MAX_SKEW_MS = 4_000;
const STEPS = 60;
const catalog = createCatalog(['g1', 'g2', 'g3']);

/** A process that can be paused: meanwhile, none of its calls begins or returns. */
class Process {
  readonly term: number;
  readonly skewMs: number;
  #resumed: PromiseWithResolvers<void> | undefined;
  isDead = false;

  constructor(term: number, skewMs: number) {
    this.term = term;
    this.skewMs = skewMs;
  }

  pause(): void {
    this.#resumed ??= Promise.withResolvers();
  }

  resume(): void {
    this.#resumed?.resolve();
    this.#resumed = undefined;
  }

  async turn(): Promise<void> {
    if (this.isDead) await new Promise(() => {});
    await this.#resumed?.promise;
  }
}

interface Gate {
  /** Before each call. */
  admit: () => Promise<void>;
  /** Before each answer. */
  turn: () => Promise<void>;
}

class GatedEngine extends MemoryEngine {
  readonly #gate: Gate;

  constructor(host: MemoryHost, gate: Gate) {
    super(host);
    this.#gate = gate;
  }

  override create(...given: Parameters<Engine['create']>): Promise<void> {
    return this.#pass(() => super.create(...given));
  }

  override start(...given: Parameters<Engine['start']>): Promise<void> {
    return this.#pass(() => super.start(...given));
  }

  override stop(...given: Parameters<Engine['stop']>): Promise<void> {
    return this.#pass(() => super.stop(...given));
  }

  override remove(...given: Parameters<Engine['remove']>): Promise<void> {
    return this.#pass(() => super.remove(...given));
  }

  override inspect(id: string): Promise<Container | undefined> {
    return this.#pass(() => super.inspect(id));
  }

  override list(): Promise<Container[]> {
    return this.#pass(() => super.list());
  }

  async #pass<T>(call: () => Promise<T>): Promise<T> {
    await this.#gate.admit();
    try {
      return await call();
    } finally {
      await this.#gate.turn();
    }
  }
}

class World {
  readonly clock = new ManualClock();
  readonly host = new MemoryHost(this.clock);
  readonly store = openSqliteStore({ path: ':memory:' });
  /** Of the process that leads: the store and the machine refuse all others. */
  term = 0;

  async lead(skewMs: number) {
    const { host } = this;
    const process = new Process(++this.term, skewMs);
    const clock = this.#clockOf(process);
    const engine = this.#engineOf(process, host);
    const store = this.#storeOf(process);
    const templates = { ...NO_NAMES, find: () => undefined };
    const pods = await Pods.open({
      store,
      clock,
      engine,
      catalog,
      templates,
      bill: { add: addToBill },
    });
    const reconciler = new Reconciler({
      ...{ pods: pods.live, meter: pods.meter, engine, catalog, clock, log: silentLog },
    });
    void reconciler.start();
    const billing = new Billing({ store, clock, pods, nameOf: () => undefined });
    return { process, pods, reconciler, billing };
  }

  async settle(ms = 0): Promise<void> {
    await this.clock.advance(ms);
    for (let turn = 0; turn < 4; turn++) await this.clock.advance(0);
  }

  #clockOf(process: Process): Clock & { monotonic: () => number } {
    const { clock } = this;
    return {
      now: () => clock.now() + process.skewMs,
      monotonic: clock.monotonic,
      after: (ms, act) => clock.after(ms, () => void process.turn().then(act)),
    };
  }

  #engineOf(process: Process, host: MemoryHost): Engine {
    const admit = async () => {
      await process.turn();
      if (process.term !== this.term) throw new EngineError('unavailable', 'another node leads');
    };
    return new GatedEngine(host, { admit, turn: () => process.turn() });
  }

  #storeOf(process: Process): Store {
    const { store } = this;
    const read: Store['read'] = async (operation) => {
      await process.turn();
      const found = await store.read(operation);
      await process.turn();
      return found;
    };
    const write: Store['write'] = async (operation, options) => {
      await process.turn();
      if (process.term !== this.term) throw new Error('another node leads');
      const written = await store.write(operation, options);
      await process.turn();
      return written;
    };
    return Object.assign(Object.create(store), { read, write });
  }
}

const first = Number(process.env['SEED'] ?? 1);
const SEEDS = Array.from({ length: Number(process.env['SEEDS'] ?? 4) }, (_, at) => first + at);

it.each(SEEDS)('bills each run once over takeovers: seed %i', async (seed) => {
  const world = new World();
  onTestFinished(() => world.store.close());
  const random = createRandom(seed);
  const pick = <T>(among: readonly [T, ...T[]]): T =>
    among[Math.floor(random() * among.length)] ?? among[0];
  const skew = () => Math.round((2 * random() - 1) * MAX_SKEW_MS);
  let leader = await world.lead(skew());
  const paused: (typeof leader)[] = [];
  const takeOver = async (isKilled: boolean) => {
    const { process } = leader;
    if (isKilled) process.isDead = true;
    else {
      process.pause();
      paused.push(leader);
    }
    await world.settle(Math.floor(random() * pick([0, 1_000, 60_000, 900_000])));
    leader = await world.lead(skew());
    if (random() < 0.7) await world.settle(Math.floor(random() * 3_000));
  };
  const resume = async () => {
    const late = paused.shift();
    late?.process.resume();
    // It learns only now that another node leads.
    await world.settle(Math.floor(random() * 2_000));
    late?.reconciler.close();
  };
  const ids: [string, ...string[]] = [await create(leader.pods)];
  for (let pod = 1; pod < 3; pod++) ids.push(await create(leader.pods));
  const act = (action: 'start' | 'stop' | 'restart') => () =>
    leader.pods.act(OWNER, pick(ids), action).catch(() => {});
  const end = () => {
    const id = pick(ids);
    if (world.host.containers.has(id)) world.host.end(id, pick([0, 0, 1]));
  };
  for (let step = 0; step < STEPS; step++) {
    await pick<() => unknown>([
      act('start'),
      ...[act('start'), act('stop'), act('restart'), end],
      ...[() => takeOver(true), () => takeOver(false), resume],
      () => leader.billing.removeOld(),
      () => world.settle(Math.floor(random() * pick([10, 3_000, 900_000]))),
    ])();
  }
  while (paused.length > 0) await resume();
  await world.settle(30_000);
  for (const id of ids) await leader.pods.act(OWNER, id, 'terminate').catch(() => {});
  await world.settle(60_000);
  expect(world.host.containers.size).toBe(0);
  leader.reconciler.close();
  const range = { userId: OWNER, from: 0, to: world.clock.now() + DAY_MS };
  for (const step of ['hour', 'day'] as const) {
    const rows = await leader.billing.rows({ ...range, step });
    const billed = ids.map((id) => sum(rows.filter((row) => row.id === id).map(({ ms }) => ms)));
    expect(billed).toEqual(ids.map((id) => sum(lengths(world.host, id))));
  }
});

async function create(pods: Pods): Promise<string> {
  const creation = podCreation.parse({ name: 'a', image: 'busy', gpu: { id: GPU, count: 1 } });
  return (await pods.create(OWNER, creation)).id;
}

function lengths(host: MemoryHost, id: string): number[] {
  const own = host.runs.filter((run) => run.id === id);
  return own.map(({ endedAt, startedAt }) => Math.max(0, (endedAt ?? startedAt) - startedAt));
}

function sum(all: readonly number[]): number {
  return all.reduce((total, each) => total + each, 0);
}
