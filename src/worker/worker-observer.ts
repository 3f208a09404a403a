// Events that a worker reports to its observers. A listener must not throw and must be quick.
import type { BatchEvent } from '../handler/batch/settings.ts';
import type { AttemptUsage } from '../wire/job/attempt.ts';
import type { Lease, LinkErrorCode, Outcome, WorkerLink } from '../wire/link/worker-link.ts';
import type { BreakerState } from './circuit-breaker.ts';
import type { ChunkMessage, ExecutionSink } from './execution/executor.ts';

export type LinkVerb = keyof WorkerLink;

export interface WorkerObserver {
  /** The executor has received the attempt. */
  attemptBegan(lease: Lease): void;
  /** A running attempt's handler has yielded chunks; they are not delivered yet. */
  chunksYielded(lease: Lease, message: ChunkMessage): void;
  /** Also for attempts that never began. The outcome is not delivered yet. */
  attemptEnded(lease: Lease, outcome: Outcome, usage: AttemptUsage | undefined): void;
  /** Breaker state, for the next process. */
  breakerChanged(state: BreakerState): void;
  /** A batch of a batch handler has started or failed. */
  batchChanged(event: BatchEvent): void;
  /** The platform has answered the long poll that renews all leases. */
  leasesRenewed(): void;
  /** A call failed; most are repeated. */
  callFailed(verb: LinkVerb, code: LinkErrorCode): void;
  /** A call succeeded after failures. */
  reconnected(verb: LinkVerb): void;
}

/** Observes nothing. */
export const NO_OBSERVER: WorkerObserver = {
  attemptBegan() {},
  chunksYielded() {},
  attemptEnded() {},
  breakerChanged() {},
  batchChanged() {},
  leasesRenewed() {},
  callFailed() {},
  reconnected() {},
};

interface WatchedChunks {
  lease: Lease;
  sink: ExecutionSink;
  observer: WorkerObserver;
}

/** Wraps the sink so that the observer learns of its chunks. */
export function watchChunks({ lease, sink, observer }: WatchedChunks): ExecutionSink {
  return {
    ...sink,
    chunks: (message) => {
      observer.chunksYielded(lease, message);
      sink.chunks(message);
    },
  };
}
