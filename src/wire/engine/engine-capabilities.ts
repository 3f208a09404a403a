// Schema of what an engine can do for a pod, as the catalog shows it.
import { z } from 'zod';
import { kubernetesLimits } from './kubernetes.ts';

export const engineCapabilities = z.object({
  gpus: z
    .enum(['uuid', 'type'])
    .describe('`uuid`: the platform chooses the GPUs of a pod; `type`: the engine does'),
  gpusAtStart: z
    .boolean()
    .describe(
      'Whether a stopped pod starts again with any free GPUs of its type; otherwise it needs those of its first start',
    ),
  disk: z.object({
    keptOverStop: z
      .boolean()
      .describe(
        'Whether a stopped pod keeps its disk; otherwise only pods with a mount, and workers, can be stopped',
      ),
    limit: z
      .enum(['always', 'some', 'never'])
      .describe('Whether `disk` is a limit; `some`: if the storage of the machine can enforce it'),
  }),
  limits: z.object({
    memory: z.boolean().describe('Whether `cpu.memory` is enforced'),
    cpu: z.boolean().describe('Whether `cpu.vcpuCount` is enforced'),
    processes: z.boolean().describe('Whether the number of processes of a pod is limited'),
  }),
  globalNetworking: z.boolean().describe('Whether pods of one user can share a network'),
  ports: z.object({
    protocols: z.array(z.enum(['http', 'tcp', 'udp'])),
    reach: z
      .enum(['machine', 'cluster'])
      .describe('From where ports can be reached: the machine of the engine, or only its cluster'),
  }),
  mounts: z.object({
    persistent: z.boolean(),
    sizeLimit: z
      .enum(['always', 'some', 'never'])
      .describe(
        'Whether the size of a network volume or a persistent mount is a limit; `some`: if its storage can enforce it',
      ),
    network: z
      .array(z.enum(['folder', 'name']))
      .describe('What a declared network volume may be: a folder of the machine, or a name'),
  }),
  registries: z.boolean().describe('Whether images are pulled, with logins of registries'),
  healthChecks: z.boolean().describe("Whether the engine runs an image's health check"),
  kubernetes: kubernetesLimits
    .nullable()
    .default(null)
    .describe(
      'What `kubernetes` of pods and templates may contain; null: the engine is not Kubernetes',
    ),
});
export type EngineCapabilitiesRecord = z.infer<typeof engineCapabilities>;
