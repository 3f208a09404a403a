// Sits between a worker under test and the queue: records every call with its answer, and injects
// faults into chosen calls. The checks judge the recorded calls.
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
import { Watch } from '../checks.ts';

interface Calls {
  hello: [WorkerHello, WorkerWelcome];
  take: [TakeRequest, Lease[]];
  renew: [RenewRequest, RenewReply];
  report: [ReportRequest, ReportReply[]];
  bye: [WorkerBye, undefined];
}
type LinkVerb = keyof Calls;

/** One recorded call; `answer` is set once the call is answered. */
interface RecordedCall<V extends LinkVerb = LinkVerb> {
  verb: V;
  request: Calls[V][0];
  /** Unix ms. */
  at: number;
  answeredAt?: number;
  answer?: Calls[V][1];
  /** The worker did not get the answer. */
  isLost?: boolean;
}

/** A fault for one call: a different answer, an error, or a lost answer. */
interface CallFault<V extends LinkVerb> {
  /** Whether the fault applies to this call. */
  matches(request: Calls[V][0], answer: Calls[V][1] | undefined): boolean;
  /** Runs instead of the queue: returns an answer or throws. */
  instead?: (request: Calls[V][0]) => Calls[V][1];
  /** Runs after the queue: the answer is lost. */
  losesAnswer?: boolean;
}

export class CallRecorder implements WorkerLink {
  readonly calls: { [V in LinkVerb]: RecordedCall<V>[] } = {
    hello: [],
    take: [],
    renew: [],
    report: [],
    bye: [],
  };
  /** All calls in the order of arrival. */
  readonly order: RecordedCall[] = [];
  readonly #inner: WorkerLink;
  readonly #cut: () => void;
  readonly #faults: { [V in LinkVerb]: CallFault<V>[] } = {
    hello: [],
    take: [],
    renew: [],
    report: [],
    bye: [],
  };
  readonly #watch = new Watch();

  /** `cut` breaks the worker's connections. */
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

  /** Loses the answer of the next call that matches, and cuts all connections. */
  loseAnswer<V extends LinkVerb>(verb: V, matches: CallFault<V>['matches'] = () => true): void {
    this.#addFault(verb, { matches, losesAnswer: true });
  }

  /** Answers the next call that matches instead of the queue. */
  answerNext<V extends LinkVerb>(
    verb: V,
    instead: (request: Calls[V][0]) => Calls[V][1],
    matches: CallFault<V>['matches'] = () => true,
  ): void {
    this.#addFault(verb, { matches, instead });
  }

  /** Drops the answers of all open calls. */
  loseOpen(): void {
    for (const recorded of this.order)
      if (recorded.answeredAt === undefined) recorded.isLost = true;
  }

  /** Runs `find` after each call and each answer until it returns a value. */
  until<T>(ms: number, what: string, find: () => T | undefined): Promise<T> {
    return this.#watch.until(ms, what, find);
  }

  #addFault<V extends LinkVerb>(verb: V, fault: CallFault<V>): void {
    const list: CallFault<V>[] = this.#faults[verb];
    list.push(fault);
  }

  #takeFault<V extends LinkVerb>(
    kind: 'instead' | 'losesAnswer',
    { answer, request, verb }: RecordedCall<V>,
  ): CallFault<V> | undefined {
    const list: CallFault<V>[] = this.#faults[verb];
    const index = list.findIndex((fault) => fault[kind] && fault.matches(request, answer));
    return index < 0 ? undefined : list.splice(index, 1)[0];
  }

  async #note<V extends LinkVerb>(
    verb: V,
    request: Calls[V][0],
    call: () => Promise<Calls[V][1]>,
  ): Promise<Calls[V][1]> {
    const recorded: RecordedCall<V> = { verb, request, at: Date.now() };
    const list: RecordedCall<V>[] = this.calls[verb];
    list.push(recorded);
    this.order.push(recorded);
    this.check();
    try {
      const forged = this.#takeFault('instead', recorded)?.instead;
      const answer = forged ? forged(request) : await call();
      recorded.answer = answer;
      if (this.#takeFault('losesAnswer', recorded)) {
        recorded.isLost = true;
        this.#cut();
      }
      return answer;
    } finally {
      recorded.answeredAt = Date.now();
      this.check();
    }
  }

  /** Makes `until` run `find` again after a change that is not a call. */
  check(): void {
    this.#watch.check();
  }
}
