// Bounds of the traffic between nodes, with their defaults.

export interface ForwardingBounds {
  /**
   * Bytes of request bodies that wait in memory for another node, besides those of requests that this
   * node serves. Default 64 MB.
   */
  maxForwardedBytes: number;
  /** The same for one user. Default 16 MB. */
  maxUserForwardedBytes: number;
  /**
   * Bytes of copies of request bodies above 64 KB. A copy lets the node send the body again if the owner dies. When the
   * budget is full, the node makes no copy. Default 64 MB.
   */
  maxCopiedBytes: number;
  /** The same for one user; one body may be larger. Default 16 MB. */
  maxUserCopiedBytes: number;
  /** Connections to one other node, and connections of all other nodes. Default 20,000. */
  maxNodeConnections: number;
  /** How long a client's request waits for a node that serves it, ms. Default 12,000. */
  ownerWaitMs: number;
  /** The same for calls of workers, ms. Default 60,000. */
  workerOwnerWaitMs: number;
  /** Longest time to connect to another node, ms. Default 3,000. */
  nodeConnectMs: number;
  /** A node that has not answered for this time counts as failed, ms. Default 8,000. */
  nodeSilenceMs: number;
}

const MB = 1_048_576;

const DEFAULT_FORWARDING_BOUNDS: ForwardingBounds = {
  maxForwardedBytes: 64 * MB,
  maxUserForwardedBytes: 16 * MB,
  maxCopiedBytes: 64 * MB,
  maxUserCopiedBytes: 16 * MB,
  maxNodeConnections: 20_000,
  // Longer than the takeover of a killed node.
  ownerWaitMs: 12_000,
  workerOwnerWaitMs: 60_000,
  nodeConnectMs: 3_000,
  // As long as a node's lease: a paused node has lost its endpoints by then.
  nodeSilenceMs: 8_000,
};

export function completeForwardingBounds(bounds: Partial<ForwardingBounds> = {}): ForwardingBounds {
  return { ...DEFAULT_FORWARDING_BOUNDS, ...bounds };
}
