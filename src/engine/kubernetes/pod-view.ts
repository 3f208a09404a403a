// Translates a container's Secret and Pod into the seam's view of a container, and the figures of metrics.k8s.io into its use
// of resources. Pure.
import { hash } from 'node:crypto';
import { z } from 'zod';
import { limitText } from '../../base/text/printable.ts';
import {
  type Container,
  type ContainerStats,
  type ContainerWait,
  MAX_ENGINE_TEXT_CHARS,
  toShare,
} from '../engine.ts';
import { CONTAINER } from './manifests.ts';
import { type RecordedEnd, readEnd, readSpec } from './names.ts';

/** A text for people, cut. */
export const boundedText = z.string().transform((text) => limitText(text, MAX_ENGINE_TEXT_CHARS));

const metadata = z.object({
  name: z.string(),
  uid: z.string(),
  resourceVersion: z.string().optional(),
  labels: z.record(z.string(), z.string()).optional(),
  annotations: z.record(z.string(), z.string()).optional(),
  creationTimestamp: z.string().optional(),
  deletionTimestamp: z.string().optional(),
});

/** Any object of which only the metadata counts. */
export const objectAnswer = z.object({ metadata });
/** Kubernetes 1.20 answers null for an empty list of metadata. */
export const objectList = z.object({
  items: z.nullable(z.array(objectAnswer)).transform((items) => items ?? []),
});

const containerState = z.object({
  waiting: z.object({ reason: z.string().optional(), message: boundedText.optional() }).optional(),
  running: z.object({ startedAt: z.string().nullish() }).optional(),
  terminated: z
    .object({
      exitCode: z.int(),
      reason: z.string().optional(),
      message: boundedText.optional(),
      startedAt: z.string().nullish(),
      finishedAt: z.string().nullish(),
    })
    .optional(),
});

export const podAnswer = z.object({
  metadata,
  spec: z.object({ nodeName: z.string().optional() }).optional(),
  status: z
    .object({
      phase: z.string().optional(),
      reason: z.string().optional(),
      message: boundedText.optional(),
      podIP: z.string().optional(),
      conditions: z
        .array(
          z.object({
            type: z.string(),
            status: z.string(),
            reason: z.string().optional(),
            message: boundedText.optional(),
          }),
        )
        .optional(),
      containerStatuses: z
        .array(z.object({ name: z.string(), state: containerState.optional() }))
        .optional(),
    })
    .optional(),
});
export const podList = z.object({
  metadata: z.object({ resourceVersion: z.string().optional() }).optional(),
  items: z.array(podAnswer),
});
export type KubePod = z.infer<typeof podAnswer>;
export type KubeObject = z.infer<typeof objectAnswer>;

/** Exit codes of containers that the kubelet or the cluster ended: nobody saw another code. */
const KILLED = 137;
const TERMINATED = 143;
const NOT_FOUND = 127;
/** Beyond the grace period of a deleted Pod. */
const LOST_AFTER_MS = 60_000;
/** The kubelet's reasons for a container that could not start. */
const START_FAILURES = new Set(['StartError', 'ContainerCannotRun']);
const NO_COMMAND = /no such file|not found|permission denied|exec format/i;

/**
 * `record`: the container's Secret; undefined if only a Pod is left of it. `pod`: the Pod of the same name. Undefined
 * for objects that this platform has not made.
 */
export function viewContainer(
  platform: string,
  { pod, record }: { record: KubeObject | undefined; pod: KubePod | undefined },
  now: number,
): Container | undefined {
  const source = record ?? pod;
  const spec = source && readSpec(platform, source.metadata);
  if (!spec) return undefined;
  const { generation, gpus, id, labels } = spec;
  const run = readRun(record && readEnd(record.metadata), pod, now);
  const ip = pod?.status?.podIP ?? null;
  const isReachable = run.state === 'running' && ip !== null;
  return {
    id,
    generation,
    labels,
    gpus,
    health: 'none',
    hasDiskLimit: true,
    ...run,
    ports: isReachable
      ? spec.ports.map(({ private: port, protocol }) => ({
          private: port,
          public: port,
          type: protocol,
          ip,
        }))
      : [],
    // Pods of one user have no network of their own.
    ip: null,
  };
}

type ContainerRun = Pick<
  Container,
  | 'state'
  | 'exitCode'
  | 'outOfMemory'
  | 'startedAt'
  | 'endedAt'
  | 'waiting'
  | 'endReason'
  | 'leaving'
>;

const NEVER: ContainerRun = {
  state: 'created',
  exitCode: null,
  outOfMemory: false,
  startedAt: null,
  endedAt: null,
};

function readRun(
  end: RecordedEnd | undefined,
  pod: KubePod | undefined,
  now: number,
): ContainerRun {
  // While its Pod is there, only the Pod counts.
  if (end && !pod) {
    const { endedAt, exitCode, startedAt } = end;
    return { ...NEVER, state: 'exited', exitCode, startedAt, endedAt };
  }
  if (!pod) return NEVER;
  const startedAt = findStart(pod);
  if (isLost(pod, now)) return describeLoss(pod, startedAt);
  // Somebody else deletes it. It runs until it is gone, and then it is lost: it has not ended by itself.
  if (pod.metadata.deletionTimestamp !== undefined) {
    const leaving = findDisruption(pod) ?? 'somebody deleted its Pod';
    return { ...NEVER, state: 'running', startedAt: hasStarted(pod) ? startedAt : null, leaving };
  }
  const leaving = findDisruption(pod);
  const disrupted = leaving === undefined ? {} : { leaving };
  if (hasEnded(pod)) {
    const end = readPodEnd(pod, startedAt);
    return { ...NEVER, state: 'exited', startedAt, ...end, ...disrupted };
  }
  if (mainState(pod)?.running) return { ...NEVER, state: 'running', startedAt, ...disrupted };
  return { ...NEVER, state: 'starting', ...describeWait(pod) };
}

/**
 * Its time to end is long over, and no kubelet has said that it ended: its node does not answer any more. A kubelet that
 * runs kills the processes of a Pod when the time is over. `now`: of the cluster, because a platform whose clock is ahead
 * would forget Pods that still end.
 */
export function isLost({ metadata }: KubePod, now: number): boolean {
  const { deletionTimestamp } = metadata;
  // Kubernetes sets it to the end of the grace period.
  return deletionTimestamp !== undefined && now - Date.parse(deletionTimestamp) >= LOST_AFTER_MS;
}

function describeLoss(pod: KubePod, startedAt: number): ContainerRun {
  const startOrNever = hasStarted(pod) ? startedAt : null;
  const endedAt = Math.max(startedAt, Date.parse(pod.metadata.deletionTimestamp ?? ''));
  const leaving = 'its node does not answer any more';
  const ended = { state: 'exited', exitCode: KILLED, endedAt, endReason: leaving } as const;
  return { ...NEVER, ...ended, leaving, startedAt: startOrNever };
}

/** What the cluster says when it is going to end a Pod: a drain of its node, a preemption, a taint. */
function findDisruption({ status }: KubePod): string | undefined {
  const found = status?.conditions?.find(({ type }) => type === 'DisruptionTarget');
  if (found?.status !== 'True') return undefined;
  return `the cluster ends it: ${found.message || found.reason || 'it gives no reason'}`;
}

export function hasEnded(pod: KubePod): boolean {
  const { phase } = pod.status ?? {};
  return phase === 'Succeeded' || phase === 'Failed' || mainState(pod)?.terminated !== undefined;
}

/** Its process has been started. */
export function hasStarted(pod: KubePod): boolean {
  const state = mainState(pod);
  return state?.running !== undefined || state?.terminated !== undefined;
}

/**
 * Kubernetes counts in seconds, and a second run may begin in the second in which the first one did: the milliseconds
 * come from the Pod's UID.
 */
export function findStart(pod: KubePod): number {
  const state = mainState(pod);
  const known = state?.running?.startedAt ?? state?.terminated?.startedAt;
  const at = Date.parse(known ?? pod.metadata.creationTimestamp ?? '');
  const ms = Number.parseInt(hash('sha256', pod.metadata.uid, 'hex').slice(0, 8), 16) % 1_000;
  return (Number.isNaN(at) ? 0 : at) + ms;
}

function readPodEnd(pod: KubePod, startedAt: number): Partial<ContainerRun> {
  const ended = mainState(pod)?.terminated;
  const { message, reason } = pod.status ?? {};
  const at = Date.parse(ended?.finishedAt ?? '');
  const endedAt = Math.max(startedAt, Number.isNaN(at) ? startedAt : at);
  const isEvicted = reason !== undefined && reason !== 'DeadlineExceeded' && reason !== 'Error';
  const endReason = isEvicted ? `the cluster ended it: ${message ?? reason}` : undefined;
  const said = { endedAt, ...(endReason !== undefined && { endReason }) };
  if (!ended) {
    return { ...said, exitCode: reason === 'DeadlineExceeded' ? TERMINATED : KILLED };
  }
  const isUnstartable = START_FAILURES.has(ended.reason ?? '');
  const hasNoCommand = isUnstartable && NO_COMMAND.test(ended.message ?? '');
  return {
    ...said,
    exitCode: hasNoCommand ? NOT_FOUND : ended.exitCode,
    outOfMemory: ended.reason === 'OOMKilled',
    ...(isUnstartable && { endReason: `its command cannot be started: ${ended.message}` }),
  };
}

const IMAGE_TROUBLE = new Set([
  ...['ErrImagePull', 'ImagePullBackOff', 'InvalidImageName', 'ErrImageNeverPull'],
  ...['ImageInspectError', 'RegistryUnavailable'],
]);
/** No later attempt can succeed. */
const NO_SUCH_IMAGE =
  /not found|manifest unknown|no such image|denied|unauthorized|authentication required|forbidden|invalid reference|no matching manifest/i;
/** An unreachable registry, in words that also match some of the above. */
const NO_REGISTRY = /dial tcp|lookup|no such host|connection refused|timeout|TLS|toomanyrequests/i;

function describeWait(pod: KubePod): { waiting?: ContainerWait } {
  const scheduled = pod.status?.conditions?.find(({ type }) => type === 'PodScheduled');
  if (scheduled?.status === 'False' && scheduled.reason === 'Unschedulable') {
    const message = `the cluster has no capacity for it: ${scheduled.message ?? 'no reason'}`;
    return { waiting: { cause: 'capacity', message, isFinal: false } };
  }
  const { message = '', reason = '' } = mainState(pod)?.waiting ?? {};
  if (IMAGE_TROUBLE.has(reason)) {
    const isFinal =
      reason === 'InvalidImageName' || (NO_SUCH_IMAGE.test(message) && !NO_REGISTRY.test(message));
    return {
      waiting: {
        cause: 'image',
        message: `its image cannot be pulled: ${message || reason}`,
        isFinal,
      },
    };
  }
  if (reason === '' || reason === 'ContainerCreating' || reason === 'PodInitializing') return {};
  const detail = `its container is not created: ${message || reason}`;
  return { waiting: { cause: 'other', message: detail, isFinal: false } };
}

function mainState({ status }: KubePod) {
  return status?.containerStatuses?.find(({ name }) => name === CONTAINER)?.state;
}

const BYTES_PER_GB = 1_073_741_824;

export const usageAnswer = z.object({
  containers: z.array(
    z.object({ name: z.string(), usage: z.object({ cpu: z.string(), memory: z.string() }) }),
  ),
});

/** Shares of the limits; undefined if the figures are not there yet. GPUs are not measured: the cluster does not tell which ones it gave. */
export function measureUsage(
  { containers }: z.infer<typeof usageAnswer>,
  limits: { vcpus: number; memoryGb: number },
): ContainerStats | undefined {
  const usage = containers.find(({ name }) => name === CONTAINER)?.usage;
  const cpu = readQuantity(usage?.cpu ?? '');
  const memory = readQuantity(usage?.memory ?? '');
  if (cpu === undefined || memory === undefined) return undefined;
  return {
    cpu: toShare(cpu / limits.vcpus),
    memory: toShare(memory / (limits.memoryGb * BYTES_PER_GB)),
    gpus: [],
  };
}

const UNITS: Readonly<Record<string, number>> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  '': 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
};

/** A quantity of Kubernetes, such as 250m, 1500n or 64Mi; undefined for another form. */
export function readQuantity(text: string): number | undefined {
  const [, number, unit = ''] = /^([0-9.]+)([a-zA-Z]*)$/.exec(text) ?? [];
  const factor = UNITS[unit];
  if (number === undefined || factor === undefined) return undefined;
  const value = Number(number) * factor;
  return Number.isFinite(value) ? value : undefined;
}
