// Events that a worker reports to its observers. A listener must not throw and must be quick.
import type { Lease, LinkErrorCode, Outcome, WorkerLink } from '../wire/link/worker-link.ts';
import type { ChunkMessage, ExecutionSink } from './execution/executor.ts';

export type LinkVerb = keyof WorkerLink;

export interface WorkerObserver {
  /** The attempt was given to the executor. */
  attemptBegan(lease: Lease): void;
  /** Chunks of a begun attempt have left its handler; they are not delivered yet. */
  chunksCame(lease: Lease, message: ChunkMessage): void;
  /** Also of an attempt that never began. The outcome is not delivered yet. */
  attemptEnded(lease: Lease, outcome: Outcome): void;
  /** The platform has answered the long poll that keeps all leases. */
  leasesRenewed(): void;
  /** A call came to nothing; most are made again. */
  callFailed(verb: LinkVerb, code: LinkErrorCode): void;
  /** The platform answers a call that had failed before. */
  reconnected(verb: LinkVerb): void;
}

interface WatchedChunks {
  lease: Lease;
  sink: ExecutionSink;
  observer: WorkerObserver;
}

/** The same sink, whose chunks the observer hears of. */
export function watchChunks({ lease, sink, observer }: WatchedChunks): ExecutionSink {
  return {
    ...sink,
    chunks: (message) => {
      observer.chunksCame(lease, message);
      sink.chunks(message);
    },
  };
}
