// Decides which failures end a node: those that only another start, with other options or another version, can mend.
import { SchemaTooNewError } from '../store/schema-migration.ts';
import { NodeUrlTakenError } from './membership-options.ts';

export class FinalFailures {
  readonly #urlWaitMs: number;
  #takenSince: number | undefined;

  /** `urlWaitMs`: how long another node may have the URL of this one. */
  constructor({ urlWaitMs }: { urlWaitMs: number }) {
    this.#urlWaitMs = urlWaitMs;
  }

  /** Notes a failure in a row. @returns whether the node must end */
  isFinal(error: unknown, now: number): boolean {
    if (error instanceof SchemaTooNewError) return true;
    // A lost connection says nothing about the URL, so the time goes on.
    if (!(error instanceof NodeUrlTakenError)) return false;
    this.#takenSince ??= now;
    return now - this.#takenSince >= this.#urlWaitMs;
  }

  /** The node is a member. */
  end(): void {
    this.#takenSince = undefined;
  }
}
