// Sums up a reconcile pass for the reason why jobs wait. Pure.
import type { ScalerDecision, ScalerInput } from '../../wire/resources/decision.ts';
import type { ScalingFacts } from '../../wire/resources/scaling-facts.ts';
import { findPull } from '../pods/pod-lifecycle.ts';
import type { PodState } from '../pods/pod-state.ts';

export interface ScalingPass {
  input: ScalerInput;
  decision: ScalerDecision;
  /** Pods of the endpoint after the pass. */
  pods: readonly PodState[];
  /** Those of the pass before. */
  before: ScalingFacts | undefined;
}

export function describeScaling({ before, decision, input, pods }: ScalingPass): ScalingFacts {
  const { cause, reason } = decision;
  const { crashes, now, workersMax } = input;
  const { notBefore, streak, isHandler = false } = crashes;
  return {
    ...{ workersMax, workers: pods.filter(({ desired }) => desired !== 'gone').length },
    ...{ cause, reason, since: before?.cause === cause ? before.since : now },
    crashes: { streak, notBefore, isHandler, reason: crashes.reason },
    starting: findStarting(input, pods),
  };
}

/** Pods that the pass has started are no workers of its input yet. */
function findStarting(
  { workers }: ScalerInput,
  pods: readonly PodState[],
): ScalingFacts['starting'] {
  const notStarting = new Set(
    workers.filter(({ state }) => state !== 'starting').map(({ id }) => id),
  );
  const starting = pods.filter(({ desired, id }) => desired === 'running' && !notStarting.has(id));
  const [first] = starting.sort((a, b) => a.createdAt - b.createdAt);
  if (!first) return null;
  const { createdAt: since, id: podId, reason } = first;
  return { podId, since, isPulling: findPull(first) !== undefined, reason };
}
