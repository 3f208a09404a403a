// Says which network volume the workers of an endpoint mount, and whether they can.
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';
import type { PodMounts } from '../../wire/resources/pod.ts';
import type { NamedRecords } from '../name-index.ts';
import { type EngineTraits, findMountMisfit } from '../pods/engine-fit.ts';
import type { Catalog } from './catalog.ts';

export interface EndpointVolumes {
  names: NamedRecords;
  /** Why workers of this user's endpoint cannot mount the volume; undefined if they can. */
  findFault: (userId: string, volumeId: string) => string | undefined;
}

export interface EndpointVolumesOptions {
  names: NamedRecords;
  catalog: Pick<Catalog, 'volume'>;
  engine: EngineTraits;
}

export function describeVolumes(options: EndpointVolumesOptions): EndpointVolumes {
  const { catalog, engine, names } = options;
  return {
    names,
    findFault(userId, volumeId) {
      const volume = catalog.volume(userId, volumeId);
      if (!volume) return `network volume ${JSON.stringify(volumeId)} not found`;
      return findMountMisfit(volume.source, engine);
    },
  };
}

/** The mounts of a worker's pod. */
export function listMounts(
  deployment: Pick<EndpointDeployment, 'networkVolumeId' | 'networkVolumePath'>,
): PodMounts {
  const { networkVolumeId: volumeId, networkVolumePath: path } = deployment;
  return volumeId === null ? {} : { network: [{ volumeId, path }] };
}
