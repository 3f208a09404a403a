// Starts, stops, parks and wakes a kept child, for model processes and model servers alike.
import {
  noteParkable,
  type ParkAbility,
  type Parkable,
  type ParkResult,
} from '../base/process/parkables.ts';
import type { ChildKeeper, KeptCalls, KeptChild } from './child-keeper.ts';
import type { ProcessLog } from './messages.ts';
import type { ParkOptions } from './parking.ts';

export interface ModelStartOptions {
  /** For everything that belongs to no job. A handler's `setup` has it. */
  log?: ProcessLog;
  /** Ends a start that has not completed. */
  signal?: AbortSignal;
}

export interface RunningModel extends AsyncDisposable {
  /**
   * Starts the child, if none runs; resolves when it is ready. Call it in `setup`.
   *
   * @throws Error with the child's last lines if it ends, or is not ready after `startTimeoutMs`
   */
  start(options?: ModelStartOptions): Promise<void>;
  /** Ends the child. Call it in `teardown`. */
  stop(): Promise<void>;
  /**
   * Moves the model from its GPU to the host's memory, after the running calls have ended. New calls wait for `wake`.
   * The worker does this when another model needs the GPU; call it only for rules of your own. If the process cannot go on
   * afterwards, it is ended, and the way is `cold`: `wake` starts another one.
   *
   * @throws ParkRefusedError if calls still run after `waitMs`, or nothing can park it; it takes calls as before
   */
  park(options?: ParkOptions): Promise<ParkResult>;
  /**
   * Moves the model back; resolves when calls run again.
   *
   * @throws NoRoomError if the GPU has no room for it; it is still parked
   */
  wake(): Promise<ParkResult>;
  /** The process ID of the child while it is ready. */
  readonly pid: number | undefined;
}

export class KeptProcess<Child extends KeptChild, Calls extends KeptCalls>
  implements RunningModel, Parkable
{
  protected readonly keeper: ChildKeeper<Child, Calls>;
  #log: ProcessLog | undefined;
  #forget: () => void = () => undefined;

  constructor(keeper: ChildKeeper<Child, Calls>) {
    this.keeper = keeper;
  }

  get pid(): number | undefined {
    return this.keeper.child?.pid;
  }

  async start({ log, signal }: ModelStartOptions = {}): Promise<void> {
    this.#log = log ?? this.#log;
    await this.keeper.start(log, signal);
    this.#forget = noteParkable(this);
  }

  stop(): Promise<void> {
    this.#forget();
    return this.keeper.stop();
  }

  park(options: ParkOptions = {}): Promise<ParkResult> {
    return this.keeper.park(options);
  }

  wake(): Promise<ParkResult> {
    return this.keeper.wake();
  }

  async describeParking(): Promise<ParkAbility> {
    const ability = await this.keeper.findWay();
    const { reason, way } = ability;
    if (way) this.#log?.info({ way }, 'model process can be parked');
    else this.#log?.info({ reason }, 'model process cannot be parked');
    return ability;
  }

  letGo(how: 'parked' | 'ended'): Promise<ParkResult> {
    return this.keeper.letGo(how);
  }

  canSuspend(): Promise<boolean> {
    return this.keeper.canSuspend();
  }

  suspend(): Promise<ParkResult> {
    return this.keeper.suspend();
  }

  wakeUp(): Promise<ParkResult> {
    return this.keeper.wake();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
