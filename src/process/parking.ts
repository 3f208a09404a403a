// Moves the model of a child off its device and back: by hooks of its program, else by the driver.
import { basename, isAbsolute } from 'node:path';
import { NO_ROOM, type ParkAbility } from '../base/process/parkables.ts';
import type { ProcessLog } from './messages.ts';
import { buildEnvironment, type Environment } from './options.ts';
import { ParkHelper, ParkHelperError, type Suspended } from './park-helper.ts';

/** Longest run of a hook, ms: 100 GB of pageable memory take a minute and more. */
const HOOK_MS = 300_000;
/** Longest wait for kernels that run although no call does, ms. */
const LOCK_MS = 10_000;

export interface ParkOptions {
  /** Longest wait for calls that run, ms. Default 10,000. */
  waitMs?: number;
  log?: ProcessLog;
}

/** The child is as before: it takes calls. */
export class ParkRefusedError extends Error {
  override readonly name = 'ParkRefusedError';
}

/** There is no room on the device. The child is parked as before. */
export class NoRoomError extends Error {
  override readonly name = NO_ROOM;
}

export type ParkedChild =
  | { way: 'hooks'; bytes: number }
  | { way: 'driver'; bytes: number; suspended: Suspended };

export interface ParkableChild {
  readonly pid: number | undefined;
  /** It has hooks that park its model. Known when it is ready. */
  readonly hasHooks: boolean;
  /** The driver has suspended it, so it need not answer. */
  isSuspended: boolean;
  /**
   * Runs its hooks. @returns device memory that it has let go, bytes
   * @throws Error if a hook fails, takes too long, or the child ends; then the model is in an unknown state
   */
  move(to: 'park' | 'wake', limitMs: number): Promise<number>;
}

interface ParkingOptions {
  command: string;
  env: Environment;
  inherited: Environment;
}

export class Parking {
  readonly #options: ParkingOptions;
  #helper: ParkHelper | undefined;
  #driver: Promise<ParkAbility> | undefined;

  constructor(options: ParkingOptions) {
    this.#options = options;
  }

  /** Hooks are known when the child is ready. */
  findWay(child: ParkableChild | undefined): Promise<ParkAbility> {
    if (child?.hasHooks) return Promise.resolve({ way: 'hooks', reason: undefined });
    return this.#findDriver();
  }

  /** The driver needs nothing of the child, so it can suspend one with hooks too. */
  async canSuspend(child: ParkableChild | undefined): Promise<boolean> {
    const { way } = await this.#findDriver();
    // The helper takes memory, and may never be needed.
    if (child?.hasHooks) this.#helper?.stop();
    return way !== undefined;
  }

  #findDriver(): Promise<ParkAbility> {
    this.#driver ??= this.#openHelper()
      .probe(this.#device)
      .then(
        () => ({ way: 'driver', reason: undefined }),
        ({ message }: Error) => ({ way: undefined, reason: message }),
      );
    return this.#driver;
  }

  /** @throws ParkRefusedError if the child runs as before; any other error: it is in an unknown state */
  async park(child: ParkableChild): Promise<ParkedChild> {
    const { way, reason } = await this.findWay(child);
    if (way === 'hooks') return { way, bytes: await child.move('park', HOOK_MS) };
    if (way === undefined) throw new ParkRefusedError(reason);
    return this.suspend(child);
  }

  /** By the driver, whether it computes or not. @throws as `park` */
  async suspend(child: ParkableChild): Promise<ParkedChild> {
    if (child.pid === undefined) throw new ParkRefusedError('the model process does not run');
    // As soon as the driver has its lock, it may not answer.
    child.isSuspended = true;
    try {
      const device = this.#device;
      const request = { group: child.pid, device, lockMs: LOCK_MS };
      const suspended = await this.#openHelper().suspend(request);
      return { way: 'driver', bytes: suspended.bytes, suspended };
    } catch (error) {
      child.isSuspended = false;
      const isUndone = error instanceof ParkHelperError && error.isUndone;
      throw isUndone ? new ParkRefusedError(error.message) : error;
    }
  }

  /** @throws NoRoomError if the child is parked as before; any other error: it is in an unknown state */
  async wake(child: ParkableChild, parked: ParkedChild): Promise<void> {
    if (parked.way === 'hooks') {
      await child.move('wake', HOOK_MS);
      return;
    }
    try {
      await this.#openHelper().resume(parked.suspended, this.#device);
      child.isSuspended = false;
    } catch (error) {
      const hasNoRoom = error instanceof ParkHelperError && error.hasNoRoom;
      throw hasNoRoom ? new NoRoomError(error.message) : error;
    }
  }

  stop(): void {
    this.#helper?.stop();
    // A question that this has ended is asked again.
    this.#driver = undefined;
  }

  get #environment(): Environment {
    return buildEnvironment(this.#options.inherited, this.#options.env);
  }

  /** The only device that the child sees, if its variable names it. */
  get #device(): string | undefined {
    const { CUDA_VISIBLE_DEVICES: visible = '' } = this.#environment;
    return /^(?:GPU|MIG)-[^,]+$/.test(visible) ? visible : undefined;
  }

  #openHelper(): ParkHelper {
    const { command } = this.#options;
    // A relative path belongs to the child's folder.
    const isFound = isAbsolute(command) || !command.includes('/');
    const isPython = isFound && /^python[\d.]*$/.test(basename(command));
    this.#helper ??= new ParkHelper(this.#environment, isPython ? command : undefined);
    return this.#helper;
  }
}
