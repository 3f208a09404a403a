// Whether another spare worker of an endpoint may start: remembers how the last ones ended. In memory only: after a restart, the
// platform tries once more.
import type { ScalerInput } from '../../wire/resources/scaling.ts';
import type { PodState } from '../pods/pod-state.ts';
import type { WorkLoad } from './work-view.ts';
import { CANNOT_PARK } from './worker-ends.ts';
import type { Observation } from './worker-list.ts';

/** No other one starts for so long after the first that failed, ms; it doubles with each further one up to MAX_PAUSE_MS. */
const FIRST_PAUSE_MS = 60_000;
const MAX_PAUSE_MS = 3_600_000;

interface Pass {
  now: number;
  observation: Observation;
  load: WorkLoad;
  /** Before the steps of the pass. */
  pods: readonly PodState[];
}

export class Spares {
  #pause: { reason: string; until: number } | undefined;
  #failures = 0;

  /** Why none starts now, as far as the earlier ones tell. */
  obstacleAt(now: number): string | undefined {
    return this.#pause && now < this.#pause.until ? this.#pause.reason : undefined;
  }

  /** Only a change of the endpoint helps. */
  get isFinal(): boolean {
    return this.#pause?.until === Number.POSITIVE_INFINITY;
  }

  /** The endpoint has another handler, template or GPU type. */
  forget(): void {
    this.#pause = undefined;
    this.#failures = 0;
  }

  learn({ load, now, observation, pods }: Pass): void {
    const spare = new Set(pods.flatMap(({ id, spare: isSpare }) => (isSpare ? [id] : [])));
    const canPark = load.workers.some(({ parking }) => (parking?.hostLimitBytes ?? 0) > 0);
    if (canPark && this.isFinal) this.forget();
    for (const { isCrash, podId, reason } of observation.ended) {
      // After a crash, no worker of the endpoint starts for a while.
      if (!spare.has(podId) || isCrash) continue;
      if (reason === CANNOT_PARK) {
        const why = 'the last spare worker could not be parked: its model offers no way';
        this.#pause = { reason: why, until: Number.POSITIVE_INFINITY };
      } else this.#fail(now, `the last spare worker has ended: ${reason}`);
    }
    for (const each of observation.parking) {
      if (each.step !== 'left' || !spare.has(each.podId)) continue;
      if (each.parked.bytes > 0) this.forget();
      else this.#fail(now, "the model of the last spare worker did not fit the host's memory");
    }
  }

  /** Those that still started had to end for jobs of others. */
  learnOfDrain({ now, workers }: ScalerInput, drain: readonly string[]): void {
    const isSpare = workers.some(({ id, parking }) => parking?.isStarting && drain.includes(id));
    if (isSpare) this.#fail(now, 'the last one gave its GPU to jobs of another endpoint');
  }

  #fail(now: number, reason: string): void {
    const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures, 30));
    this.#failures += 1;
    this.#pause = { reason, until: now + pauseMs };
  }
}
