// The memory of one machine as its workers share it: the ledger, what the driver says is in use, and the memory of the host.
import { readFileSync } from 'node:fs';
import { freemem } from 'node:os';
import { type Clock, systemClock } from '../../base/clock.ts';
import { type ProcessIdentity, readBootId, readProcess } from '../../base/process/process-table.ts';
import { runProgram } from '../gpu/program.ts';
import {
  grantWake,
  hasArrival,
  hasHostRoom,
  type LedgerEntry,
  put,
  type WakeRequest,
} from './ledger.ts';
import { LedgerFile } from './ledger-file.ts';
import type { ParkingMachine, RoomAnswer } from './worker-parking.ts';

/** Stays free on a device: for what grows in the processes that run, and for the driver. */
const RESERVE_BYTES = 256 * 2 ** 20;
const SMI_MS = 10_000;
const UNKNOWN = { totalBytes: Number.MAX_SAFE_INTEGER, usedBytes: 0 };

export type DeviceMemory = WakeRequest['memory'];

interface MachineOptions {
  ledger: Pick<LedgerFile, 'change' | 'list'>;
  workerId: string;
  /** UUID of the worker's only device. */
  device: string;
  hostLimitBytes: number;
  /** Undefined: nothing tells the memory in use, and only the driver's helper checks it. */
  readMemory: () => Promise<DeviceMemory | undefined>;
  /** Default: this one. */
  process?: ProcessIdentity;
  clock?: Clock;
}

export class LedgerMachine implements ParkingMachine {
  readonly hostLimitBytes: number;
  readonly #options: MachineOptions;
  readonly #process: ProcessIdentity;
  /** Device memory that the model held when it was last parked. */
  #bytes = 0;

  constructor(options: MachineOptions) {
    this.#options = options;
    this.hostLimitBytes = options.hostLimitBytes;
    this.#process = options.process ?? identifyOwn();
  }

  async readUsedBytes(): Promise<number> {
    return (await this.#options.readMemory())?.usedBytes ?? 0;
  }

  hasHostRoom(bytes: number, isMoved: boolean): Promise<boolean> {
    const { hostLimitBytes: limitBytes, workerId: id } = this.#options;
    if (!isMoved && bytes > readAvailableBytes()) return Promise.resolve(false);
    return this.#options.ledger.change((ledger) => [
      ledger,
      hasHostRoom(ledger, { id, bytes, limitBytes }),
    ]);
  }

  /** `bytes`: 0 if the model's process has ended; then its start needs what it held before. */
  noteParked(bytes: number): Promise<boolean> {
    const { hostLimitBytes: limitBytes, workerId: id } = this.#options;
    if (bytes > 0) this.#bytes = bytes;
    return this.#options.ledger.change((ledger) => {
      if (bytes === 0) return [put(ledger, this.#describe('ended')), true];
      // One that has not come back to its device after all is in the host already.
      const isThere = ledger.some((tenant) => tenant.id === id && tenant.state === 'waking');
      if (!isThere && !hasHostRoom(ledger, { id, bytes, limitBytes })) return [ledger, false];
      return [put(ledger, this.#describe('parked')), true];
    });
  }

  noteResident(): Promise<void> {
    return this.#enter('resident');
  }

  async reserve(): Promise<RoomAnswer> {
    const { device, workerId: id } = this.#options;
    // Not under the lock: nvidia-smi may take seconds, and others leave the device meanwhile.
    const seen = this.#options.ledger.list();
    const measured = await this.#options.readMemory();
    const memory = measured ?? UNKNOWN;
    const isMeasured = measured !== undefined;
    return this.#options.ledger.change<RoomAnswer>((before) => {
      const ledger = put(before, this.#describe('ended'));
      if (hasArrival(seen, before, { device, id })) {
        const holders = before.filter(
          (each) => each.device === device && each.state === 'resident',
        );
        return [before, { isGranted: false, isMeasured, holders: holders.map((each) => each.id) }];
      }
      const request = { id, memory, reserveBytes: RESERVE_BYTES, now: this.#now() };
      const answer = grantWake(ledger, request);
      if (answer.kind === 'granted') {
        return [answer.ledger, { isGranted: true, isMeasured, holders: [] }];
      }
      return [before, { isGranted: false, isMeasured, holders: answer.others }];
    });
  }

  #enter(state: LedgerEntry['state']): Promise<void> {
    return this.#options.ledger.change((ledger) => [put(ledger, this.#describe(state)), undefined]);
  }

  #describe(state: LedgerEntry['state']): LedgerEntry {
    const { device, workerId: id } = this.#options;
    return { id, device, process: this.#process, state, bytes: this.#bytes, since: this.#now() };
  }

  #now(): number {
    return (this.#options.clock ?? systemClock).now();
  }
}

/** Undefined if nvidia-smi does not tell it. */
export async function readMemory(
  nvidiaSmi: string,
  device: string,
): Promise<DeviceMemory | undefined> {
  const args = ['--query-gpu=uuid,memory.total,memory.used', '--format=csv,noheader,nounits'];
  const run = { file: nvidiaSmi, args, timeoutMs: SMI_MS, clock: systemClock };
  const end = await runProgram(run);
  return end.kind === 'exited' ? parseMemory(end.stdout, device) : undefined;
}

/** Half of the memory of the host that was free when the first of the machine's workers started. */
export function shareHostLimit(folder: string): Promise<number> {
  const measure = () => Math.floor(readAvailableBytes() / 2);
  return new LedgerFile(folder).shareLimit(measure, identifyOwn());
}

function identifyOwn(): ProcessIdentity {
  const { startTicks = '' } = readProcess(process.pid) ?? {};
  return { pid: process.pid, startTicks, bootId: readBootId() };
}

/** Undefined for a device that is not listed, as a MIG instance. */
export function parseMemory(output: string, device: string): DeviceMemory | undefined {
  for (const line of output.split('\n')) {
    const [uuid, total, used] = line.split(',').map((part) => part.trim());
    if (uuid !== device) continue;
    const [totalBytes, usedBytes] = [Number(total) * 2 ** 20, Number(used) * 2 ** 20];
    if (Number.isFinite(totalBytes) && Number.isFinite(usedBytes)) return { totalBytes, usedBytes };
  }
  return undefined;
}

/** Memory of the host that a program can still get, bytes. */
export function readAvailableBytes(): number {
  const free = () => {
    try {
      const found = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'));
      return found ? Number(found[1]) * 1_024 : freemem();
    } catch {
      return freemem();
    }
  };
  const limit = process.constrainedMemory();
  return limit > 0 ? Math.min(free(), process.availableMemory()) : free();
}
