// Logs failures of forwarding by node: the first one, a count once a minute, and the end. A killed node fails every request
// under way, and a line for each would hide everything else.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ExchangeEnd } from './exchange.ts';

/** Between two lines about a node that still fails, ms. */
const REPEAT_MS = 60_000;
/** A node works again after an answer so long after its last failure, ms. */
const SOUND_MS = 5_000;
/** A node that has not failed for so long is forgotten: it may never be called again, ms. */
const FORGET_MS = 600_000;

export interface NodeFailuresOptions {
  clock: Pick<Clock, 'now'>;
  log: Pick<Log, 'info' | 'warn'>;
}

interface Failing {
  /** Since the last line. */
  failures: number;
  /** Since the node failed first. */
  all: number;
  failedAt: number;
  loggedAt: number;
}

export class NodeFailures {
  readonly #options: NodeFailuresOptions;
  readonly #failing = new Map<string, Failing>();

  constructor(options: NodeFailuresOptions) {
    this.#options = options;
  }

  fail(node: string, end: ExchangeEnd): void {
    const { clock, log } = this.#options;
    const now = clock.now();
    const known = this.#failing.get(node);
    if (!known) this.#forgetOld(now);
    const failing = known ?? {
      failures: 0,
      all: 0,
      failedAt: now,
      loggedAt: Number.NEGATIVE_INFINITY,
    };
    failing.failures += 1;
    failing.all += 1;
    failing.failedAt = now;
    this.#failing.set(node, failing);
    if (now - failing.loggedAt < REPEAT_MS) return;
    log.warn({ node, end, failures: failing.failures }, 'forwarding to a node failed');
    failing.loggedAt = now;
    failing.failures = 0;
  }

  /** The node has answered. */
  answer(node: string): void {
    const failing = this.#failing.get(node);
    if (!failing) return;
    const { clock, log } = this.#options;
    if (clock.now() - failing.failedAt < SOUND_MS) return;
    this.#failing.delete(node);
    log.info({ node, failures: failing.all }, 'forwarding to a node works again');
  }

  #forgetOld(now: number): void {
    for (const [node, { failedAt }] of this.#failing) {
      if (now - failedAt > FORGET_MS) this.#failing.delete(node);
    }
  }
}
