// One count of calls over all nodes: asks the leader for slices of limits, and answers other nodes while this node leads.
import type { CreateRateCounter, RateCount } from '../../api/limits/rate-limit.ts';
import type { ClusterView } from '../../cluster/cluster-rows.ts';
import { ProblemError } from '../../wire/problem.ts';
import { NODE_CALLS, type NodeCalls } from './node-calls.ts';
import { RateCounts, type RatesAnswer, type RatesBody } from './rate-counts.ts';
import { RateSlices, type RateSubject } from './rate-slices.ts';

/** Longest wait of a request for the leader's answer, ms. */
const WAIT_MS = 250;

export interface SharedRatesOptions {
  cluster: { readonly id: string; readonly view: ClusterView };
  calls: NodeCalls;
}

interface Waiter {
  subject: RateSubject;
  resolve: (count: RateCount) => void;
  timer: NodeJS.Timeout;
}

export class SharedRates {
  readonly #options: SharedRatesOptions;
  readonly #slices: RateSlices;
  #waiters: Waiter[] = [];
  #isCalling = false;
  /** While this node leads. */
  #counts: RateCounts | undefined;

  constructor(options: SharedRatesOptions) {
    this.#options = options;
    const countNodes = () => this.#listLive().length;
    this.#slices = new RateSlices({ node: options.cluster.id, countNodes });
    options.calls.answerAsLeader(NODE_CALLS.rates, async (body) => this.#answer(body));
  }

  readonly createCounter: CreateRateCounter = ({ limit, name, seconds }) => {
    const window = { window: name, limit, ms: seconds * 1_000 };
    return {
      take: (key, calls = 1) => this.#take({ ...window, key, calls }),
      giveBack: async (key, calls = 1) =>
        this.#slices.giveBack({ ...window, key, calls }, performance.now()),
    };
  };

  /** The leader may have changed, which then needs the counts of this node. */
  follow(): void {
    const term = this.#findTerm();
    if (term) this.#slices.noteTerm(term.name);
    void this.#call();
  }

  /** @throws ProblemError `unavailable` if this node no longer owns shard 0 */
  #answer(body: RatesBody): RatesAnswer {
    const term = this.#findTerm();
    if (term?.owner !== this.#options.cluster.id) {
      throw new ProblemError('unavailable', 'this node does not lead', { retryAfterMs: 1_000 });
    }
    const now = performance.now();
    const nodes = this.#listLive();
    if (this.#counts?.term !== term.name) {
      this.#counts = new RateCounts({ term: term.name, nodes, now });
    }
    return this.#counts.answer(body, { live: nodes, now });
  }

  async #take(subject: RateSubject): Promise<RateCount> {
    const count = this.#slices.take(subject, performance.now());
    const waiting = count ?? this.#wait(subject);
    void this.#call();
    return waiting;
  }

  #wait(subject: RateSubject): Promise<RateCount> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#waiters = this.#waiters.filter((each) => each !== waiter);
        resolve(this.#slices.giveUp(subject, performance.now()));
      }, WAIT_MS);
      const waiter = { subject, resolve, timer };
      this.#waiters.push(waiter);
    });
  }

  /** One call at a time; wants that arrive meanwhile share the next one. Never rejects. */
  async #call(): Promise<void> {
    if (this.#isCalling) return;
    this.#isCalling = true;
    try {
      for (;;) {
        const body = this.#slices.report(performance.now());
        if (!body) return;
        await this.#options.calls.askLeader(NODE_CALLS.rates, body).then(
          (answer) => this.#slices.learn(answer, performance.now()),
          () => this.#slices.fail(performance.now()),
        );
        this.#retryWaiters();
      }
    } finally {
      this.#isCalling = false;
    }
  }

  #retryWaiters(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    const now = performance.now();
    for (const waiter of waiters) {
      const count = this.#slices.retry(waiter.subject, now);
      if (!count) {
        this.#waiters.push(waiter);
        continue;
      }
      clearTimeout(waiter.timer);
      waiter.resolve(count);
    }
  }

  #listLive(): string[] {
    return this.#options.cluster.view.nodes.filter(({ isLive }) => isLive).map(({ id }) => id);
  }

  #findTerm(): { name: string; owner: string } | undefined {
    const shard = this.#options.cluster.view.shards.find(({ id }) => id === 0);
    if (!shard?.owner) return undefined;
    return { name: `${shard.owner} ${shard.epoch}`, owner: shard.owner };
  }
}
