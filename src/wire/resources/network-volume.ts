// Schemas of a network volume, storage that pods mount and that outlives them; its operations.
import { z } from 'zod';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes/routes.ts';
import { creationShape, updateShape } from './field-schemas.ts';
import { NETWORK_VOLUME_FIELDS } from './fields.ts';
import { POD_STATUSES } from './pod.ts';

/** Body of `POST /v1/network-volumes`. */
export const networkVolumeCreation = z.strictObject(creationShape(NETWORK_VOLUME_FIELDS));
export type NetworkVolumeCreation = z.infer<typeof networkVolumeCreation>;

/** Body of `PATCH /v1/network-volumes/{id}`; omitted members stay unchanged. */
export const networkVolumeUpdate = z.strictObject(updateShape(NETWORK_VOLUME_FIELDS));
export type NetworkVolumeUpdate = z.infer<typeof networkVolumeUpdate>;

/** What the platform stores of a volume. */
export const storedNetworkVolume = z.object({
  id: z.string(),
  name: z.string(),
  size: z.int().nullable().describe('GB; null: the operator has declared the volume without one'),
  dataCenterId: z.string().describe('Pods that mount the volume run in this data center'),
  declared: z
    .boolean()
    .describe("Whether the operator's catalog file declares it: then the API cannot change it"),
  createdAt: z.iso.datetime().nullable().describe('Null for a declared volume'),
});
export type StoredNetworkVolume = z.infer<typeof storedNetworkVolume>;

/** Endpoints and pods that a record lists. */
export const MAX_LISTED_USES = 100;

export const volumeUse = z.object({
  kind: z.enum(['endpoint', 'pod']),
  id: z.string(),
  name: z.string(),
  status: z.enum(POD_STATUSES).nullable().describe('Of a pod; null for an endpoint'),
  endpointId: z.string().nullable().describe('Of a worker: its endpoint; otherwise null'),
  path: z.string().describe('Where it mounts the volume'),
});
export type VolumeUse = z.infer<typeof volumeUse>;

export const networkVolumeRecord = storedNetworkVolume.extend({
  useCount: z
    .int()
    .describe(
      'How many endpoints and pods mount the volume, stopped pods included. While there are any, the volume cannot be deleted. Without the scope endpoints:read, only pods count',
    ),
  uses: z
    .array(volumeUse)
    .describe(
      `The first ${MAX_LISTED_USES} of them: endpoints, then other pods, then workers of endpoints`,
    ),
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
      description:
        'While a pod or an endpoint mounts it, the answer is 409 and names them. The record of the volume lists them.',
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
      useCount: 1,
      uses: [
        {
          kind: 'endpoint',
          id: 'ep_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d71',
          name: 'image',
          status: null,
          endpointId: null,
          path: '/runpod-volume',
        },
      ],
    },
    creation: { name: 'models', size: 200 },
    update: { size: 400 },
  },
});
