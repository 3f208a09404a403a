// The GPUs of a machine in a simulation: what models use of them, and the ledger of the workers there. It notes what must never
// happen: two models on one GPU, a model without room, a ledger that has promised too much.
import type { ProcessIdentity } from '../../../src/base/process/process-table.ts';
import { dropDead, type Ledger } from '../../../src/worker/parking/ledger.ts';
import type { LedgerFile } from '../../../src/worker/parking/ledger-file.ts';
import type { DeviceMemory } from '../../../src/worker/parking/machine.ts';

/** What a worker leaves free on each GPU. */
const RESERVE_BYTES = 256 * 2 ** 20;

interface Model {
  gpu: string;
  owner: string;
  bytes: number;
}

export class ModelMachine {
  readonly violations: string[] = [];
  readonly #totalBytes: number;
  readonly #models = new Map<string, Model>();
  readonly #dead = new Set<string>();
  #ledger: Ledger = [];
  #change: Promise<unknown> = Promise.resolve();
  #processes = 0;

  /** `roomBytes`: memory of each GPU beside the reserve. */
  constructor(roomBytes: number) {
    this.#totalBytes = RESERVE_BYTES + roomBytes;
  }

  startProcess(): ProcessIdentity {
    return { pid: ++this.#processes, startTicks: '0', bootId: 'simulated' };
  }

  endProcess({ pid }: ProcessIdentity): void {
    this.#dead.add(String(pid));
    this.free(String(pid));
  }

  readMemory(gpu: string): DeviceMemory {
    const models = [...this.#models.values()].filter((model) => model.gpu === gpu);
    const usedBytes = models.reduce((sum, { bytes }) => sum + bytes, 0);
    return { totalBytes: this.#totalBytes, usedBytes };
  }

  hasRoom(gpu: string, bytes: number): boolean {
    const { totalBytes, usedBytes } = this.readMemory(gpu);
    return usedBytes + bytes <= totalBytes;
  }

  /** A model comes to the GPU. */
  load({ pid }: ProcessIdentity, model: Model): void {
    if (this.#dead.has(String(pid))) return;
    const { bytes, gpu, owner } = model;
    const others = [...this.#models.values()].filter((each) => each.gpu === gpu);
    for (const other of others) this.violations.push(`${owner} and ${other.owner} are on ${gpu}`);
    if (!this.hasRoom(gpu, bytes)) this.violations.push(`${owner} has no room on ${gpu}`);
    this.#models.set(String(pid), model);
  }

  free(pid: string): void {
    this.#models.delete(pid);
  }

  isDead({ pid }: ProcessIdentity): boolean {
    return this.#dead.has(String(pid));
  }

  isLoaded({ pid }: ProcessIdentity): boolean {
    return this.#models.has(String(pid));
  }

  list(): Ledger {
    return dropDead(this.#ledger, ({ pid }) => !this.#dead.has(String(pid)));
  }

  /** While nothing moves: what the ledger says of models is so on their GPUs. */
  compareLedger(): string[] {
    return this.list().flatMap(({ id, process, state }) => {
      const isThere = this.isLoaded(process);
      if (state === (isThere ? 'resident' : 'parked') || (state === 'ended' && !isThere)) return [];
      return [
        `the ledger says ${state} of ${id}, ${isThere ? 'which is' : 'which is not'} on its GPU`,
      ];
    });
  }

  /** The file of the ledger as one process has it; a change of a dead process never comes. `fail` throws instead of some changes. */
  openLedger({ pid }: ProcessIdentity, fail: () => void): Pick<LedgerFile, 'change' | 'list'> {
    const isDead = () => this.#dead.has(String(pid));
    return {
      list: () => this.list(),
      change: (act) => {
        const changed = this.#change.then(async () => {
          if (isDead()) return new Promise<never>(() => undefined);
          fail();
          const [after, result] = await act(this.list());
          this.#ledger = after;
          this.#check();
          return result;
        });
        this.#change = changed.catch(() => undefined);
        // Those behind a dead process do not wait for it.
        if (isDead()) this.#change = Promise.resolve();
        return changed;
      },
    };
  }

  #check(): void {
    const devices = new Set(this.#ledger.map(({ device }) => device));
    for (const device of devices) {
      const waking = this.list().filter(
        (each) => each.device === device && each.state === 'waking',
      );
      const pids = new Set(waking.map(({ process }) => String(process.pid)));
      const used = [...this.#models].filter(([pid, { gpu }]) => gpu === device && !pids.has(pid));
      const bytes = [...used.map(([, model]) => model.bytes), ...waking.map((each) => each.bytes)];
      const promised = bytes.reduce((sum, each) => sum + each, 0);
      if (promised > this.#totalBytes) this.violations.push(`the ledger has overdrawn ${device}`);
    }
  }
}
