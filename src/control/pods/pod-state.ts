// Schema of a pod's stored state, JSON in the store, and what that says of the use of volumes and registries.
// pod-lifecycle.ts decides the transitions.
import { z } from 'zod';
import type { StoredResource } from '../../store/store.ts';
import { podKubernetes } from '../../wire/engine/kubernetes.ts';
import { storedShape } from '../../wire/resources/field-schemas.ts';
import { POD_FIELDS } from '../../wire/resources/fields.ts';
import {
  cpuConfig,
  gpuConfig,
  POD_STATUSES,
  podMounts,
  workerEvent,
} from '../../wire/resources/pod.ts';
import {
  openVariables,
  type SecretSealer,
  sealVariables,
  storedVariables,
  unopenedVariables,
} from '../registries/sealed-secret.ts';
import { meterState } from './pod-meter.ts';

/** The request, completed by template and defaults. */
const podSpec = z.object({
  ...storedShape(POD_FIELDS),
  /** Process engine: the worker's handler module. */
  handler: z.string().nullable(),
  /** The version of the handler that the worker fetches. Default: none. */
  version: z.int().exactOptional(),
  env: z.record(z.string(), z.string()),
  /** Only in memory. */
  unopened: unopenedVariables.exactOptional(),
  kubernetes: podKubernetes.exactOptional(),
  mounts: podMounts,
  gpu: gpuConfig.exactOptional(),
  cpu: cpuConfig.exactOptional(),
  templateVersion: z.int().nullable(),
});
export type PodSpec = z.infer<typeof podSpec>;

/** All times are Unix ms. */
const podState = z.object({
  id: z.string(),
  userId: z.string(),
  /** The endpoint that it is a worker of. */
  endpointId: z.string().nullable(),
  /** Node on whose machine it runs. Default: the only one, or no node has its container yet. */
  node: z.string().exactOptional(),
  /** Its node is gone: its container cannot be inspected. `since`: Unix ms. */
  unreachable: z.object({ since: z.number(), why: z.string() }).exactOptional(),
  /** Why its container is going to end, or has ended, without a stop and without a fault. Absent: nothing is known of that. */
  leaving: z.string().exactOptional(),
  spec: podSpec,
  status: z.enum(POD_STATUSES),
  desired: z.enum(['running', 'stopped', 'gone']),
  /** Number of its current container; a new one has a new disk. */
  generation: z.int().min(1),
  /** A stop was requested and the container has not been seen stopped: its exit is not unclean. */
  stopping: z.boolean(),
  /** Start time of the last run whose end is handled; 0 if unknown. */
  endedRun: z.number().nullable(),
  /** For a worker on an engine with state volumes: number of its volume. */
  stateSlot: z.int().min(0).exactOptional(),
  /** UUIDs of its GPUs. */
  gpus: z.array(z.string()),
  /**
   * Its worker has left the GPUs, and may come back to them. It still has this when it has got them back, until the worker is
   * ready. Absent: its worker is not parked.
   */
  parked: z
    .object({
      since: z.number(),
      /** UUIDs. */
      gpus: z.array(z.string()),
      /** Memory that the GPUs got back. */
      bytes: z.number(),
    })
    .exactOptional(),
  /** Its worker starts to be parked at once. Absent: it does not, or it is parked or needed by now. */
  spare: z.literal(true).exactOptional(),
  /** Events of its worker, the oldest first; worker-timeline.ts adds them. Absent: none. */
  timeline: z.array(workerEvent.extend({ at: z.number() })).exactOptional(),
  /** Unclean exits in a row. */
  failures: z.int().min(0),
  /** Of the last unclean exit. */
  exitCode: z.int().nullable().exactOptional(),
  /** No start before this time. */
  retryAt: z.number().nullable(),
  /** For people; null without a reason. */
  reason: z.string().nullable(),
  /** Its container and own volumes are removed: only the record is left. */
  removed: z.boolean(),
  /** What is billed of its container. */
  meter: meterState,
  createdAt: z.number(),
  /** When its container last started. */
  startedAt: z.number().nullable(),
  /** When it became EXITED, ERROR or TERMINATED. */
  endedAt: z.number().nullable(),
});
export type PodState = z.infer<typeof podState>;

const storedPod = podState.extend({ spec: podSpec.extend({ env: storedVariables }) });

/** @throws ZodError if it is not a pod */
export function readPod({ body }: Pick<StoredResource, 'body'>, sealer: SecretSealer): PodState {
  const pod = storedPod.parse(JSON.parse(body));
  const { id, spec, userId } = pod;
  const opened = openVariables(sealer, spec.env, { kind: 'pod', userId, id });
  return { ...pod, spec: { ...spec, ...opened } };
}

/** The body that `readPod` reads. */
export function writePod(pod: PodState, sealer: SecretSealer): string {
  const { id, userId } = pod;
  const { unopened: _unopened, ...spec } = pod.spec;
  const env = sealVariables(sealer, pod.spec, { kind: 'pod', userId, id });
  return JSON.stringify({ ...pod, spec: { ...spec, env } });
}

/** The part of a pod that shows what it uses. */
export type PodUse = Pick<PodState, 'id' | 'userId' | 'endpointId' | 'status'> & {
  spec: Pick<PodState['spec'], 'mounts' | 'name' | 'registry'>;
};

/** Pods that a refusal lists. */
const MAX_LISTED = 10;

/** `volume`, `vol_…`, pods: `pods pod_… (RUNNING) and pod_… use the volume vol_…`. */
export function describeUses(noun: string, id: string, pods: readonly PodUse[]): string {
  const listed = pods.slice(0, MAX_LISTED).map(({ endpointId, id: pod, status }) => {
    const of = endpointId === null ? '' : `, worker of endpoint ${endpointId}`;
    return `${pod} (${status}${of})`;
  });
  const more = pods.length > MAX_LISTED ? ` and ${pods.length - MAX_LISTED} more` : '';
  const subject = pods.length === 1 ? 'the pod' : 'the pods';
  const verb = pods.length === 1 ? 'uses' : 'use';
  return `${subject} ${listed.join(', ')}${more} ${verb} the ${noun} ${id}; ${describeRemedy(pods)} first`;
}

/** A worker is not terminated by hand: its endpoint would start another one. */
function describeRemedy(pods: readonly PodUse[]): string {
  const workers = pods.filter(({ endpointId }) => endpointId !== null).length;
  const [pod, endpoint] = pods.length === 1 ? ['it', 'its endpoint'] : ['them', 'their endpoints'];
  if (workers === 0) return `terminate ${pod}`;
  if (workers === pods.length) return `change or delete ${endpoint}`;
  return 'terminate the pods, and change or delete the endpoints of the workers,';
}
