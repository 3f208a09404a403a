// Runs large writes, and reads of files, one after the other: outputs before inputs, and the endpoints in rotation.
import { OwnerLanes } from '../../base/owner-lanes.ts';
import type { StagedPayload } from '../../store/store.ts';

/** Turns of outputs in succession while inputs wait. The next turn is that of an input. */
const MAX_OUTPUTS_IN_ROW = 3;

export type TurnOwner = Pick<StagedPayload, 'endpointId' | 'kind'>;

export class PayloadTurns {
  readonly #waiting = {
    input: new OwnerLanes<() => Promise<void>>(),
    output: new OwnerLanes<() => Promise<void>>(),
  };
  #outputsInRow = 0;
  #isRunning = false;

  /** A turn that fails does not stop the ones behind it. */
  run<T>({ endpointId, kind }: TurnOwner, write: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting[kind].add(endpointId, async () => {
        try {
          resolve(await write());
        } catch (error) {
          reject(error);
        }
      });
      void this.#runAll();
    });
  }

  async #runAll(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    for (let next = this.#takeNext(); next; next = this.#takeNext()) await next();
    this.#isRunning = false;
  }

  #takeNext(): (() => Promise<void>) | undefined {
    const { input, output } = this.#waiting;
    const isTurnOfInput = this.#outputsInRow >= MAX_OUTPUTS_IN_ROW && !input.isEmpty;
    if (output.isEmpty || isTurnOfInput) {
      this.#outputsInRow = 0;
      return input.take();
    }
    this.#outputsInRow += 1;
    return output.take();
  }
}
