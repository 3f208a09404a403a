// Pods in one process: a store in a file, a host that outlives the platform, and a clock that the
// test drives. The platform can be killed at any call of its engine and restarted.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ManualClock } from '../../../src/base/clock.ts';
import { silentLog } from '../../../src/base/log.ts';
import { addToBill } from '../../../src/control/billing/bill-rows.ts';
import {
  type PodCatalog,
  type PodState,
  Pods,
  type PodsOptions,
} from '../../../src/control/pods/pods.ts';
import { Reconciler, type ReconcilerOptions } from '../../../src/control/pods/reconciler.ts';
import type { Container, ContainerSpec, Engine } from '../../../src/engine/engine.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { OWNER, type Store } from '../../../src/store/store.ts';
import { type PodCreation, podCreation } from '../../../src/wire/resources/pod.ts';
import { NO_NAMES } from '../no-names.ts';
import { syncAtOnce } from '../sync-at-once.ts';
import { MemoryEngine, MemoryHost } from './memory-engine.ts';

export const CPU = { id: 'cpu', vcpuCount: 2, memory: 4 };
export const GPU = 'H200';

/** A catalog with one GPU type, and one volume and one registry for each user. */
export function createCatalog(gpus: readonly string[] = []): PodCatalog {
  return {
    check: () => {},
    priceOf: ({ gpu }) => (gpu ? 2 * gpu.count : 0.25),
    gpuDevices: (type) => (type === GPU ? gpus : []),
    resolveVolume: (_userId, idOrName) => (idOrName === 'models' ? 'data' : idOrName),
    resolveRegistry: (_userId, idOrName) => (idOrName === 'own' ? 'private' : idOrName),
    volume: (userId, id) => (id === 'data' ? { source: `${userId}-data` } : undefined),
    registry: (_userId, id) =>
      id === 'private' ? { server: 'r.test', username: 'u', password: 'p' } : undefined,
    dataCenterFor: (_userId, { dataCenterId }) => dataCenterId ?? 'local',
  };
}

export interface PodWorldOptions {
  catalog?: PodCatalog;
  engine?: Engine['kind'];
  pods?: Partial<PodsOptions>;
  reconciler?: Partial<ReconcilerOptions>;
}

/** The engine call at which the platform is killed, counted from 0, before or after its effect. */
export interface Cut {
  at: number;
  side: 'before' | 'after';
}

/** Kills the platform at the cut: later calls neither return nor have an effect. */
class CutEngine extends MemoryEngine {
  cut: Cut | undefined;
  /** Calls with an effect since the cut was set. */
  calls = 0;
  isCut = false;

  override create(spec: ContainerSpec): Promise<void> {
    return this.#pass(() => super.create(spec));
  }

  override start(id: string, gpus?: readonly string[]): Promise<void> {
    return this.#pass(() => super.start(id, gpus));
  }

  override stop(id: string, graceMs: number): Promise<void> {
    return this.#pass(() => super.stop(id, graceMs));
  }

  override remove(id: string, volumes: 'keep' | 'remove'): Promise<void> {
    return this.#pass(() => super.remove(id, volumes));
  }

  override inspect(id: string): Promise<Container | undefined> {
    return this.isCut ? waitForEver() : super.inspect(id);
  }

  override list(): Promise<Container[]> {
    return this.isCut ? waitForEver() : super.list();
  }

  async #pass(act: () => Promise<void>): Promise<void> {
    const isNow = this.cut?.at === this.calls++;
    if (isNow && this.cut?.side === 'before') this.isCut = true;
    if (!this.isCut) await act();
    if (isNow) this.isCut = true;
    if (this.isCut) await waitForEver();
  }
}

function waitForEver(): Promise<never> {
  return new Promise(() => {});
}

export class PodWorld {
  readonly clock = new ManualClock();
  readonly host = new MemoryHost(this.clock);
  readonly folder = mkdtempSync(join(tmpdir(), 'millrace-pods-'));
  readonly #options: PodWorldOptions;
  readonly #catalog: PodCatalog;
  #store: Store | undefined;
  #pods: Pods | undefined;
  #reconciler: Reconciler | undefined;
  #engine: CutEngine | undefined;

  constructor(options: PodWorldOptions = {}) {
    this.#options = options;
    this.host.gpusAtStart = options.engine === 'process';
    this.#catalog = options.catalog ?? createCatalog();
  }

  static async open(options: PodWorldOptions = {}): Promise<PodWorld> {
    const world = new PodWorld(options);
    await world.#open();
    return world;
  }

  get pods(): Pods {
    if (!this.#pods) throw new Error('the platform is not there');
    return this.#pods;
  }

  get store(): Store {
    if (!this.#store) throw new Error('the platform is not there');
    return this.#store;
  }

  get engine(): CutEngine {
    if (!this.#engine) throw new Error('the platform is not there');
    return this.#engine;
  }

  /** Sets the engine call at which the platform is killed. */
  setCut(cut: Cut | undefined): void {
    this.engine.calls = 0;
    this.engine.cut = cut;
  }

  /** Discards pods, reconciler, engine and store without closing them, and opens them again. */
  async restart(): Promise<void> {
    await this.#drop();
    await this.#open();
  }

  async close(): Promise<void> {
    await this.#drop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  create(creation: Partial<PodCreation> = {}, userId = OWNER): Promise<PodState> {
    return this.pods.create(userId, completeCreation(creation));
  }

  createWorker(creation: Partial<PodCreation> = {}): Promise<PodState> {
    const worker = { endpointId: 'ep_1', handler: 'handler.ts', templateVersion: 3 };
    return this.pods.create(OWNER, completeCreation(creation), worker);
  }

  /** Advances time until nothing else changes. */
  async settle(ms = 0): Promise<void> {
    await this.clock.advance(ms);
    for (let turn = 0; turn < 4; turn++) await this.clock.advance(0);
  }

  async #open(): Promise<void> {
    const { clock, host } = this;
    const engine = new CutEngine(host, this.#options.engine ?? 'docker');
    const path = join(this.folder, 'pods.db');
    const store = openSqliteStore({ path, syncFile: syncAtOnce });
    const catalog = this.#catalog;
    const templates = { ...NO_NAMES, find: () => undefined };
    const bill = { add: addToBill };
    const given = { store, clock, engine, catalog, templates, bill, ...this.#options.pods };
    const pods = await Pods.open(given);
    this.#store = store;
    this.#engine = engine;
    this.#pods = pods;
    this.#reconciler = new Reconciler({
      ...{ pods: pods.live, meter: pods.meter, engine, catalog, clock, log: silentLog },
      ...this.#options.reconciler,
    });
    await this.#reconciler.start();
  }

  async #drop(): Promise<void> {
    this.#reconciler?.close();
    await this.#store?.close();
  }
}

function completeCreation(creation: Partial<PodCreation>): PodCreation {
  const compute = creation.gpu ? {} : { cpu: CPU };
  const image = creation.template ? {} : { image: 'busy' };
  return podCreation.parse({ name: 'a', ...image, ...compute, ...creation });
}
