// Stores the newest scaling decisions of each endpoint, so that they can be read and reproduced, and sums up a reconcile pass for
// the reason why jobs wait.
import { ChangeNumbers } from '../../base/change-numbers.ts';
import type { Container } from '../../engine/engine.ts';
import { ENDING, type Store, type StoredResource } from '../../store/store.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import {
  type DecisionRecord,
  decisionRecord,
  type ScalerDecision,
  type ScalerInput,
  type ScalingFacts,
} from '../../wire/resources/scaling.ts';
import { findPull, findWait, isParked } from '../pods/pod-lifecycle.ts';
import type { PodState } from '../pods/pod-state.ts';
import { cutPage, type PageBounds, Positions } from '../user-resources.ts';
import { isCheckPod } from './version-check.ts';
import type { WorkerCatalog } from './worker-starter.ts';

/** Least number of decisions kept for each endpoint. */
const KEPT = 200;
/** Older ones are removed in batches of this size. */
const PRUNED_AT_ONCE = 20;

interface DecisionListing extends PageBounds {
  endpointId: string;
  /** Only decisions with a smaller position: newest first. */
  before: number | undefined;
}

interface DecisionSource {
  endpointId: string;
  userId: string;
}

export class Decisions {
  /** By endpoint: counts its decisions. */
  readonly changes = new ChangeNumbers();
  readonly #store: Store;
  readonly #positions: Positions;
  /** Number added since the last removal, by endpoint. */
  readonly #added = new Map<string, number>();

  private constructor(store: Store, positions: Positions) {
    this.#store = store;
    this.#positions = positions;
  }

  static async open(store: Store): Promise<Decisions> {
    const [last] = await store.read((tx) => tx.resources({ kind: 'decision', limit: 1 }));
    return new Decisions(store, new Positions(last?.position ?? 0));
  }

  async add({ endpointId, userId }: DecisionSource, decision: DecisionRecord): Promise<void> {
    const position = this.#positions.next(Date.parse(decision.at));
    const own = { kind: 'decision', parent: endpointId } as const;
    const stored = { ...own, id: `${endpointId}/${position}`, userId, position };
    const prunes = this.#isPruneDue(endpointId);
    await this.#store.write((tx) => {
      const endpoint = tx.endpoint(endpointId);
      if (!endpoint || endpoint.deleted) return;
      const older = prunes ? tx.resources({ ...own, limit: KEPT + PRUNED_AT_ONCE }) : [];
      tx.putResource({ ...stored, body: JSON.stringify(decision) });
      for (const { id } of older.slice(KEPT - 1)) tx.removeResource({ kind: 'decision', id });
    }, ENDING);
    this.changes.note(endpointId);
  }

  /** Also due at the first one, because the number of stored ones is unknown then. */
  #isPruneDue(endpointId: string): boolean {
    const added = this.#added.get(endpointId) ?? PRUNED_AT_ONCE - 1;
    this.#added.set(endpointId, (added + 1) % PRUNED_AT_ONCE);
    return added + 1 >= PRUNED_AT_ONCE;
  }

  async last(endpointId: string): Promise<DecisionRecord | undefined> {
    const { decisions } = await this.list({ endpointId, before: undefined, limit: 1 });
    return decisions[0];
  }

  /** `next` is the position of the next page, if there is one. */
  async list({ before, endpointId, ...bounds }: DecisionListing): Promise<{
    decisions: DecisionRecord[];
    next: number | undefined;
  }> {
    const stored = await this.#store.read((tx) =>
      tx.resources({ kind: 'decision', parent: endpointId, before, limit: bounds.limit + 1 }),
    );
    const positionOf = ({ position }: StoredResource) => position;
    const show = ({ body }: StoredResource) => decisionRecord.parse(JSON.parse(body));
    const { next, records } = cutPage({ ...bounds, wanted: stored, positionOf, show });
    return { decisions: records, next };
  }
}

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
  const workers = pods.filter(
    (pod) => pod.desired !== 'gone' && !isCheckPod(pod, deployment) && !isParked(pod) && !pod.spare,
  );
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
  const starting = pods.filter(
    (pod) => pod.desired === 'running' && !notStarting.has(pod.id) && !isParked(pod),
  );
  const [first] = starting.sort((a, b) => a.createdAt - b.createdAt);
  if (!first) return null;
  const { createdAt: since, id: podId, reason } = first;
  const wait = findWait(seen(podId));
  return {
    podId,
    since,
    reason,
    isPulling: findPull(first) !== undefined || wait === 'image',
    ...(first.parked && { isWaking: true as const }),
    ...(wait === 'capacity' && { lacksRoom: true as const }),
  };
}
