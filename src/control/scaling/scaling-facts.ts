// Sums up a reconcile pass for the reason why jobs wait. Pure.
import type { Container } from '../../engine/engine.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import type { ScalerDecision, ScalerInput, ScalingFacts } from '../../wire/resources/scaling.ts';
import { findPull, findWait } from '../pods/pod-lifecycle.ts';
import type { PodState } from '../pods/pod-state.ts';
import { isCheckPod } from './version-check.ts';
import type { WorkerCatalog } from './worker-starter.ts';

interface ScalingPass {
  deployment: EndpointDeployment;
  input: ScalerInput;
  decision: ScalerDecision;
  /** Pods of the endpoint after the pass, check workers included. */
  pods: readonly PodState[];
  /** The engine's view of a pod's container. */
  seen: (podId: string) => Container | undefined;
  catalog: Pick<WorkerCatalog, 'priceOf'>;
  /** Those of the pass before. */
  before: ScalingFacts | undefined;
}

export function describeScaling(pass: ScalingPass): ScalingFacts {
  const { before, decision, deployment, input, pods } = pass;
  const { cause, reason } = decision;
  const { crashes, now } = input;
  const { notBefore, streak, isHandler = false } = crashes;
  const workers = pods.filter((pod) => pod.desired !== 'gone' && !isCheckPod(pod, deployment));
  return {
    workersMax: deployment.workersMax,
    workers: workers.length,
    costPerHour: workers.reduce((sum, { spec }) => sum + pass.catalog.priceOf(spec), 0),
    unversioned: describeMissingVersion(deployment),
    cause,
    reason,
    since: before?.cause === cause ? before.since : now,
    crashes: { streak, notBefore, isHandler, reason: crashes.reason },
    starting: findStarting(input, pods, pass.seen),
  };
}

function describeMissingVersion({
  rollout,
  source,
  version,
}: EndpointDeployment): ScalingFacts['unversioned'] {
  if (source !== 'VERSION' || version !== undefined) return null;
  if (!rollout) return { rollout: null };
  const { reason, state } = rollout;
  return { rollout: { version: rollout.version, isFailed: state === 'FAILED', reason } };
}

/** Pods that the pass has started are no workers of its input yet. */
function findStarting(
  { workers }: ScalerInput,
  pods: readonly PodState[],
  seen: ScalingPass['seen'],
): ScalingFacts['starting'] {
  const notStarting = new Set(
    workers.filter(({ state }) => state !== 'starting').map(({ id }) => id),
  );
  const starting = pods.filter(({ desired, id }) => desired === 'running' && !notStarting.has(id));
  const [first] = starting.sort((a, b) => a.createdAt - b.createdAt);
  if (!first) return null;
  const { createdAt: since, id: podId, reason } = first;
  const wait = findWait(seen(podId));
  return {
    podId,
    since,
    reason,
    isPulling: findPull(first) !== undefined || wait === 'image',
    ...(wait === 'capacity' && { lacksRoom: true as const }),
  };
}
