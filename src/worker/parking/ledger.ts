// Who holds which memory of a machine's GPUs: decides whether a parked model may come back. Pure; ledger-file.ts keeps it.
// The driver says how much memory is in use now. The ledger adds what is reserved for models that wake up and use nothing yet.
import type { ProcessIdentity } from '../../base/process/process-table.ts';

/** The models of one worker process. */
export interface LedgerEntry {
  /** Worker ID. */
  id: string;
  /** UUID of its device. */
  device: string;
  /** The worker's process: its model dies with it. */
  process: ProcessIdentity;
  /**
   * `parked`: in the host's memory. `ended`: to be started anew. `waking`: `bytes` are reserved for it, of which it may use any part
   * already.
   */
  state: 'resident' | 'parked' | 'ended' | 'waking';
  /** Device memory that it held when it was last parked. */
  bytes: number;
  /** Unix ms. */
  since: number;
}

type Place = Pick<LedgerEntry, 'device' | 'id'>;

export type Ledger = readonly LedgerEntry[];

export interface WakeRequest {
  id: string;
  /** Of its device, now. */
  memory: { totalBytes: number; usedBytes: number };
  /** Memory that stays free, for what grows in the models that run. */
  reserveBytes: number;
  now: number;
}

export type WakeAnswer =
  | { kind: 'granted'; ledger: Ledger }
  /** `missingBytes`: how much more must be free. */
  | { kind: 'no_room'; missingBytes: number; others: string[] };

/** Reserves a parked model's memory, if so much is free. A second request for the same entry takes the place of its first. */
export function grantWake(
  ledger: Ledger,
  { id, memory, now, reserveBytes }: WakeRequest,
): WakeAnswer {
  const entry = ledger.find((each) => each.id === id);
  if (!entry) return { kind: 'no_room', missingBytes: 0, others: [] };
  const others = ledger.filter((each) => each.device === entry.device && each.id !== id);
  const reserved = others.filter(({ state }) => state === 'waking');
  const freeBytes =
    memory.totalBytes - memory.usedBytes - sum(reserved.map(({ bytes }) => bytes)) - reserveBytes;
  if (freeBytes < entry.bytes) {
    const holders = others.filter(({ state }) => state === 'resident' || state === 'waking');
    return {
      kind: 'no_room',
      missingBytes: entry.bytes - freeBytes,
      others: holders.map((each) => each.id),
    };
  }
  return { kind: 'granted', ledger: put(ledger, { ...entry, state: 'waking', since: now }) };
}

/** Whether a model has come to the device since `seen`: figures of that time may lack its memory, and nothing is reserved for it any more. */
export function hasArrival(seen: Ledger, ledger: Ledger, { device, id }: Place): boolean {
  const residents = ledger.filter((each) => each.device === device && each.state === 'resident');
  return residents.some((each) => {
    const before = seen.find((entry) => entry.id === each.id);
    return each.id !== id && (before?.state !== 'resident' || before.since !== each.since);
  });
}

/** Adds or changes an entry. */
export function put(ledger: Ledger, entry: LedgerEntry): Ledger {
  return [...ledger.filter(({ id }) => id !== entry.id), entry];
}

export function remove(ledger: Ledger, id: string): Ledger {
  return ledger.filter((entry) => entry.id !== id);
}

/** Without entries whose worker is dead: the driver has freed their memory, and its figures show that. */
export function dropDead(ledger: Ledger, isAlive: (process: ProcessIdentity) => boolean): Ledger {
  return ledger.filter(({ process }) => isAlive(process));
}

export interface HostRequest {
  id: string;
  /** That the model will need in the host's memory. */
  bytes: number;
  /** For all parked models of the machine. */
  limitBytes: number;
}

/** Whether one more parked model fits the host's memory. One that wakes up still has its part. */
export function hasHostRoom(ledger: Ledger, { bytes, id, limitBytes }: HostRequest): boolean {
  const parked = ledger.filter(
    (entry) => (entry.state === 'parked' || entry.state === 'waking') && entry.id !== id,
  );
  return sum(parked.map((entry) => entry.bytes)) + bytes <= limitBytes;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
