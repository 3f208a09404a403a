// Moves each pod to its desired state: inspects, decides, takes one step, inspects again. It keeps
// no state that matters: the next step follows from the record and the engine.
import { isDeepStrictEqual } from 'node:util';
import { type BackoffOptions, backoffMs } from '../../base/backoff.ts';
import { type Container, EngineError } from '../../engine/engine.ts';
import type { PodAspect } from './live-pods.ts';
import { decideStep, isParked, noteDelay, noteUnreachable, observe } from './pod-lifecycle.ts';
import type { LastSight } from './pod-meter.ts';
import type { PodState } from './pod-state.ts';
import { PodSteps, type PodStepsOptions } from './pod-steps.ts';

/** Interval of full passes, which find what no hint reported, ms. */
const SWEEP_MS = 2_000;
/** Most steps in a row for a pod; then it waits for the next pass. */
const MAX_ROUNDS = 20;
/** Waits after failed steps. */
const RETRY_PACE: BackoffOptions = { baseMs: 500, maxMs: 10_000, jitter: 0.2 };

export type ReconcilerOptions = PodStepsOptions;

/** The work on one pod: one step at a time. */
interface PodLoop {
  isBusy: boolean;
  /** Something has changed since the last inspection. */
  isDirty: boolean;
  /** Failures in a row. */
  retries: number;
  /** Cancels its timer; undefined without one. */
  cancelTimer: (() => void) | undefined;
}

export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #steps: PodSteps;
  readonly #loops = new Map<string, PodLoop>();
  readonly #closers: (() => void)[] = [];
  #cancelSweep: (() => void) | undefined;
  #isClosed = false;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
    this.#steps = new PodSteps(options);
  }

  /** Continues unfinished work; resolves when every pod was inspected once. */
  async start(): Promise<void> {
    const { engine, meter, pods } = this.#options;
    meter.clear();
    this.#closers.push(
      pods.onChange((id, change) => this.#noteChange(id, change)),
      engine.watch((id) => this.#wake(id)),
    );
    await this.#sweep();
  }

  /** Pods may have become reachable or unreachable. */
  noteMachines(): void {
    for (const { id } of this.#options.pods.all()) this.#wake(id);
  }

  /** Starts no more steps; a running one may be interrupted anywhere. */
  close(): void {
    this.#isClosed = true;
    this.#steps.close();
    this.#cancelSweep?.();
    for (const close of this.#closers.splice(0)) close();
    for (const loop of this.#loops.values()) loop.cancelTimer?.();
  }

  // --- which pods to process
  // ----------------------------------------------------------------------

  async #sweep(): Promise<void> {
    const { clock, log, meter, pods } = this.#options;
    // Even if no engine answers.
    this.#wakeUnreachable();
    try {
      const sight = meter.begin();
      await this.#compare(await this.#steps.call((engine) => engine.list()), sight);
      await pods.forgetGone();
    } catch (error) {
      if (!this.#isClosed) log.warn({ err: error }, 'listing containers failed, retrying');
    }
    if (!this.#isClosed) this.#cancelSweep = clock.after(SWEEP_MS, () => void this.#sweep());
  }

  #wakeUnreachable(): void {
    const { clock, findUnreachable, pods } = this.#options;
    for (const pod of pods.all()) {
      const unreachable = findUnreachable?.(pod);
      if (!unreachable) continue;
      if (noteUnreachable(pod, unreachable, clock.now()) !== pod) this.#wake(pod.id);
    }
  }

  async #compare(containers: Container[], sight: LastSight): Promise<void> {
    const { meter, pods } = this.#options;
    const seen = new Map(containers.map((container) => [container.id, container]));
    for (const pod of pods.all()) {
      const isWaiting = this.#loops.get(pod.id)?.cancelTimer !== undefined;
      const own = seen.get(pod.id);
      if (!isWaiting && this.#needsLook(pod, own, sight)) this.#wake(pod.id);
      else if (own?.state === 'running') meter.note(pod.id, own, sight);
    }
    for (const { id } of containers) if (!pods.get(id)) await this.#removeOrphan(id);
  }

  /**
   * A pod is forgotten only after its container is gone, so this container belonged to another
   * store, and its volumes may still be needed; or an interrupted call has created it after all.
   */
  async #removeOrphan(id: string): Promise<void> {
    const { log, pods } = this.#options;
    if (this.#isClosed) return;
    const volumes = pods.isGone(id) ? 'remove' : 'keep';
    try {
      // It may have been ending when it was listed.
      if (!(await this.#steps.call((engine) => engine.inspect(id)))) return;
      log.warn({ container: id, volumes }, 'removing container without a pod');
      await this.#steps.call((engine) => engine.remove(id, volumes));
    } catch (error) {
      if (!this.#isClosed) log.warn({ container: id, err: error }, 'removing container failed');
    }
  }

  #needsLook(pod: PodState, seen: Container | undefined, sight: LastSight): boolean {
    const { clock, findUnreachable, meter } = this.#options;
    const now = clock.now();
    if (findUnreachable?.(pod)) return false;
    const observed = observe(pod, seen, now);
    const isNew = observed !== pod || !isDeepStrictEqual(seen, this.#options.pods.seen(pod.id));
    if (meter.needsMeasuring(pod, seen, sight)) return true;
    return isNew || decideStep(observed, seen, now).kind !== 'none';
  }

  #noteChange(id: string, change: PodAspect): void {
    if (change === 'seen') return;
    this.#wake(id);
    const { pods } = this.#options;
    const pod = pods.get(id);
    const isWaiting = pod?.desired === 'running' && !isParked(pod);
    if (isWaiting || (pod && pod.gpus.length > 0)) return;
    // It may have released GPUs, or have been ahead of others that wait for some.
    for (const waiting of pods.all()) if (isWithoutGpus(waiting)) this.#wake(waiting.id);
  }

  #wake(id: string): void {
    if (this.#isClosed) return;
    const loop = this.#loops.get(id) ?? createLoop();
    this.#loops.set(id, loop);
    loop.isDirty = true;
    if (loop.isBusy) return;
    loop.cancelTimer?.();
    loop.cancelTimer = undefined;
    loop.isBusy = true;
    void this.#run(id, loop);
  }

  #wakeAfter(ms: number, id: string, loop: PodLoop): void {
    if (this.#isClosed) return;
    loop.cancelTimer = this.#options.clock.after(ms, () => this.#wake(id));
  }

  // --- processing one pod
  // -------------------------------------------------------------------------

  async #run(id: string, loop: PodLoop): Promise<void> {
    let waitMs: number | undefined;
    try {
      waitMs = await this.#settle(id, loop);
      loop.retries = 0;
    } catch (error) {
      waitMs = await this.#noteFailure(id, loop, error);
    }
    loop.isBusy = false;
    if (!this.#options.pods.get(id)) this.#loops.delete(id);
    else if (waitMs !== undefined) this.#wakeAfter(waitMs, id, loop);
  }

  /** Takes steps until none is left. @returns ms until the next one, if known */
  async #settle(id: string, loop: PodLoop): Promise<number | undefined> {
    const { clock, meter, pods } = this.#options;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      loop.isDirty = false;
      const known = pods.get(id);
      if (!known || this.#isClosed) return undefined;
      const unreachable = this.#options.findUnreachable?.(known);
      if (unreachable) {
        pods.noteSeen(id, undefined);
        await this.#steps.writeUnseen(id, (pod) => noteUnreachable(pod, unreachable, clock.now()));
        return undefined;
      }
      const sight = meter.begin();
      const seen = await this.#steps.call((engine) => engine.inspect(id));
      if (this.#isClosed) return undefined;
      pods.noteSeen(id, seen);
      const decide = (known: PodState) => observe(known, seen, clock.now());
      const pod = await this.#steps.writeSeen(id, { decide, seen, sight });
      if (!pod || this.#isClosed) return undefined;
      const step = decideStep(pod, seen, clock.now());
      if (step.kind === 'wait') {
        if (!loop.isDirty) return step.until - clock.now();
      } else if (!(await this.#steps.take(step, pod)) && !loop.isDirty) return undefined;
    }
    return undefined;
  }

  /** @returns ms until the next attempt */
  async #noteFailure(id: string, loop: PodLoop, error: unknown): Promise<number | undefined> {
    const { log } = this.#options;
    if (this.#isClosed) return undefined;
    loop.retries++;
    const isExpected = error instanceof EngineError;
    const level = isExpected ? (loop.retries === 1 ? 'warn' : 'debug') : 'error';
    log[level]({ pod: id, err: error }, 'pod step failed, retrying');
    const reason = isExpected ? error.message : 'the platform failed; it retries';
    try {
      await this.#steps.write(id, (pod) => noteDelay(pod, reason));
    } catch (storeError) {
      if (!this.#isClosed) log.warn({ pod: id, err: storeError }, 'storing a pod failed');
    }
    return backoffMs(loop.retries, RETRY_PACE);
  }
}

function createLoop(): PodLoop {
  return { isBusy: false, isDirty: false, retries: 0, cancelTimer: undefined };
}

function isWithoutGpus(pod: PodState): boolean {
  const { desired, gpus, spec } = pod;
  return desired === 'running' && spec.gpu !== undefined && gpus.length === 0 && !isParked(pod);
}
