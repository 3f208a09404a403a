// A connection between a simulated process and the simulated server. Stands in for pg's client and its socket: messages
// arrive in order and late, or the connection is cut between any two of them.
import type { QueryConfig } from 'pg';
import {
  type Answer,
  Session,
  type SessionClient,
  type SessionSocket,
} from '../../../src/store/postgres/session.ts';
import type { SqlValue } from '../../../src/store/store.ts';
import type { VirtualTime } from '../virtual-time.ts';
import type { Backend } from './backend.ts';
import type { SimulatedProcess } from './simulated-process.ts';

/** As session.ts sets it for pg: how much longer the client waits than the server, ms. */
const LATE_MS = 2_000;
/** After this time the server misses a client that vanished, ms. */
const KEEPALIVE_MS = 11_000;

/** The network between one node and the server. */
export class NodeNetwork {
  /** In each direction, ms. */
  latencyMs = 1;
  /** Nothing passes before this time; what was sent arrives then. */
  stalledUntil = Number.NEGATIVE_INFINITY;
  /** New connections are refused. */
  isRefused = false;

  /** How long a message takes that is sent now, ms. */
  delay(now: number, random: () => number): number {
    const latencyMs = this.latencyMs > 1 ? Math.ceil(random() * this.latencyMs) : 1;
    return Math.max(0, this.stalledUntil - now) + latencyMs;
  }
}

interface Pending {
  deadline: number;
  resolve: (answer: Answer) => void;
  reject: (error: Error) => void;
}

export interface SimulatedConnectionOptions {
  time: VirtualTime;
  random: () => number;
  process: SimulatedProcess;
  network: NodeNetwork;
  backend: Backend;
  statementTimeoutMs: number;
  onEnd: () => void;
}

/** One direction: messages arrive in the order in which they were sent. */
class Wire {
  readonly #time: VirtualTime;
  readonly #delay: () => number;
  #last: { at: number; acts: (() => void)[] } | undefined;

  constructor(time: VirtualTime, delay: () => number) {
    this.#time = time;
    this.#delay = delay;
  }

  send(act: () => void): void {
    const now = this.#time.now();
    const at = Math.max(now + this.#delay(), this.#last?.at ?? 0);
    if (this.#last?.at === at) {
      this.#last.acts.push(act);
      return;
    }
    const batch = { at, acts: [act] };
    this.#last = batch;
    this.#time.after(at - now, () => {
      if (this.#last === batch) this.#last = undefined;
      for (const each of batch.acts) each();
    });
  }
}

export class SimulatedConnection implements SessionClient, SessionSocket {
  readonly session: Session;
  readonly backend: Backend;
  readonly process: SimulatedProcess;
  readonly #options: SimulatedConnectionOptions;
  readonly #toServer: Wire;
  readonly #toClient: Wire;
  readonly #pending: Pending[] = [];
  #onError: (error: Error) => void = () => {};
  #onEnd: () => void = () => {};
  #isCut = false;
  #isClosed = false;
  /** Messages that still arrive at the server. */
  #left = Number.POSITIVE_INFINITY;
  #isWatched = false;

  constructor(options: SimulatedConnectionOptions) {
    const { backend, network, process, random, time } = options;
    this.#options = options;
    this.backend = backend;
    this.process = process;
    const delay = () => network.delay(time.now(), random);
    this.#toServer = new Wire(time, delay);
    this.#toClient = new Wire(time, delay);
    this.session = Session.of(this, this);
    backend.onEnd = (error) => this.#send(() => this.#close(error ?? describeCut()));
    backend.onCut = () => this.cut();
    process.onDeath(() => this.#leave());
  }

  query(config: string | QueryConfig): Promise<Answer> {
    const { text, values = [] } = typeof config === 'string' ? { text: config } : config;
    return new Promise((resolve, reject) => {
      if (this.#isClosed) {
        process.nextTick(() => reject(new Error('the client is not queryable')));
        return;
      }
      const { statementTimeoutMs, time } = this.#options;
      const deadline = time.now() + statementTimeoutMs + LATE_MS;
      const pending = { deadline, resolve, reject };
      this.#pending.push(pending);
      this.#watch();
      const params: SqlValue[] = values;
      this.#toServer.send(() => this.#arrive(text, params, pending));
    });
  }

  /** What comes after `messages` more does not arrive, and the connection ends. */
  cutAfter(messages: number): void {
    this.#left = messages;
  }

  /** Both sides learn of it. */
  cut(): void {
    if (this.#isCut) return;
    this.#isCut = true;
    this.process.deliver(() => this.#close(describeCut()));
    this.backend.end();
  }

  /** The server learns of it only after a while, the client when it asks. */
  vanish(): void {
    if (this.#isCut) return;
    this.#isCut = true;
    this.#options.time.after(KEEPALIVE_MS, () => this.backend.end());
  }

  /** Faults that have been planned do not come any more; the client learns of those that it has not noticed. */
  calmDown(): void {
    this.#left = Number.POSITIVE_INFINITY;
    if (this.#isCut) this.process.deliver(() => this.#close(describeCut()));
  }

  on(_event: 'error', listener: (error: Error) => void): void {
    this.#onError = listener;
  }

  once(_event: 'end', listener: () => void): void {
    this.#onEnd = listener;
  }

  cork(): void {}

  uncork(): void {}

  destroy(): void {
    if (this.#isClosed) return;
    this.#leave();
    process.nextTick(() => this.process.deliver(() => this.#close(describeCut())));
  }

  end(): Promise<void> {
    return new Promise((resolve) => {
      const onEnd = this.#onEnd;
      this.#onEnd = () => {
        onEnd();
        resolve();
      };
      if (this.#isClosed) resolve();
      else this.#leave();
    });
  }

  /** The server closes the session after the messages that were sent. */
  #leave(): void {
    if (this.#isCut) return;
    this.#toServer.send(() => {
      if (!this.#isCut) this.backend.close();
    });
  }

  #arrive(sql: string, params: SqlValue[], pending: Pending): void {
    if (this.#isCut) return;
    if (this.#left-- <= 0) {
      this.cut();
      return;
    }
    const answer = (given: Answer | Error) =>
      this.#send(() => {
        const place = this.#pending.indexOf(pending);
        if (place < 0) return;
        this.#pending.splice(place, 1);
        if (given instanceof Error) pending.reject(given);
        else pending.resolve(given);
      });
    this.backend.receive({ sql, params, answer });
  }

  #send(act: () => void): void {
    this.#toClient.send(() => {
      if (!this.#isCut) this.process.deliver(act);
    });
  }

  #close(error: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#options.onEnd();
    for (const { reject } of this.#pending.splice(0)) reject(error);
    this.#onError(error);
    this.#onEnd();
  }

  /** Ends a connection on which an answer is late, as pg does. */
  #watch(): void {
    const [first] = this.#pending;
    if (this.#isWatched || !first) return;
    this.#isWatched = true;
    const { time } = this.#options;
    this.process.after(Math.max(1, first.deadline - time.now()), () => {
      this.#isWatched = false;
      const [oldest] = this.#pending;
      if (this.#isClosed || !oldest) return;
      if (oldest.deadline > time.now()) return this.#watch();
      this.#pending.shift();
      oldest.reject(new Error('Query read timeout'));
      this.destroy();
    });
  }
}

function describeCut(): Error {
  return Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });
}
