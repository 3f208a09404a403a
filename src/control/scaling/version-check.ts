// Carries out the rollout of a version, one step in each reconcile pass: starts the check worker, makes room for it,
// and stores what versions/rollout.ts decides.
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { EndpointDeployment, StoredRollout } from '../../wire/resources/endpoint.ts';
import type { ScalerInput } from '../../wire/resources/scaling.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { PodState, Pods } from '../pods/pods.ts';
import {
  type CheckVerdict,
  candidateOf,
  failCheck,
  failRoll,
  hasRollFailed,
  judgeCheck,
  noteProgress,
  passCheck,
} from '../versions/rollout.ts';
import { findPodFault } from './worker-ends.ts';
import type { DeployedEndpoint } from './workforce.ts';

export interface VersionCheckOptions {
  endpoints: Pick<Endpoints, 'changeDeployment'>;
  clock: Clock;
  log: Log;
  pods: Pick<Pods, 'endWorker'>;
}

/** What the pass has found out besides. */
interface CheckPass {
  checkPods: readonly PodState[];
  /** The other pods whose workers crashed since the last pass. */
  crashed: readonly PodState[];
  /** Pods whose workers are connected. */
  connected: ReadonlySet<string | null>;
  /** Of the other workers. */
  input: ScalerInput;
  /** Starts the check worker. */
  start: () => Promise<void>;
  drain: (podId: string) => Promise<void>;
  /** The end of a worker's output, as one line. */
  readLastOutput: (podId: string) => Promise<string | undefined>;
}

/** The pods of a rollout's check worker. Those of an earlier rollout are ordinary, outdated workers. */
export function isCheckPod(pod: PodState, deployment: EndpointDeployment): boolean {
  const candidate = candidateOf(deployment);
  if (candidate === undefined || pod.spec.version !== candidate) return false;
  return pod.createdAt >= Date.parse(deployment.rollout?.startedAt ?? '');
}

export class VersionCheck {
  readonly #options: VersionCheckOptions;
  /** Why the last check worker could not be created; for the rollout that began then. */
  #failure: { startedAt: string; why: string } | undefined;
  /** Failures of this version's workers since the rollout began; a restart of the platform resets them. */
  #crashes = { startedAt: '', count: 0 };

  constructor(options: VersionCheckOptions) {
    this.#options = options;
  }

  async advance(endpoint: DeployedEndpoint, pass: CheckPass): Promise<void> {
    const { rollout } = endpoint.deployment;
    if (!rollout || (rollout.state !== 'CHECKING' && rollout.state !== 'ROLLING')) return;
    if (rollout.state === 'ROLLING') return this.#roll(endpoint, rollout, pass);
    const [pod] = pass.checkPods;
    const fault = pod && findPodFault(pod);
    const verdict = judgeCheck({
      rollout,
      now: this.#options.clock.now(),
      worker: pod && { podId: pod.id, isConnected: pass.connected.has(pod.id), fault },
      obstacle: this.#findObstacle(rollout, pass.input),
    });
    await this.#carryOut(verdict, endpoint, { ...pass, pod });
  }

  async #roll(
    endpoint: DeployedEndpoint,
    { startedAt, version }: StoredRollout,
    pass: CheckPass,
  ): Promise<void> {
    const { crashes, workers } = pass.input;
    if (this.#crashes.startedAt !== startedAt) this.#crashes = { startedAt, count: 0 };
    this.#crashes.count += pass.crashed.filter(
      (pod) => pod.spec.version === version && pod.createdAt >= Date.parse(startedAt),
    ).length;
    const ready = workers.filter(({ isCurrent, state }) => isCurrent && state === 'ready').length;
    const { count } = this.#crashes;
    if (!hasRollFailed({ crashes: count, ready })) {
      return this.#noteProgress(endpoint, pass, null);
    }
    const why = crashes.reason === null ? '' : `: ${crashes.reason}`;
    const detailed = `its workers crashed ${count} times after the first one had connected${why}`;
    const reason = shortenPaths(detailed, endpoint);
    const now = this.#options.clock.now();
    await this.#change(endpoint, (deployment) => failRoll(deployment, { now, reason }));
    const { id } = endpoint;
    this.#options.log.warn({ endpoint: id, version, reason }, 'version failed, going back');
  }

  async #carryOut(
    verdict: CheckVerdict,
    endpoint: DeployedEndpoint,
    pass: CheckPass & { pod: PodState | undefined },
  ): Promise<void> {
    const { id } = endpoint;
    const { version } = endpoint.deployment.rollout ?? {};
    switch (verdict.step) {
      case 'start':
        return this.#start(endpoint, pass);
      case 'wait':
        if (!pass.pod && verdict.reason !== null) await makeRoom(pass);
        return this.#noteProgress(endpoint, pass, verdict.reason);
      case 'pass':
        await this.#change(endpoint, passCheck);
        this.#options.log.info({ endpoint: id, version }, 'version loaded, replacing workers');
        return;
      case 'fail':
        return this.#fail(endpoint, verdict.reason, pass);
    }
  }

  async #start(endpoint: DeployedEndpoint, pass: CheckPass): Promise<void> {
    const { rollout } = endpoint.deployment;
    if (!rollout) return;
    try {
      await pass.start();
      this.#failure = undefined;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (!(error instanceof ProblemError)) throw error;
      // Capacity may become free; anything else stays wrong.
      if (error.code !== 'over_capacity') return this.#fail(endpoint, why, pass);
      this.#failure = { startedAt: rollout.startedAt, why };
    }
  }

  #findObstacle(rollout: StoredRollout, { headroom, places }: ScalerInput): string | undefined {
    if (places === 0) return "no GPU of the endpoint's types is free";
    if (headroom?.places === 0) return `the machine is full: ${headroom.shortage}`;
    const failure = this.#failure;
    if (failure?.startedAt !== rollout.startedAt) return undefined;
    // The next pass tries again.
    this.#failure = undefined;
    return failure.why;
  }

  async #fail(
    endpoint: DeployedEndpoint,
    fault: string,
    { checkPods, readLastOutput }: CheckPass,
  ): Promise<void> {
    const { clock, log, pods } = this.#options;
    const [pod] = checkPods;
    // Before the pod is ended: its log is removed with the container.
    const output = pod && (await readLastOutput(pod.id));
    const detailed = output === undefined ? fault : `${fault}: ${output}`;
    const reason = shortenPaths(detailed, endpoint);
    const now = clock.now();
    await this.#change(endpoint, (deployment) => failCheck(deployment, { now, reason }));
    const { version } = endpoint.deployment.rollout ?? {};
    log.warn({ endpoint: endpoint.id, version, reason }, 'version did not load');
    for (const { id } of checkPods) await pods.endWorker(id);
  }

  async #noteProgress(
    endpoint: DeployedEndpoint,
    { input }: CheckPass,
    why: string | null,
  ): Promise<void> {
    const { clock } = this.#options;
    const isRolling = endpoint.deployment.rollout?.state === 'ROLLING';
    const { crashes, workers } = input;
    const count = (isCurrent: boolean, state: string) =>
      workers.filter((worker) => worker.isCurrent === isCurrent && worker.state === state).length;
    const outdated = isRolling ? count(false, 'ready') + count(false, 'starting') : workers.length;
    const progress = {
      now: clock.now(),
      ready: isRolling ? count(true, 'ready') : 0,
      starting: isRolling ? count(true, 'starting') : 0,
      outdated,
      draining: isRolling ? workers.filter(({ state }) => state === 'draining').length : 0,
      reason: isRolling && crashes.streak > 0 ? crashes.reason : why,
    };
    const change = (deployment: EndpointDeployment) => noteProgress(deployment, progress);
    // Most passes change nothing, and a write is a commit.
    if (isDeepStrictEqual(change(endpoint.deployment), endpoint.deployment)) return;
    const after = await this.#change(endpoint, change);
    if (after.rollout?.state !== 'DONE') return;
    const { version } = after;
    this.#options.log.info({ endpoint: endpoint.id, version }, 'deployment finished');
  }

  /** Changes nothing if another deployment has begun meanwhile. */
  #change(
    { deployment: seen, id }: DeployedEndpoint,
    change: (deployment: EndpointDeployment) => EndpointDeployment,
  ): Promise<EndpointDeployment> {
    return this.#options.endpoints.changeDeployment(id, (deployment) => {
      const isSame =
        deployment.rollout?.startedAt === seen.rollout?.startedAt &&
        deployment.rollout?.version === seen.rollout?.version;
      return isSame ? change(deployment) : deployment;
    });
  }
}

/** Paths as the author knows them, without the folder of the worker's cache. */
function shortenPaths(text: string, { deployment, id }: DeployedEndpoint): string {
  const folder = `/${id}-${deployment.rollout?.version}-`;
  return text
    .split(' ')
    .map((word) => {
      const [, ...parts] = word.split(folder);
      return parts.length === 0 ? word : parts.join(folder).replace(/^[0-9a-f]+\/files\//, '');
    })
    .join(' ');
}

/** One worker at a time, the least useful first. */
async function makeRoom({ drain, input: { workers } }: CheckPass): Promise<void> {
  if (workers.some(({ state }) => state === 'draining')) return;
  const [chosen] = workers.toSorted(
    (a, b) => a.jobs - b.jobs || Number(a.state === 'ready') - Number(b.state === 'ready'),
  );
  if (chosen) await drain(chosen.id);
}

/** Keeps a place for the check worker of a new version: the scaler decides as if it were taken. */
export function reservePlace(input: ScalerInput): ScalerInput {
  const { gpus, headroom, places } = input;
  const one = (count: number) => Math.max(0, count - 1);
  // The check worker gets the first type that has a free GPU.
  const first = gpus?.findIndex(({ free }) => free > 0);
  return {
    ...input,
    places: places === null ? null : one(places),
    ...(headroom && { headroom: { ...headroom, places: one(headroom.places) } }),
    ...(gpus && {
      gpus: gpus.map((gpu, index) => (index === first ? { ...gpu, free: gpu.free - 1 } : gpu)),
    }),
  };
}
