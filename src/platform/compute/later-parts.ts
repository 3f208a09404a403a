// Parts of the control plane that earlier ones ask, because they depend on each other: volumes, pods and endpoints.
// Until a part is open, the answers are those of a platform that has none of its records.

import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { PodUse } from '../../control/pods/pod-use.ts';
import type { Pods } from '../../control/pods/pods.ts';
import type { NetworkVolumeService } from '../../control/volumes/network-volumes.ts';

export class LaterParts {
  networkVolumes: NetworkVolumeService | undefined;
  /** Stays undefined without an engine. */
  pods: Pods | undefined;
  endpoints: Endpoints | undefined;

  listVolumes(): ReturnType<NetworkVolumeService['entries']> {
    return this.networkVolumes?.entries() ?? [];
  }

  /** Those that are being created included. */
  listPods(): readonly PodUse[] {
    return this.pods?.live.allAndComing() ?? [];
  }

  listEndpoints(): ReturnType<Endpoints['all']> {
    return this.endpoints?.all() ?? [];
  }

  nameOfEndpoint(id: string): string | undefined {
    return this.endpoints?.nameOf(id);
  }

  /** Returns its ID; undefined if the user has none with this ID or name. */
  findEndpoint(userId: string, idOrName: string): string | undefined {
    const id = this.endpoints?.resolve(userId, idOrName) ?? idOrName;
    return this.endpoints?.find(id)?.userId === userId ? id : undefined;
  }
}
