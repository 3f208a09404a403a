// Tells the engine that a network volume has grown. A failure only delays it: each container that mounts the volume is
// created with its size.
import type { Log } from '../../base/log.ts';
import type { NetworkVolumes } from '../../engine/engine.ts';

export interface VolumeGrowthOptions {
  /** Undefined: the engine has no network volumes. */
  volumes: NetworkVolumes | undefined;
  log: Log;
}

/** Never rejects. */
export async function growVolume(
  { log, volumes }: VolumeGrowthOptions,
  source: string,
  sizeGb: number,
): Promise<void> {
  try {
    await volumes?.grow?.(source, sizeGb);
  } catch (error) {
    const note = { source, sizeGb, err: error };
    log.warn(note, 'network volume could not grow yet; it grows with its next container');
  }
}
