// Stands between a worker under test and the queue: notes every call with its answer, and does to
// chosen calls what a network or a platform may do. What that means is for the checks to judge.
import type {
  Lease,
  RenewReply,
  RenewRequest,
  ReportReply,
  ReportRequest,
  TakeRequest,
  WorkerBye,
  WorkerHello,
  WorkerLink,
  WorkerWelcome,
} from '../../wire/link/worker-link.ts';
import { Watch } from '../watch.ts';

interface Calls {
  hello: [WorkerHello, WorkerWelcome];
  take: [TakeRequest, Lease[]];
  renew: [RenewRequest, RenewReply];
  report: [ReportRequest, ReportReply[]];
  bye: [WorkerBye, undefined];
}
export type Verb = keyof Calls;

/** One call, as it came; `answer` is there once it was given. */
export interface Seen<V extends Verb = Verb> {
  verb: V;
  request: Calls[V][0];
  /** Unix ms. */
  at: number;
  answeredAt?: number;
  answer?: Calls[V][1];
  /** The worker never got the answer. */
  isLost?: boolean;
}

/** What becomes of a call instead of what should: an answer of its own, an error, or a lost answer. */
interface Order<V extends Verb> {
  /** Is it this call? */
  strikes(request: Calls[V][0], answer: Calls[V][1] | undefined): boolean;
  /** Before the queue is asked: answers, or throws. */
  instead?: (request: Calls[V][0]) => Calls[V][1];
  /** After it: the answer is lost. */
  isLosing?: boolean;
}

export class Witness implements WorkerLink {
  readonly calls: { [V in Verb]: Seen<V>[] } = {
    hello: [],
    take: [],
    renew: [],
    report: [],
    bye: [],
  };
  /** All of them in the order in which they came. */
  readonly order: Seen[] = [];
  readonly #inner: WorkerLink;
  readonly #cut: () => void;
  readonly #orders: { [V in Verb]: Order<V>[] } = {
    hello: [],
    take: [],
    renew: [],
    report: [],
    bye: [],
  };
  readonly #watch = new Watch();

  /** `cut` breaks the connections of the worker. */
  constructor(inner: WorkerLink, cut: () => void) {
    this.#inner = inner;
    this.#cut = cut;
  }

  hello = (request: WorkerHello) => this.#note('hello', request, () => this.#inner.hello(request));

  take = (request: TakeRequest, signal: AbortSignal) =>
    this.#note('take', request, () => this.#inner.take(request, signal));

  renew = (request: RenewRequest, signal: AbortSignal) =>
    this.#note('renew', request, () => this.#inner.renew(request, signal));

  report = (request: ReportRequest) =>
    this.#note('report', request, () => this.#inner.report(request));

  bye = (request: WorkerBye): Promise<void> =>
    this.#note('bye', request, async () => {
      await this.#inner.bye(request);
      return undefined;
    });

  /** The next call of the verb for which it holds loses its answer: all connections are cut. */
  loseAnswer<V extends Verb>(verb: V, strikes: Order<V>['strikes'] = () => true): void {
    this.#give(verb, { strikes, isLosing: true });
  }

  /** The next call of the verb for which it holds is answered so. */
  answerNext<V extends Verb>(
    verb: V,
    instead: (request: Calls[V][0]) => Calls[V][1],
    strikes: Order<V>['strikes'] = () => true,
  ): void {
    this.#give(verb, { strikes, instead });
  }

  /** Answers to what is open now reach nobody. */
  loseOpen(): void {
    for (const seen of this.order) if (seen.answeredAt === undefined) seen.isLost = true;
  }

  /** Comes back with what `find` finds, looked for after each call and each answer. */
  until<T>(ms: number, what: string, find: () => T | undefined): Promise<T> {
    return this.#watch.until(ms, what, find);
  }

  #give<V extends Verb>(verb: V, order: Order<V>): void {
    const list: Order<V>[] = this.#orders[verb];
    list.push(order);
  }

  #pick<V extends Verb>(
    kind: 'instead' | 'isLosing',
    { answer, request, verb }: Seen<V>,
  ): Order<V> | undefined {
    const list: Order<V>[] = this.#orders[verb];
    const index = list.findIndex((order) => order[kind] && order.strikes(request, answer));
    return index < 0 ? undefined : list.splice(index, 1)[0];
  }

  async #note<V extends Verb>(
    verb: V,
    request: Calls[V][0],
    call: () => Promise<Calls[V][1]>,
  ): Promise<Calls[V][1]> {
    const seen: Seen<V> = { verb, request, at: Date.now() };
    const list: Seen<V>[] = this.calls[verb];
    list.push(seen);
    this.order.push(seen);
    this.look();
    try {
      const forged = this.#pick('instead', seen)?.instead;
      const answer = forged ? forged(request) : await call();
      seen.answer = answer;
      if (this.#pick('isLosing', seen)) {
        seen.isLost = true;
        this.#cut();
      }
      return answer;
    } finally {
      seen.answeredAt = Date.now();
      this.look();
    }
  }

  /** Something changed that is no call: whoever waits looks again. */
  look(): void {
    this.#watch.look();
  }
}
