// Random lives of workers under a supervisor: whatever processes, devices and operators do, in any
// order. The seed of a life that goes wrong is in the test's name.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import type { WorkerBye, WorkerIdentity } from '../../../../src/wire/link/worker-link.ts';
import type { DeviceSet } from '../../../../src/worker/gpu/device-sets.ts';
import type { ToWorker } from '../../../../src/worker/supervisor/parent-channel.ts';
import { Supervisor } from '../../../../src/worker/supervisor/supervisor.ts';
import type {
  ProcessEnd,
  SupervisedProcess,
} from '../../../../src/worker/supervisor/worker-process.ts';
import { createRandom } from '../../../support/random.ts';

const LIVES = 150;
const STEPS = 60;
const LEFT = { code: 0, signal: null };
const KILLED = { code: null, signal: 'SIGKILL' };

class PretendProcess implements SupervisedProcess {
  readonly ready: Promise<boolean>;
  readonly ended: Promise<ProcessEnd>;
  readonly pid = undefined;
  readonly set: DeviceSet;
  identity: WorkerIdentity | undefined;
  failure: SupervisedProcess['failure'];
  recycling: string | undefined;
  isDismissed = false;
  isParked = false;
  activity: SupervisedProcess['activity'];
  hasCompleted = false;
  runsSolo = false;
  breaker: SupervisedProcess['breaker'];
  beats = 0;
  end: ProcessEnd | undefined;
  isKilled = false;
  /** It was told to leave. */
  isAsked = false;
  isReleased = false;
  readonly #as: WorkerIdentity;
  readonly #becomeReady: (isReady: boolean) => void;
  readonly #leave: (end: ProcessEnd) => void;

  constructor(set: DeviceSet, as: WorkerIdentity) {
    this.set = set;
    this.#as = as;
    const ready = Promise.withResolvers<boolean>();
    const ended = Promise.withResolvers<ProcessEnd>();
    this.ready = ready.promise;
    this.ended = ended.promise;
    this.#becomeReady = ready.resolve;
    this.#leave = ended.resolve;
  }

  drain(): void {
    this.isAsked = true;
  }

  kill(): void {
    this.isKilled = true;
  }

  send({ type }: ToWorker): void {
    this.isAsked = true;
    if (type === 'release') this.isReleased = true;
  }

  ask(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  beSomebody(): void {
    this.identity ??= this.#as;
  }

  beReady(): void {
    this.beSomebody();
    this.#becomeReady(true);
  }

  die(end: ProcessEnd): void {
    this.end = end;
    this.#becomeReady(false);
    this.#leave(end);
  }
}

class Life {
  readonly supervisor: Supervisor;
  readonly clock = new ManualClock();
  readonly processes: PretendProcess[] = [];
  readonly byes: WorkerBye[] = [];
  readonly bad = new Set<number>();
  /** What must never happen, and did. */
  readonly faults: string[] = [];
  isStopping = false;
  isOver = false;
  readonly #random: () => number;
  readonly #sets: DeviceSet[];

  constructor(seed: number) {
    this.#random = createRandom(seed);
    const count = 1 + this.#pick(3);
    this.#sets = Array.from({ length: count }, (_, index) => ({
      devices: [{ kind: 'gpu', index, uuid: `GPU-${index}`, name: 'G', memoryBytes: 1 }],
      environment: {},
    }));
    this.supervisor = new Supervisor({
      sets: this.#sets,
      workerId: this.#random() < 0.5 ? 'w' : undefined,
      launch: (set, as) => this.#launch(set, as),
      sayBye: async (bye) => {
        await turn();
        this.byes.push(bye);
      },
      readUndelivered: async () => [],
      killAfterMs: 48_000,
      startAttempts: 3,
      clock: this.clock,
      log: silentLog,
    });
    void this.supervisor.ended.then(() => {
      this.isOver = true;
    });
  }

  get alive(): PretendProcess[] {
    return this.processes.filter(({ end }) => end === undefined);
  }

  async live(): Promise<void> {
    if (this.#random() < 0.2) this.#spoil(0);
    this.supervisor.start();
    for (let step = 0; step < STEPS && !this.isOver && !this.isStopping; step++) {
      await this.#act();
      for (const process of this.alive) if (process.isKilled) process.die(KILLED);
      await turn();
      if (!this.supervisor.isStopping) this.#checkStates();
    }
    this.isStopping = true;
    void this.supervisor.stop();
    for (let step = 0; step < STEPS && !this.isOver; step++) {
      for (const process of this.alive) {
        if (process.isKilled) process.die(KILLED);
        else if (this.#random() < 0.3) process.die({ code: this.#pick(2), signal: null });
      }
      await this.clock.advance(5_000);
      await turn();
    }
    this.#checkEnd();
  }

  #launch(set: DeviceSet, as: Partial<WorkerIdentity>): PretendProcess {
    const before = this.processes.filter((process) => process.set === set);
    if (before.some(({ end }) => end === undefined)) this.faults.push('two at a time');
    if (before.some(({ isDismissed }) => isDismissed)) this.faults.push('one after a dismissal');
    if (before.some(({ isParked }) => isParked)) this.faults.push('one on a GPU of another worker');
    if (this.isStopping) this.faults.push('one after the stop');
    const { incarnation = this.clock.now(), workerId = `found-${this.processes.length}` } = as;
    const process = new PretendProcess(set, { workerId, incarnation });
    this.processes.push(process);
    return process;
  }

  #pick(count: number): number {
    return Math.floor(this.#random() * count);
  }

  async #act(): Promise<void> {
    const effects = [...this.#actionsOfProcess(), ...this.#actionsOfOthers()];
    await effects[this.#pick(effects.length)]?.();
  }

  #actionsOfProcess(): (() => void)[] {
    const process = this.alive[this.#pick(this.alive.length)];
    if (!process) return [];
    const leave = (how: () => void) => () => {
      process.beReady();
      how();
      process.die(LEFT);
    };
    return [
      () => process.beSomebody(),
      () => process.beReady(),
      () => {
        process.isParked = this.#random() < 0.1;
      },
      () => process.die({ code: 1, signal: null }),
      () => process.die({ code: null, signal: 'SIGSEGV' }),
      () => {
        process.failure = { reason: 'no model', isFinal: this.#random() < 0.3 };
        process.die({ code: 1, signal: null });
      },
      () => process.isAsked && process.die(LEFT),
      leave(() => {
        process.recycling = 'memory';
      }),
      leave(() => {
        process.isDismissed = this.#random() < 0.3;
      }),
    ];
  }

  #actionsOfOthers(): (() => void | Promise<void>)[] {
    const index = this.#pick(this.#sets.length);
    const keeper = this.supervisor.keepers[index];
    return [
      () => this.#spoil(index),
      () => {
        this.bad.delete(index);
        keeper?.readmit();
      },
      () => keeper?.recycle('memory'),
      ...[100, 2_000, 2_000, 35_000, 310_000].map((ms) => () => this.clock.advance(ms)),
    ];
  }

  #spoil(index: number): void {
    this.bad.add(index);
    this.supervisor.keepers[index]?.quarantine('too hot');
  }

  #checkStates(): void {
    for (const [index, { state }] of this.supervisor.keepers.entries()) {
      const count = this.alive.filter(({ set }) => set === this.#sets[index]).length;
      const isBad = this.bad.has(index);
      if (count !== (state.name === 'running' ? 1 : 0)) this.faults.push(`${count} ${state.name}`);
      if (state.name === 'quarantined' && !isBad) this.faults.push('away from a good device');
      if (state.name === 'waiting' && isBad) this.faults.push('about to use a bad device');
    }
  }

  #checkEnd(): void {
    if (!this.isOver) this.faults.push('the stop has no end');
    if (this.alive.length > 0) this.faults.push('a process is left');
    const last = new Map<string, number>();
    for (const { end, identity, isReleased } of this.processes) {
      if (!identity) continue;
      const { incarnation, workerId } = identity;
      if (incarnation <= (last.get(workerId) ?? -1)) this.faults.push('an incarnation of before');
      last.set(workerId, incarnation);
      const byes = this.byes.filter((bye) => {
        return bye.workerId === workerId && bye.incarnation === incarnation;
      });
      if (byes.length !== (end?.code === 0 ? 0 : 1)) this.faults.push(`${byes.length} byes`);
      if (isReleased && byes[0]?.reason === 'crashed') this.faults.push('blamed for its device');
    }
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

describe('a supervisor keeps one process for each good device, and says bye once for each dead one', () => {
  it.each(Array.from({ length: LIVES }, (_, index) => index + 1))('in life %i', async (seed) => {
    const life = new Life(seed);
    await life.live();
    expect(life.faults).toEqual([]);
  });
});
