// The bytes that one user's gRPC streams may hold in memory. They are claims in the budget of all
// worker calls, over HTTP and gRPC.
import type { ByteBudget, Claim, Transfer } from '../../base/byte-budget.ts';

export type OwnTransfer = Omit<Transfer, 'owner'>;

export class StreamBudget {
  readonly #budget: ByteBudget;
  readonly #owner: string;

  constructor(budget: ByteBudget, owner: string) {
    this.#budget = budget;
    this.#owner = owner;
  }

  tryClaim(transfer: OwnTransfer): Claim | undefined {
    return this.#budget.tryClaim({ ...transfer, owner: this.#owner });
  }

  /** Waits without a limit. Undefined if the signal has aborted. */
  claim(transfer: OwnTransfer, signal: AbortSignal): Promise<Claim | undefined> {
    const waiting = { waitMs: Number.POSITIVE_INFINITY, signal };
    return this.#budget.claim({ ...transfer, owner: this.#owner }, waiting);
  }
}
