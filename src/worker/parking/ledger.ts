// Who holds which memory of a machine's GPUs: decides whether a parked model may come back. Pure; ledger-file.ts keeps it.
// The figures of the driver have what is in use now. The ledger adds what is promised: the memory of models that wake up, of
// which the driver shows nothing yet.
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
   * `parked`: in the host's memory. `ended`: to be started anew. `waking`: it has a promise of `bytes`, of which any part
   * may be in use already.
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

/** Promises a parked tenant its memory, if it is free. A second request of the same tenant takes the place of its first. */
export function grantWake(
  ledger: Ledger,
  { id, memory, now, reserveBytes }: WakeRequest,
): WakeAnswer {
  const tenant = ledger.find((each) => each.id === id);
  if (!tenant) return { kind: 'no_room', missingBytes: 0, others: [] };
  const others = ledger.filter((each) => each.device === tenant.device && each.id !== id);
  const promised = others.filter(({ state }) => state === 'waking');
  const freeBytes =
    memory.totalBytes - memory.usedBytes - sum(promised.map(({ bytes }) => bytes)) - reserveBytes;
  if (freeBytes < tenant.bytes) {
    const holders = others.filter(({ state }) => state === 'resident' || state === 'waking');
    return {
      kind: 'no_room',
      missingBytes: tenant.bytes - freeBytes,
      others: holders.map((each) => each.id),
    };
  }
  return { kind: 'granted', ledger: put(ledger, { ...tenant, state: 'waking', since: now }) };
}

/** Whether a model has come to the device since `seen`: figures of that time may lack its memory, which is promised no longer. */
export function hasArrival(seen: Ledger, ledger: Ledger, { device, id }: Place): boolean {
  const residents = ledger.filter((each) => each.device === device && each.state === 'resident');
  return residents.some((each) => {
    const before = seen.find((tenant) => tenant.id === each.id);
    return each.id !== id && (before?.state !== 'resident' || before.since !== each.since);
  });
}

/** Enters or changes a tenant. */
export function put(ledger: Ledger, tenant: LedgerEntry): Ledger {
  return [...ledger.filter(({ id }) => id !== tenant.id), tenant];
}

export function remove(ledger: Ledger, id: string): Ledger {
  return ledger.filter((tenant) => tenant.id !== id);
}

/** Without tenants whose worker is dead: the driver has freed their memory, and its figures show that. */
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
    (tenant) => (tenant.state === 'parked' || tenant.state === 'waking') && tenant.id !== id,
  );
  return sum(parked.map((tenant) => tenant.bytes)) + bytes <= limitBytes;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
