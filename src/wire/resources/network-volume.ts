// Schemas of a network volume, storage that pods mount and that outlives them; its operations.
import { z } from 'zod';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes/routes.ts';
import { resourceName } from '../text.ts';

const sizeGb = z.int().min(1).max(65_536);

/** Body of `POST /v1/network-volumes`. */
export const networkVolumeCreation = z.strictObject({
  name: resourceName,
  size: sizeGb.describe('GB; whether the size is enforced depends on the engine'),
  dataCenterId: z
    .string()
    .min(1)
    .max(200)
    .nullable()
    .default(null)
    .describe('ID of a data center; null means the default one. Cannot be changed'),
});
export type NetworkVolumeCreation = z.infer<typeof networkVolumeCreation>;

/** Body of `PATCH /v1/network-volumes/{id}`; omitted members stay unchanged. */
export const networkVolumeUpdate = z.strictObject({
  name: resourceName.exactOptional(),
  size: sizeGb.exactOptional().describe('GB; can only grow'),
});
export type NetworkVolumeUpdate = z.infer<typeof networkVolumeUpdate>;

export const networkVolumeRecord = z.object({
  id: z.string(),
  name: z.string(),
  size: z.int().nullable().describe('GB; null: the operator has declared the volume without one'),
  dataCenterId: z.string().describe('Pods that mount the volume run in this data center'),
  declared: z
    .boolean()
    .describe("Whether the operator's catalog file declares it: then the API cannot change it"),
  createdAt: z.iso.datetime().nullable().describe('Null for a declared volume'),
});
export type NetworkVolumeRecord = z.infer<typeof networkVolumeRecord>;

export const networkVolumes = describeResource({
  outline: RESOURCES.networkVolumes,
  about: 'Network volumes: storage that pods mount and that outlives them.',
  record: networkVolumeRecord,
  creation: networkVolumeCreation,
  update: networkVolumeUpdate,
  texts: {
    create: { summary: 'Create a network volume' },
    update: { summary: 'Rename or grow a network volume; omitted fields keep their value' },
    delete: {
      summary: 'Delete a network volume with its content',
      description: 'While a pod has it mounted, the answer is 409 and names the pods.',
    },
  },
  examples: {
    record: {
      id: 'vol_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70',
      name: 'models',
      size: 200,
      dataCenterId: 'local',
      declared: false,
      createdAt: '2026-01-15T09:30:00.000Z',
    },
    creation: { name: 'models', size: 200 },
    update: { size: 400 },
  },
});
