// What is kept of a pod, as JSON in the store. What may follow what is in pod-lifecycle.ts.
import { z } from 'zod';
import {
  cpuConfig,
  gpuConfig,
  POD_STATUSES,
  podCloud,
  podMounts,
} from '../../wire/resources/pod.ts';

/** What was asked for, with all that the template and the defaults gave. */
const podSpec = z.object({
  name: z.string(),
  image: z.string(),
  args: z.string(),
  /** Process engine: the handler module that a worker is started for. */
  handler: z.string().nullable(),
  /** GB. */
  disk: z.int(),
  /** `<port>/<protocol>` each. */
  ports: z.array(z.string()),
  env: z.record(z.string(), z.string()),
  /** Id of a credential. */
  registry: z.string().nullable(),
  mounts: podMounts,
  gpu: gpuConfig.exactOptional(),
  cpu: cpuConfig.exactOptional(),
  cloud: podCloud,
  dataCenterId: z.string().nullable(),
  globalNetworking: z.boolean(),
  /** Id of the one that it was made from, and the version that was. */
  template: z.string().nullable(),
  templateVersion: z.int().nullable(),
  locked: z.boolean(),
});
export type PodSpec = z.infer<typeof podSpec>;

/** All times are Unix ms. */
export const podState = z.object({
  id: z.string(),
  userId: z.string(),
  /** Whose worker it is. */
  endpointId: z.string().nullable(),
  spec: podSpec,
  status: z.enum(POD_STATUSES),
  /** Where it is to arrive. */
  desired: z.enum(['running', 'stopped', 'gone']),
  /** Which container of it is the right one; a new one has a new disk. */
  generation: z.int().min(1),
  /** A stop was asked for and its container has not been seen ended: that end is not its own doing. */
  stopping: z.boolean(),
  /** Start time of the container's last run whose end has been dealt with, 0 where that is not known. */
  endedRun: z.number().nullable(),
  /** Of a worker whose engine has state volumes: which of its endpoint's it has. */
  stateSlot: z.int().min(0).exactOptional(),
  /** UUIDs of the GPUs that it holds. */
  gpus: z.array(z.string()),
  /** Unclean ends in a row. */
  failures: z.int().min(0),
  /** Not to be started before. */
  retryAt: z.number().nullable(),
  /** For people; null when there is nothing to say. */
  reason: z.string().nullable(),
  /** Its container and all that was its own have been removed: only the record is left. */
  removed: z.boolean(),
  createdAt: z.number(),
  /** When its container last started. */
  startedAt: z.number().nullable(),
  /** When it became EXITED, ERROR or TERMINATED. */
  endedAt: z.number().nullable(),
});
export type PodState = z.infer<typeof podState>;
