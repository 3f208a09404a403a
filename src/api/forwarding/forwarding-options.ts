// How a server takes part in a platform of several nodes: the placement of endpoints, which the cluster implements and
// forwarding follows, and the bounds of the traffic between nodes.
import { type Clock, sleep } from '../../base/clock.ts';
import type { FindPodPort } from '../nodes/node-listener.ts';
import type { Forwarder, ForwarderParts } from './forwarder.ts';

/** URLs under which clients and workers reach one node directly, not through a load balancer. */
export interface AdvertisedUrls {
  /** http or https. */
  url?: string | undefined;
  /** Of the gRPC port: grpc or grpcs. */
  grpcUrl?: string | undefined;
}

export interface ForwardingOptions {
  /** `openForwarder`: servers without other nodes do not load its code. */
  open: (parts: ForwarderParts) => Forwarder;
  placement: Placement;
  /** The first one is sent, and all are accepted. */
  secrets: readonly string[];
  /** The port for other nodes; 0 selects a free one. */
  listen: { host: string; port: number };
  /** Answers `POST /node/<name>`. Default: every call is unknown. */
  onCall?: ((name: string, body: unknown) => Promise<unknown>) | undefined;
  /** URL at which workers reach this node directly. Default: workers use only their configured URL. */
  advertised?: AdvertisedUrls | undefined;
  /** Where a port of a pod of this machine is. Default: no pod can be reached. */
  findPodPort?: FindPodPort | undefined;
  /** Default: DEFAULT_FORWARDING_BOUNDS. */
  bounds?: Partial<ForwardingBounds> | undefined;
}

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

/** `none`: no node owns the endpoint at the moment. */
export type OwnerNode = { kind: 'here' } | { kind: 'node'; url: string } | { kind: 'none' };

/** Which node serves an endpoint. */
export interface Placement {
  /** `undefined` stands for the control plane: everything that belongs to no single endpoint. */
  find(endpointId: string | undefined): OwnerNode;
  /** Whether the node with this URL has lost its lease: it no longer owns anything, and may never answer. */
  isDead(url: string): boolean;
  /** Reloads which node owns what. Resolves at once if that has just been done. */
  refresh(): Promise<void>;
  /** Like `refresh`, a few times a second at most: for keys and endpoints that this node does not know. */
  lookUp(): Promise<void>;
  /** This node serves a request for the endpoint or the control plane. @returns the function to call at its end */
  begin(endpointId: string | undefined): () => void;
  /** Resolves at the next change of the placement, or when the signal aborts. */
  untilChange(signal: AbortSignal): Promise<void>;
}

/**
 * Lets any number of requests wait for the next change of the placement, with one wait at the placement itself.
 */
export class OwnerWaits {
  readonly #placement: Placement;
  readonly #clock: Clock;
  readonly #closed = new AbortController();
  /** Aborts at the next change. Undefined while nobody waits. */
  #change: AbortController | undefined;

  constructor(placement: Placement, clock: Clock) {
    this.#placement = placement;
    this.#clock = clock;
  }

  /** Aborts when every wait has ended. */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Resolves at the next change, after `ms`, or when the signal aborts. */
  async wait(ms: number, signal: AbortSignal): Promise<void> {
    const change = this.#watch();
    await sleep(this.#clock, ms, AbortSignal.any([change, signal]));
  }

  /** Ends every wait. */
  close(): void {
    this.#closed.abort();
    this.#change?.abort();
  }

  #watch(): AbortSignal {
    if (this.#change) return this.#change.signal;
    const change = new AbortController();
    this.#change = change;
    const end = () => {
      if (this.#change === change) this.#change = undefined;
      change.abort();
    };
    if (this.#closed.signal.aborted) end();
    else this.#placement.untilChange(this.#closed.signal).then(end, end);
    return change.signal;
  }
}
