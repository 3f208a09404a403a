// Calls of clients and workers at any node of the simulated cluster. A node that does not own the endpoint forwards the
// call by one hop, with the rules of src/api/forwarding; the network loses requests and answers.
import { type Clock, sleep } from '../../../src/base/clock.ts';
import type { ShardedQueues } from '../../../src/queue/queues.ts';
import { StoreUnavailableError } from '../../../src/store/store.ts';
import type { VirtualTime } from '../virtual-time.ts';
import type { SimulatedNode } from './simulated-node.ts';

const PAUSE_MS = 250;
const MAX_TRAVEL_MS = 4;
/** The effects of a call that failed are unknown, like those of any call without an answer. */
export class CallFailedError extends StoreUnavailableError {}

/** How a queue is asked: `isRepeated` if an earlier attempt may have had its effect. */
export interface Asking {
  isRepeated: boolean;
  signal: AbortSignal;
}

export interface Call<T> {
  endpointId: string;
  isWorker: boolean;
  /** It may be sent again after a failure on the way. */
  isRepeatable: boolean;
  run: (queues: ShardedQueues, asking: Asking, node: SimulatedNode) => Promise<T>;
  signal?: AbortSignal;
}

export interface EntranceOptions {
  time: VirtualTime;
  random: () => number;
  /** Share of messages between nodes, and between callers and nodes, that are lost. */
  lost: () => number;
  findNode: (url: string) => SimulatedNode | undefined;
  /** The node is about to serve the endpoint. */
  onServe: (node: SimulatedNode, endpointId: string) => void;
  count: (event: 'forwarded' | 'refused' | 'broken_off' | 'repeated') => void;
}

/** As `ForwardingBounds`. */
const OWNER_WAIT_MS = 12_000;
const WORKER_OWNER_WAIT_MS = 60_000;
/** Made once: stacks take time. */
const ABORTED = new DOMException('This operation was aborted', 'AbortError');
const NEVER = new AbortController().signal;

type Forwarded<T> = { isRefused: true } | { isRefused: false; value: T };

interface Route {
  from: SimulatedNode | undefined;
  to: SimulatedNode;
  signal: AbortSignal;
}

export class Entrance {
  readonly #options: EntranceOptions;

  constructor(options: EntranceOptions) {
    this.#options = options;
  }

  /** A caller outside calls a node. @throws CallFailedError, and what the platform answers */
  ask<T>(to: SimulatedNode, call: Call<T>): Promise<T> {
    const { signal = NEVER } = call;
    return this.send({ from: undefined, to, signal }, (cut) => this.#route(to, call, cut));
  }

  /** @throws CallFailedError, and what `work` throws */
  send<T>({ from, signal, to }: Route, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { lost, random, time } = this.#options;
    const travel = (act: () => void) => time.after(1 + Math.floor(random() * MAX_TRAVEL_MS), act);
    return new Promise((resolve, reject) => {
      const end = (act: () => void) => {
        unwatch();
        signal.removeEventListener('abort', abort);
        if (from) from.process.deliver(act);
        else act();
      };
      const fail = () => end(() => reject(new CallFailedError('no answer came')));
      const unwatch = to.process.watch(fail);
      const cut = new AbortController();
      const abort = () => travel(() => to.process.deliver(() => cut.abort(ABORTED)));
      signal.addEventListener('abort', abort, { once: true });
      if (random() < lost()) return void travel(fail);
      const answer = (act: () => void) => travel(() => (random() < lost() ? fail() : end(act)));
      travel(() =>
        to.process.deliver(() => {
          work(cut.signal).then(
            (value) => answer(() => resolve(value)),
            (error: unknown) => answer(() => reject(error)),
          );
        }),
      );
    });
  }

  async #route<T>(node: SimulatedNode, call: Call<T>, signal: AbortSignal): Promise<T> {
    const { time } = this.#options;
    const until = time.now() + (call.isWorker ? WORKER_OWNER_WAIT_MS : OWNER_WAIT_MS);
    let isRepeated = false;
    for (;;) {
      const { placement } = node.parts ?? {};
      if (!placement || signal.aborted) throw new CallFailedError('the node does not answer');
      const place = placement.find(call.endpointId);
      if (place.kind === 'here') {
        try {
          return await this.#serve(node, call, { isRepeated, signal });
        } catch (error) {
          // A worker's call is repeated if the endpoint has moved meanwhile.
          if (!call.isWorker || placement.find(call.endpointId).kind === 'here') throw error;
        }
      }
      if (place.kind === 'node') {
        const to = this.#options.findNode(place.url);
        const answer = to && (await this.#forward({ from: node, to, signal }, call, isRepeated));
        if (answer === 'unknown') isRepeated = true;
        else if (answer?.isRefused === false) return answer.value;
      }
      const leftMs = until - time.now();
      if (leftMs <= 0) throw new CallFailedError('no node serves the endpoint');
      if (place.kind === 'none') await this.#waitForChange(node, leftMs);
      else await this.#refresh(node, leftMs);
    }
  }

  async #forward<T>(
    route: Route & { from: SimulatedNode },
    call: Call<T>,
    isRepeated: boolean,
  ): Promise<Forwarded<T> | 'unknown'> {
    const { count } = this.#options;
    count('forwarded');
    try {
      const answer = await this.send(route, (signal) =>
        this.#serveForwarded(route.to, call, { isRepeated, signal }),
      );
      if (answer.isRefused) count('refused');
      return answer;
    } catch (error) {
      if (!(error instanceof CallFailedError)) throw error;
      count('broken_off');
      if (!call.isRepeatable) throw error;
      count('repeated');
      return 'unknown';
    }
  }

  /** One hop: a node that does not own the endpoint refuses the call. */
  async #serveForwarded<T>(
    node: SimulatedNode,
    call: Call<T>,
    asking: Asking,
  ): Promise<Forwarded<T>> {
    if (node.parts?.placement.find(call.endpointId).kind !== 'here') return { isRefused: true };
    return { isRefused: false, value: await this.#serve(node, call, asking) };
  }

  async #serve<T>(node: SimulatedNode, call: Call<T>, asking: Asking): Promise<T> {
    const { parts } = node;
    if (!parts) throw new CallFailedError('the node has not started');
    this.#options.onServe(node, call.endpointId);
    const end = parts.placement.begin(call.endpointId);
    try {
      return await call.run(parts.queues, asking, node);
    } finally {
      end();
    }
  }

  async #waitForChange(node: SimulatedNode, leftMs: number): Promise<void> {
    const wait = new AbortController();
    const change = node.parts?.placement.untilChange(wait.signal);
    await Promise.race([change, sleep(this.#clockOf(node), leftMs)]);
    wait.abort();
  }

  async #refresh(node: SimulatedNode, leftMs: number): Promise<void> {
    const clock = this.#clockOf(node);
    await Promise.race([node.reload().catch(() => {}), sleep(clock, leftMs)]);
    await sleep(clock, PAUSE_MS);
  }

  #clockOf({ process }: SimulatedNode): Clock {
    return { now: this.#options.time.now, after: (ms, act) => process.after(ms, act) };
  }
}
