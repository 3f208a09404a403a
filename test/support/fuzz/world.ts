// The platform that the fuzzer calls, with three users, their resources, and the IDs that requests
// name.
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { decodeFrames } from '../../../src/wire/link/http-form.ts';
import { leaseHeaders } from '../../../src/wire/link/worker-link.ts';
import { issuedKey } from '../../../src/wire/resources/key.ts';
import { fixture, PlatformProcess } from '../processes.ts';
import type { Dice } from './dice.ts';
import type { FuzzRequest } from './framing.ts';
import {
  call,
  created,
  describeBelongings,
  endAll,
  type Furnishing,
  furnish,
  make,
  POLL_MS,
  SECRET,
  type User,
} from './furniture.ts';
import {
  type FuzzedOperation,
  type Ground,
  RESOURCE_KINDS,
  type ResourceKind,
  type TakenLease,
} from './operations.ts';
import type { Allowance } from './safety.ts';
import { STRANGE_TEXTS } from './values.ts';

/** The catalog is the same on each machine, so that a seed means the same requests and answers. */
const MACHINE = [
  ...['--catalog', fileURLToPath(new URL('catalog.json', import.meta.url))],
  ...['--machine', 'memory=8192,vcpus=1024,disk=4096'],
];

/** Requests name only the newest resources of each kind: most earlier ones are gone. */
const RECENT = 12;

export interface Caller {
  name: 'alice' | 'operator' | 'nobody';
  /** Undefined: without a key. */
  authorization: string | undefined;
}

interface Learning {
  body: string;
  caller: Caller;
}

interface Naming {
  kind: ResourceKind;
  caller: Caller['name'];
  own: readonly string[];
}

export class FuzzWorld {
  readonly platform: PlatformProcess;
  readonly ground: Ground;
  readonly allowance: Allowance;
  /** The caller. */
  readonly alice: User;
  /** The other user, whose resources must stay untouched. */
  readonly bob: User;
  /** All keys that were ever issued. */
  readonly keys = new Set<string>();
  /** Alice's keys: with all scopes, and with some. */
  readonly #callers: { full: string; some: string[] };
  readonly #issued: string[] = [];
  readonly #leases: TakenLease[] = [];
  readonly #before: unknown;

  private constructor({ allowance, alice, before, bob, callers, cpu, platform }: Furnishing) {
    this.platform = platform;
    this.allowance = allowance;
    this.alice = alice;
    this.bob = bob;
    this.#callers = callers;
    this.#before = before;
    this.ground = {
      cpu,
      pickId: (kind, dice) => dice.pickAny(alice.ids[kind]),
      pickLease: (dice) => dice.pickAny(this.#leases.slice(-RECENT)),
    };
    const known = [platform.adminKey, platform.workerKey, bob.key, callers.full, ...callers.some];
    for (const key of known) this.keys.add(key);
  }

  static async open(allowance: Allowance): Promise<FuzzWorld> {
    const platform = await PlatformProcess.start({
      endpoints: ['declared'],
      args: ['--engine', 'process', '--trust-users', '--take-wait-ms', '300', ...MACHINE],
    });
    try {
      return new FuzzWorld(await furnish(platform, { ...allowance }));
    } catch (error) {
      await platform.close();
      throw error;
    }
  }

  get port(): number {
    return Number(new URL(this.platform.url).port);
  }

  /** Callers and their keys. */
  chooseCaller(dice: Dice): Caller {
    const alice = (key: string): Caller => ({ name: 'alice', authorization: `Bearer ${key}` });
    const nobody = (authorization?: string): Caller => ({ name: 'nobody', authorization });
    const { adminKey } = this.platform;
    const { full, some } = this.#callers;
    return dice.weigh<() => Caller>(
      [
        [66, () => alice(full)],
        [12, () => alice(dice.pickAny(some) ?? full)],
        [8, () => alice(dice.pickAny(this.#issued) ?? full)],
        [6, () => ({ name: 'operator', authorization: adminKey })],
        [3, () => nobody()],
        [5, () => nobody(dice.pick(listMalformed(full)))],
      ],
      nobody,
    )();
  }

  /** Fills each parameter of the path: with an existing ID, another user's, or an unknown one. */
  fill({ method, path }: FuzzedOperation, dice: Dice, { name }: Caller): string {
    // Most other operations need one of these two.
    const isSpared = path.startsWith('/v1/') && (method === 'DELETE' || method === 'PATCH');
    const { endpoint: endpoints } = this.alice.ids;
    const [queue = '', balanced = ''] = endpoints;
    const usual = path.startsWith('/lb/') ? balanced : queue;
    const isUsual = name === 'alice' && !path.startsWith('/v1/') && dice.chance(0.6);
    const own = (kind: ResourceKind) =>
      kind === 'endpoint' && isSpared ? endpoints.slice(2) : this.alice.ids[kind].slice(-RECENT);
    return path
      .replace(':endpoint', (parameter) => (isUsual ? usual : parameter))
      .replaceAll(/:(\w+)/g, (_, word: string) => {
        const kind = RESOURCE_KINDS.find((each) => each === word) ?? 'job';
        return this.#nameOne(dice, { kind, caller: name, own: own(kind) });
      })
      .replace('*', () => this.#nameWorker(dice));
  }

  #nameOne(dice: Dice, { caller, kind, own }: Naming): string {
    const nothing = '019a9999-9999-7999-8999-999999999999';
    // The operator may change the keys of others.
    const mine = caller === 'operator' ? 'declared' : dice.pickAny(own);
    const others = caller === 'operator' ? nothing : dice.pickAny(this.bob.ids[kind]);
    const id = dice.weigh<string | undefined>(
      [
        [80, mine],
        [10, others],
        [5, nothing],
        [5, encodeURIComponent(dice.pick(STRANGE_TEXTS).toWellFormed())],
      ],
      mine,
    );
    return id || nothing;
  }

  #nameWorker(dice: Dice): string {
    const worker = `worker-${dice.integer(1, 5)}`;
    const job = dice.pickAny(this.alice.ids.job) ?? 'none';
    return dice.pick([worker, worker, `${worker}/${job}-a1`, '$RUNPOD_POD_ID', 'tokens', 'upper']);
  }

  /** Remembers created resources for later requests. @returns a fault, if any */
  learn({ route, target }: FuzzRequest, { body, caller }: Learning): string[] {
    const made = created.parse(JSON.parse(body));
    const { ids } = this.alice;
    const [queue = ''] = ids.endpoint;
    const isJobOfHers = /\/run(sync)?$/.test(route) && target.includes(queue);
    if (route === 'POST /v1/keys' || route.endsWith('/rotate')) {
      const { key, userId } = issuedKey.parse(made);
      this.keys.add(key);
      if (caller.name !== 'alice') return [];
      this.#issued.push(key);
      ids.key.push(made.id);
      return userId === 'alice' ? [] : [`a key of ${userId} was made with one of alice`];
    }
    if (caller.name !== 'alice') return [];
    if (route === 'POST /v2/pods') ids.pod.push(made.id);
    if (route === 'POST /v1/templates') ids.template.push(made.id);
    if (route === 'POST /v1/budgets') ids.budget.push(made.id);
    if (route === 'POST /v1/schedules') ids.schedule.push(made.id);
    if (route === 'POST /v1/network-volumes') ids.networkvolume.push(made.id);
    if (route === 'POST /v1/endpoints') ids.endpoint.push(made.id);
    if (isJobOfHers) ids.job.push(made.id);
    return [];
  }

  /** Reads the leases of a take from its frames. */
  learnLeases(body: Buffer, workerId: string): void {
    const headers = decodeFrames(body).map(({ header }) => header);
    for (const { attempt, jobId, token } of leaseHeaders.read(headers)) {
      this.#leases.push({ attempt, jobId, token, workerId });
    }
  }

  /** Checks the platform at the end of a run. @returns faults */
  async examine(): Promise<string[]> {
    const faults: string[] = [];
    const { exitCode, signalCode } = this.platform.process.child;
    if (exitCode !== null || signalCode !== null) return ['the platform has ended'];
    const after = await describeBelongings(this.platform, this.bob);
    if (JSON.stringify(after) !== JSON.stringify(this.#before)) {
      faults.push(`bob's things: ${JSON.stringify(this.#before)} became ${JSON.stringify(after)}`);
    }
    const { output } = this.platform.process;
    for (const key of this.keys) {
      const [, secret = key] = key.split('mr_');
      if (output.includes(secret)) faults.push('there is a key in the log');
    }
    if (output.includes(SECRET)) faults.push("there is something of bob's in the log");
    const alarming = /^.*(unhandled|uncaught|request failed|\(node:\d+\)|"level":[56]0).*$/im;
    const [line] = alarming.exec(output) ?? [];
    if (line !== undefined) faults.push(`in the log: ${line.slice(0, 2_000)}`);
    return faults;
  }

  /**
   * Checks that a worker pod completes a job and that a pod starts and stops, not only that the
   * platform answers.
   */
  async useOnceMore(): Promise<void> {
    const { key } = this.bob;
    // A fuzzed pod may hold all of the disk. A terminated one holds none, even while its process
    // ends; vCPUs and memory suffice for all pods of a run together.
    await endAll(this.platform, this.#callers.full);
    const templateId = await make(this.platform, key, '/v1/templates', {
      ...{ name: 'worker', image: 'none', handler: fixture('tagged.ts') },
    });
    const endpoint = await make(this.platform, key, '/v1/endpoints', {
      ...{ name: 'after', templateId, workersMax: 1, idleTimeout: 1 },
    });
    const input = { n: 5, ms: 0 };
    const ran = await call(this.platform, key, `/v2/${endpoint}/runsync?wait=60000`, { input });
    const { output } = z.looseObject({ output: z.unknown() }).parse(ran);
    if (JSON.stringify(output) !== '{"n":5,"tag":"none"}') {
      throw new Error(`the job was not done: ${JSON.stringify(ran)}`);
    }
    const pod = await make(this.platform, key, '/v2/pods', this.#describePod());
    await this.#untilPod(pod, 'RUNNING');
    await call(this.platform, key, `/v2/pods/${pod}/action`, { action: 'stop' });
    await this.#untilPod(pod, 'EXITED');
    await call(this.platform, key, `/v2/pods/${pod}/action`, { action: 'start' });
    await this.#untilPod(pod, 'RUNNING');
    await call(this.platform, key, `/v2/pods/${pod}/action`, { action: 'terminate' });
  }

  #describePod(): object {
    return { name: 'after', image: 'none', args: 'sleep 600', cpu: this.ground.cpu };
  }

  async #untilPod(pod: string, status: string): Promise<void> {
    for (;;) {
      const seen = await call(this.platform, this.bob.key, `/v2/pods/${pod}`);
      if (z.looseObject({ status: z.string() }).parse(seen).status === status) return;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** Checks that no started process is left. */
  async close(): Promise<void> {
    const { exitCode, signalCode } = this.platform.process.child;
    try {
      if (exitCode !== null || signalCode !== null) await this.platform.restart();
      const keys = [this.#callers.full, this.bob.key];
      for (const key of keys) await endAll(this.platform, key);
    } finally {
      await this.platform.close();
    }
  }
}

/** Texts that are no valid key. */
function listMalformed(key: string): [string, ...string[]] {
  return [
    '',
    'Bearer',
    'Bearer ',
    key.slice(0, -1),
    `Basic ${key}`,
    `Bearer ${key} ${key}`,
    `Bearer mr_${'A'.repeat(43)}`,
    `Bearer ${'x'.repeat(10_000)}`,
    'Bearer caf\u00e9',
  ];
}
