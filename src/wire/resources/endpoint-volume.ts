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

/** As it is stored: defaults are left out, because earlier releases do not know the fields. */
export const storedVolume = z.strictObject({
  networkVolumeId: z.string().exactOptional(),
  networkVolumePath: z.string().exactOptional(),
});
export type StoredVolume = z.infer<typeof storedVolume>;

/** With `null` and the default path for what is left out. */
export function readVolume({
  networkVolumeId,
  networkVolumePath = DEFAULT_VOLUME_PATH,
}: StoredVolume): { networkVolumeId: string | null; networkVolumePath: string } {
  return { networkVolumeId: networkVolumeId ?? null, networkVolumePath };
}
