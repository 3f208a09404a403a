// What holds of the scaler whatever comes: played on an endpoint that is no more than a list of workers,
// with jobs that come as regularly as a clock.
import { describe, expect, it } from 'vitest';
import { decide } from '../../../src/control/scaling/scaler.ts';
import { LoadPeak } from '../../../src/control/scaling/scaler-demand.ts';
import type { EndpointScaler } from '../../../src/wire/resources/endpoint.ts';
import type { ScalerDecision, ScalerInput } from '../../../src/wire/resources/scaling.ts';
import { fc } from '../../support/properties.ts';

const LOOK_MS = 500;

interface Course {
  workersMin: number;
  workersMax: number;
  idleTimeoutMs: number;
  scaler: EndpointScaler;
  /** A worker needs so long to become ready, ms. */
  bootMs: number;
  /** Between two jobs, and how long one takes, ms. */
  everyMs: number;
  jobMs: number;
}

interface Worker {
  id: string;
  readyAt: number;
  /** When its job ends; null: it has none. */
  until: number | null;
  idleSince: number;
  isDraining: boolean;
  isCurrent: boolean;
}

interface Look {
  input: ScalerInput;
  decision: ScalerDecision;
}

class Model {
  readonly looks: Look[] = [];
  readonly #course: Course;
  readonly #peak = new LoadPeak();
  #workers: Worker[] = [];
  /** When each was queued. */
  #queue: number[] = [];
  #now = 0;
  #made = 0;
  #lastStartAt: number | null = null;

  constructor(course: Course) {
    this.#course = course;
  }

  get workers(): readonly Worker[] {
    return this.#workers;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  /** With jobs until `jobsUntil`. */
  play(until: number, jobsUntil: number): this {
    const { everyMs } = this.#course;
    for (let next = this.#now + LOOK_MS; next <= until; next += LOOK_MS) {
      const from = Math.ceil(this.#now / everyMs) * everyMs;
      for (let at = from; at < next && at < jobsUntil; at += everyMs) {
        this.#work(at);
        this.#queue.push(at);
        this.#work(at);
      }
      this.#work(next);
      this.#now = next;
      this.#look();
    }
    return this;
  }

  makeOld(): void {
    for (const worker of this.#workers) worker.isCurrent = false;
  }

  /** Jobs end, and are taken by whoever has been idle for longest, as a queue gives them. */
  #work(now: number): void {
    for (;;) {
      const ending = this.#workers
        .filter(({ until }) => until !== null && until <= now)
        .sort((one, other) => (one.until ?? 0) - (other.until ?? 0))[0];
      if (ending) {
        ending.idleSince = ending.until ?? now;
        ending.until = null;
      }
      this.#give(Math.min(now, ending?.idleSince ?? now));
      if (!ending) break;
    }
    this.#workers = this.#workers.filter(({ isDraining, until }) => !isDraining || until !== null);
  }

  #give(at: number): void {
    const free = this.#workers
      .filter(({ isDraining, readyAt, until }) => !isDraining && until === null && readyAt <= at)
      .sort((one, other) => one.idleSince - other.idleSince);
    for (const worker of free) {
      if (this.#queue.shift() === undefined) return;
      worker.until = at + this.#course.jobMs;
    }
  }

  #look(): void {
    const { idleTimeoutMs, scaler, workersMax, workersMin } = this.#course;
    const now = this.#now;
    const running = this.#workers.filter(({ until }) => until !== null).length;
    const waiting = this.#queue.length;
    const input: ScalerInput = {
      ...{ now, type: 'QUEUE', workersMin, workersMax, idleTimeoutMs, scaler, places: null },
      load: {
        ...{ waiting, running, oldestQueuedAt: this.#queue[0] ?? null },
        peak: this.#peak.note(waiting + running, now, idleTimeoutMs),
      },
      workers: this.#workers.map((worker) => this.#describe(worker)),
      lastStartAt: this.#lastStartAt,
      lastWant: this.looks.at(-1)?.decision.want ?? null,
      crashes: { streak: 0, notBefore: 0, reason: null },
    };
    const decision = decide(input);
    this.looks.push({ input, decision });
    for (let n = 0; n < decision.start; n++) this.#start();
    for (const worker of this.#workers) {
      if (decision.drain.includes(worker.id)) worker.isDraining = true;
    }
    this.#work(now);
  }

  #describe({ id, idleSince, isCurrent, isDraining, readyAt, until }: Worker) {
    const isReady = readyAt <= this.#now;
    const state = isDraining ? 'draining' : isReady ? 'ready' : 'starting';
    const idle = isReady && until === null ? Math.max(idleSince, readyAt) : null;
    return { id, state, jobs: until === null ? 0 : 1, idleSince: idle, isCurrent } as const;
  }

  #start(): void {
    const readyAt = this.#now + this.#course.bootMs;
    const fresh = { until: null, idleSince: readyAt, isDraining: false, isCurrent: true };
    this.#workers.push({ id: `w${this.#made++}`, readyAt, ...fresh });
    this.#lastStartAt = this.#now;
  }
}

const MINUTE_MS = 60_000;

const courses: fc.Arbitrary<Course> = fc
  .record({
    workersMin: fc.integer({ min: 0, max: 3 }),
    above: fc.integer({ min: 1, max: 6 }),
    idleTimeoutMs: fc.constantFrom(2_000, 5_000, 30_000),
    scaler: fc.constantFrom<EndpointScaler>(
      { type: 'QUEUE_DELAY', seconds: 1 },
      { type: 'QUEUE_DELAY', seconds: 4 },
      { type: 'REQUEST_COUNT', perWorker: 1 },
      { type: 'REQUEST_COUNT', perWorker: 4 },
    ),
    bootMs: fc.constantFrom(0, 300, 3_000, 20_000),
    everyMs: fc.integer({ min: 100, max: 4_000 }),
    jobMs: fc.integer({ min: 10, max: 10_000 }),
  })
  .map(({ above, ...course }) => ({ ...course, workersMax: course.workersMin + above }));

function countStarts(looks: readonly Look[]): number {
  return looks.reduce((sum, { decision }) => sum + decision.start, 0);
}

describe('in every course of events, the scaler', () => {
  it('never exceeds the maximum, draining workers included, or by one during a replacement', () => {
    fc.assert(
      fc.property(courses, fc.boolean(), (course, rolls) => {
        const model = new Model(course).play(MINUTE_MS, 3 * MINUTE_MS);
        if (rolls) model.makeOld();
        model.play(2 * MINUTE_MS, 3 * MINUTE_MS);
        for (const { decision, input } of model.looks) {
          const isRolling = input.workers.some(({ isCurrent }) => !isCurrent);
          const most = input.workersMax + (isRolling ? 1 : 0);
          expect(input.workers.length + decision.start).toBeLessThanOrEqual(most);
        }
      }),
    );
  });

  it('never has fewer than the minimum', () => {
    fc.assert(
      fc.property(courses, (course) => {
        const model = new Model(course).play(2 * MINUTE_MS, MINUTE_MS);
        for (const { decision, input } of model.looks) {
          const alive = input.workers.filter(({ state }) => state !== 'draining').length;
          const left = alive + decision.start - decision.drain.length;
          expect(left).toBeGreaterThanOrEqual(course.workersMin);
        }
      }),
    );
  });

  it('returns to the minimum without new jobs', () => {
    fc.assert(
      fc.property(courses, (course) => {
        const model = new Model(course).play(MINUTE_MS, MINUTE_MS);
        const all = model.waiting * course.jobMs + MINUTE_MS;
        model.play(MINUTE_MS + all + course.idleTimeoutMs, MINUTE_MS);
        expect(model.waiting).toBe(0);
        expect(model.workers).toHaveLength(course.workersMin);
      }),
    );
  });

  it('starts no more workers after a while of regular jobs', () => {
    // What is a little more than some workers can do makes the queue grow a little with each job, for
    // minutes; and so does a count that is more than a worker can do at a time.
    const steady = courses.filter(({ everyMs, idleTimeoutMs, jobMs, scaler }) => {
      const isPlain = scaler.type === 'QUEUE_DELAY' || scaler.perWorker === 1;
      return isPlain && everyMs < idleTimeoutMs && (jobMs / everyMs) % 1 > 0.2;
    });
    fc.assert(
      fc.property(steady, (course) => {
        const model = new Model(course).play(5 * MINUTE_MS, 10 * MINUTE_MS);
        const before = model.looks.length;
        model.play(10 * MINUTE_MS, 10 * MINUTE_MS);
        expect(countStarts(model.looks.slice(before))).toBe(0);
      }),
    );
  });

  it('keeps waits near the configured delay if workersMax permits', () => {
    const scaler = { type: 'QUEUE_DELAY', seconds: 4 } as const;
    const byDelay = courses.map((course) => ({ ...course, scaler }));
    fc.assert(
      fc.property(byDelay, (course) => {
        fc.pre(Math.ceil(course.jobMs / course.everyMs) <= course.workersMax);
        const model = new Model(course).play(20 * MINUTE_MS, 20 * MINUTE_MS);
        for (const { input } of model.looks.filter((look) => look.input.now > 10 * MINUTE_MS)) {
          const waitedMs = input.now - (input.load.oldestQueuedAt ?? input.now);
          expect(waitedMs).toBeLessThanOrEqual(4_000 + course.bootMs + course.jobMs + 2 * LOOK_MS);
        }
      }),
      { numRuns: 40 },
    );
  });

  it('replaces all old workers', () => {
    fc.assert(
      fc.property(courses, (course) => {
        const model = new Model(course).play(5 * MINUTE_MS, 20 * MINUTE_MS);
        model.makeOld();
        model.play(10 * MINUTE_MS, 20 * MINUTE_MS);
        expect(model.workers.every(({ isCurrent }) => isCurrent)).toBe(true);
      }),
    );
  });

  it('drains no ready worker that is needed', () => {
    fc.assert(
      fc.property(courses, (course) => {
        const model = new Model(course).play(2 * MINUTE_MS, 4 * MINUTE_MS);
        model.makeOld();
        model.play(5 * MINUTE_MS, 4 * MINUTE_MS);
        for (const { decision, input } of model.looks) {
          const ready = input.workers.filter(({ state }) => state === 'ready');
          const left = ready.filter(({ id }) => !decision.drain.includes(id)).length;
          expect(left).toBeGreaterThanOrEqual(Math.min(decision.want, ready.length));
        }
      }),
    );
  });

  it('makes the same decision from the stored inputs', () => {
    fc.assert(
      fc.property(courses, (course) => {
        for (const { decision, input } of new Model(course).play(MINUTE_MS, MINUTE_MS).looks) {
          expect(decide(JSON.parse(JSON.stringify(input)))).toEqual(decision);
        }
      }),
    );
  });
});
