// Watches the nodes that have unanswered requests of this node. A node that is silent for too long counts as
// failed, and its requests are broken off: a paused machine, or a cut network, closes no connection. So are the requests
// at a node whose lease has ended.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type NodeClient, PING } from './node-client.ts';

/** A node is asked this often within the time that it may be silent. */
const PINGS_PER_SILENCE = 4;

export interface PeerWatchOptions {
  client: NodeClient;
  clock: Clock;
  log: Log;
  /** Time without an answer after which a node counts as failed, ms. */
  silenceMs: number;
}

interface Peer {
  /** Called when the node has failed. */
  open: Set<() => void>;
  answeredAt: number;
  isAsked: boolean;
  cancel: () => void;
}

export class PeerWatch {
  readonly #options: PeerWatchOptions;
  readonly #peers = new Map<string, Peer>();

  constructor(options: PeerWatchOptions) {
    this.#options = options;
  }

  /** `fail` is called at most once, if the node fails. @returns the function that ends the watch */
  add(url: string, fail: () => void): () => void {
    const peer = this.#peers.get(url) ?? this.#open(url);
    peer.open.add(fail);
    return () => {
      peer.open.delete(fail);
      if (peer.open.size === 0) this.#close(url, peer);
    };
  }

  /** Breaks the requests at nodes that the cluster counts as dead. */
  failDead(isDead: (url: string) => boolean): void {
    for (const [url, peer] of this.#peers) if (isDead(url)) this.#fail(url, peer);
  }

  close(): void {
    for (const [url, peer] of this.#peers) this.#close(url, peer);
  }

  #open(url: string): Peer {
    const { clock } = this.#options;
    const peer: Peer = {
      open: new Set(),
      answeredAt: clock.now(),
      isAsked: false,
      cancel: () => {},
    };
    this.#peers.set(url, peer);
    this.#checkLater(url, peer);
    return peer;
  }

  #close(url: string, peer: Peer): void {
    peer.cancel();
    if (this.#peers.get(url) === peer) this.#peers.delete(url);
  }

  #checkLater(url: string, peer: Peer): void {
    const { clock, silenceMs } = this.#options;
    peer.cancel = clock.after(silenceMs / PINGS_PER_SILENCE, () => this.#check(url, peer));
  }

  #check(url: string, peer: Peer): void {
    const { clock, silenceMs } = this.#options;
    if (clock.now() - peer.answeredAt >= silenceMs) {
      this.#fail(url, peer);
      return;
    }
    if (!peer.isAsked) void this.#ask(url, peer);
    this.#checkLater(url, peer);
  }

  #fail(url: string, peer: Peer): void {
    const { clock, log } = this.#options;
    this.#close(url, peer);
    const silentMs = clock.now() - peer.answeredAt;
    log.warn({ node: url, silentMs, requests: peer.open.size }, 'node does not answer');
    for (const fail of peer.open) fail();
  }

  async #ask(url: string, peer: Peer): Promise<void> {
    const { client, clock, silenceMs } = this.#options;
    peer.isAsked = true;
    try {
      await client.call(url, PING, null, { timeoutMs: silenceMs / 2 });
      peer.answeredAt = clock.now();
    } catch {
      // The next check decides.
    } finally {
      peer.isAsked = false;
    }
  }
}
