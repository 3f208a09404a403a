// One client of the event stream: sends the last snapshot of each topic at the client's pace. Snapshots that a slow
// client has missed are not kept.
import type { ServerResponse } from 'node:http';
import type { Clock } from '../../base/clock.ts';
import { EVENT_LIMITS, type Topic } from '../../wire/routes/event-topics.ts';
import { composeStart, type Snapshot } from './channel.ts';

/** After this time the client connects again, ms. */
const RECONNECT_MS = 1_000;

const HEARTBEAT = Buffer.from(': still here\n\n');

export interface EventConnectionOptions {
  raw: ServerResponse;
  clock: Clock;
  /** Longest pause of a client that has bytes to read, ms. */
  stallMs: number;
}

export class EventConnection {
  readonly #options: EventConnectionOptions;
  /** By topic; at most one each, so a client that does not read holds no more than it has topics. */
  readonly #unsent = new Map<string, { topic: Topic; snapshot: Snapshot }>();
  #isBlocked = false;
  #cancelHeartbeat = () => {};
  #cancelStall = () => {};

  constructor(options: EventConnectionOptions) {
    this.#options = options;
  }

  start(): void {
    const { clock, raw } = this.#options;
    raw.write(`retry: ${RECONNECT_MS}\n\n`);
    this.#beat();
    const cancelLife = clock.after(EVENT_LIMITS.lifetimeMs, () => this.end());
    raw.once('close', () => {
      cancelLife();
      this.#cancelHeartbeat();
      this.#cancelStall();
      this.#unsent.clear();
    });
  }

  offer(topic: Topic, snapshot: Snapshot): void {
    this.#unsent.set(topic.name, { topic, snapshot });
    this.#flush();
  }

  /** The client connects again. */
  end(): void {
    const { raw } = this.#options;
    if (!raw.writableEnded) raw.end();
  }

  #flush(): void {
    const { raw } = this.#options;
    for (const [name, { snapshot, topic }] of this.#unsent) {
      if (this.#isBlocked || raw.writableEnded || raw.destroyed) return;
      this.#unsent.delete(name);
      raw.write(composeStart(topic, snapshot));
      this.#write(snapshot.bytes);
    }
  }

  #write(bytes: Buffer): void {
    const { clock, raw, stallMs } = this.#options;
    this.#beat();
    if (raw.write(bytes)) return;
    this.#isBlocked = true;
    this.#cancelStall = clock.after(stallMs, () => raw.destroy());
    raw.once('drain', () => {
      this.#isBlocked = false;
      this.#cancelStall();
      this.#flush();
    });
  }

  /** Proxies close silent connections. */
  #beat(): void {
    const { clock } = this.#options;
    this.#cancelHeartbeat();
    this.#cancelHeartbeat = clock.after(EVENT_LIMITS.heartbeatMs, () => {
      if (this.#isBlocked) this.#beat();
      else this.#write(HEARTBEAT);
    });
  }
}
