// Fields of an endpoint for the network volume that its workers mount.
import { z } from 'zod';
import { mountPath } from './pod.ts';

/** Where RunPod mounts the volume of an endpoint, so that its images find their files. */
export const DEFAULT_VOLUME_PATH = '/runpod-volume';

export const volumeFields = {
  networkVolumeId: z
    .string()
    .min(1)
    .max(200)
    .nullable()
    .describe('ID or name of the network volume that all workers mount; null: none'),
  networkVolumePath: mountPath.describe(
    'Where workers mount it; on the process engine below the folder in which they start',
  ),
};
