// The model processes of a thread that the worker may park. A handler's own copy of this package lists its processes where
// the worker's copy finds them.

const LIST = Symbol.for('millrace.parkables');

/** By hooks of the model's program, or by the NVIDIA driver. */
export type ParkWay = 'hooks' | 'driver';

/** How a model process can be parked, or why it cannot. */
export interface ParkAbility {
  way: ParkWay | undefined;
  reason: string | undefined;
}

/** `cold`: the process was ended, and starts anew at the wake. */
export interface ParkResult {
  way: ParkWay | 'cold';
  /** Device memory that it held; 0 if it was ended, or its hooks do not tell it. */
  bytes: number;
}

/** Undefined if one of them is not known. */
export function addKnown(sum: number | undefined, bytes: number | undefined): number | undefined {
  return sum === undefined || bytes === undefined ? undefined : sum + bytes;
}

/** Name of the error of `wakeUp` if the device has no room: of several copies of this package, each has its own class. */
export const NO_ROOM = 'NoRoomError';

export interface Parkable {
  describeParking(): Promise<ParkAbility>;
  /** Never fails: ends a process that cannot be parked, or is to end. It starts no other one until `wakeUp`. */
  letGo(how: 'parked' | 'ended'): Promise<ParkResult>;
  /** Whether `suspend` may work. Absent, as `suspend`, in earlier versions of the package. */
  canSuspend?(): Promise<boolean>;
  /** Moves it to the host in the middle of its calls, which go on at the wake. @throws Error: it runs on as before */
  suspend?(): Promise<ParkResult>;
  /** Resolves when it takes calls again. @throws Error if there is no room on the device (it is still parked), or no start */
  wakeUp(): Promise<ParkResult>;
}

/** Lists a model process of this thread. @returns how it is removed */
export function noteParkable(parkable: Parkable): () => void {
  const known: unknown = Reflect.get(globalThis, LIST);
  const list: Set<unknown> = known instanceof Set ? known : new Set();
  if (list !== known) Object.defineProperty(globalThis, LIST, { value: list, configurable: true });
  list.add(parkable);
  return () => list.delete(parkable);
}

export function listParkables(): Parkable[] {
  const known: unknown = Reflect.get(globalThis, LIST);
  return known instanceof Set ? [...known].filter(isParkable) : [];
}

function isParkable(value: unknown): value is Parkable {
  if (typeof value !== 'object' || value === null) return false;
  return ['describeParking', 'letGo', 'wakeUp'].every(
    (name) => typeof Reflect.get(value, name) === 'function',
  );
}
