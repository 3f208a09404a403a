// Runs the fuzzer: sends a number of requests to a new platform, some in parallel, judges each
// answer, and checks the platform's state at the end.
import { readFile } from 'node:fs/promises';
import { Dice } from './dice.ts';
import type { FuzzRequest } from './framing.ts';
import { composeNoRequest } from './no-requests.ts';
import { FUZZED_OPERATIONS, FUZZED_READERS } from './operations.ts';
import { composeRequest } from './requests.ts';
import type { Allowance } from './safety.ts';
import { judge } from './verdict.ts';
import { type Exchange, exchange } from './wire.ts';
import { type Caller, FuzzWorld } from './world.ts';

const AT_ONCE = 16;
/** Patience for a request that may wait or is incomplete, ms. */
const WAIT_PATIENCE_MS = 2_500;
/** Longer than a client may pause while it sends a body. */
const PATIENCE_MS = 45_000;
/** Most reported faults; further ones would add nothing. */
const MAX_FAULTS = 25;
const SHOWN_BYTES = 1_500;

export interface FuzzRun {
  seed: number;
  requests: number;
  allowance: Allowance;
}

export interface FuzzResult {
  /** Faults, each with its request. */
  faults: string[];
  answered: number;
  /** Share of answers 429, 0 to 1. */
  tooMany: number;
  /** Operations that were answered with success at least once, and those that never were. */
  succeeded: string[];
  neverSucceeded: string[];
  /** Report as text. */
  summary: string;
}

export async function runFuzzer({ allowance, requests, seed }: FuzzRun): Promise<FuzzResult> {
  const world = await FuzzWorld.open(allowance);
  try {
    const run = new Run(world, seed);
    const rssBefore = await readRss(world);
    await run.play(requests);
    const rssAfter = await readRss(world);
    run.faults.push(...(await world.examine()));
    if (run.faults.length === 0) await world.useOnceMore();
    return { ...run.sum(), summary: `${run.describe()}\nRSS ${rssBefore} → ${rssAfter}` };
  } finally {
    await world.close();
  }
}

class Run {
  readonly faults: string[] = [];
  readonly #world: FuzzWorld;
  readonly #seed: number;
  readonly #statuses = new Map<number, number>();
  readonly #succeeded = new Set<string>();
  /** Answers of 500 and above, also those of failed jobs, which are no faults. */
  readonly #failures = new Set<string>();
  readonly #ends = { answered: 0, closed: 0, abandoned: 0 };
  #slowest = { ms: 0, what: '' };

  constructor(world: FuzzWorld, seed: number) {
    this.#world = world;
    this.#seed = seed;
  }

  async play(requests: number): Promise<void> {
    let next = 0;
    const playSome = async () => {
      while (next < requests && this.faults.length < MAX_FAULTS) await this.#playOne(next++);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, playSome));
  }

  async #playOne(number: number): Promise<void> {
    const dice = new Dice(this.#seed, number);
    const caller = this.#world.chooseCaller(dice);
    const request = this.#compose(dice, { caller, number });
    const { allowance } = this.#world;
    const spends = { pods: 0, endpoints: 0 };
    if (/^POST (\/runpod)?\/v2\/pods$/.test(request.route)) spends.pods = 1;
    if (/^POST \/(v1\/endpoints|runpod\/v2\/serverless)$/.test(request.route)) spends.endpoints = 1;
    allowance.pods -= spends.pods;
    allowance.endpoints -= spends.endpoints;
    const { hangsUp, maySilence, mayWait, methods, pieces } = request;
    const patienceMs = mayWait || maySilence ? WAIT_PATIENCE_MS : PATIENCE_MS;
    try {
      const seen = await exchange(this.#world.port, { pieces, methods, hangsUp, patienceMs });
      if (seen.answers[0]?.status !== 201 && !hangsUp) {
        allowance.pods += spends.pods;
        allowance.endpoints += spends.endpoints;
      }
      this.#count(request, seen);
      for (const fault of judge(this.#world, { request, caller, seen })) {
        this.faults.push(this.#show(fault, { number, request, caller }));
      }
    } catch (error) {
      this.faults.push(this.#show(String(error), { number, request, caller }));
    }
  }

  #compose(dice: Dice, { caller, number }: { caller: Caller; number: number }): FuzzRequest {
    const { allowance, ground, alice } = this.#world;
    if (dice.chance(0.05)) return composeNoRequest(dice, alice.key);
    // Uses all operations in turn, so that a short run covers each.
    const operations = number % 2 === 0 ? FUZZED_OPERATIONS : FUZZED_READERS;
    const operation = operations[Math.floor(number / 2) % operations.length];
    if (!operation) throw new Error('there are no operations');
    const path = this.#world.fill(operation, dice, caller);
    const { authorization } = caller;
    return composeRequest(dice, { operation, path, authorization, ground, allowance });
  }

  #count({ mayWait, route, target }: FuzzRequest, { answers, end, ms }: Exchange): void {
    this.#ends[end]++;
    for (const { body, status } of answers) {
      if (status >= 500) this.#failures.add(`${status} ${route}: ${body.toString().slice(0, 300)}`);
      this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1);
    }
    const [first] = answers;
    // A load-balancing worker may answer anything.
    const isPassedOn =
      route.includes(' /lb/') && !first?.headers.get('content-type')?.includes('problem');
    if (first && (first.status < 400 || isPassedOn)) this.#succeeded.add(route);
    if (first && !mayWait && ms > this.#slowest.ms) {
      const what = `${first.status} ${route} ${target.slice(0, 120)}`;
      this.#slowest = { ms: Math.round(ms), what };
    }
  }

  #show(
    fault: string,
    { caller, number, request }: { caller: Caller; number: number; request: FuzzRequest },
  ): string {
    const bytes = Buffer.concat(request.pieces.filter((piece) => typeof piece !== 'number'));
    const sent = bytes.toString('latin1').replaceAll(/mr_[\w-]{43}/g, 'mr_…');
    const about = `#${number} by ${caller.name}, bent: ${[...request.bent]}, ${bytes.length} bytes`;
    return `${fault}\n${about}\n${sent.slice(0, SHOWN_BYTES)}`;
  }

  sum(): Omit<FuzzResult, 'summary'> {
    const answered = [...this.#statuses.values()].reduce((sum, count) => sum + count, 0);
    const routes = FUZZED_OPERATIONS.map(({ method, path }) => `${method} ${path}`);
    return {
      faults: this.faults,
      answered,
      tooMany: (this.#statuses.get(429) ?? 0) / Math.max(1, answered),
      succeeded: routes.filter((route) => this.#succeeded.has(route)),
      neverSucceeded: routes.filter((route) => !this.#succeeded.has(route)),
    };
  }

  describe(): string {
    const counts = [...this.#statuses].sort(([a], [b]) => a - b);
    const histogram = counts.map(([status, count]) => `${status}: ${count}`).join(', ');
    const { ms, what } = this.#slowest;
    const { succeeded, neverSucceeded } = this.sum();
    return [
      `SEED=${this.#seed}; ${histogram}; ${JSON.stringify(this.#ends)}`,
      `slowest: ${ms} ms, ${what}`,
      `500 and above: ${[...this.#failures].join('; ') || 'none'}`,
      `${succeeded.length} operations succeeded; never: ${neverSucceeded.join(', ') || 'none'}`,
    ].join('\n');
  }
}

async function readRss({ platform }: FuzzWorld): Promise<string> {
  const status = await readFile(`/proc/${platform.process.child.pid}/status`, 'utf8').catch(
    () => '',
  );
  const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  return kilobytes === undefined ? 'unknown' : `${Math.round(Number(kilobytes) / 1_024)} MB`;
}
