// `millrace network-volumes uses`: lists the pods and endpoints that mount a volume, and so keep it from being deleted.
import { connectResources } from '../../client/resource-calls.ts';
import type { Verb } from '../command.ts';
import { defineApiVerb } from './api-verb.ts';
import { formatItems, type ListKind } from './resource-command.ts';

interface VolumeUse {
  kind: 'endpoint' | 'pod';
  id: string;
  name: string;
  /** Of a pod. */
  status: string | null;
  path: string;
}

const kind: ListKind<VolumeUse> = {
  plural: 'uses',
  columns: {
    KIND: (use) => use.kind,
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    STATUS: ({ status }) => status ?? '-',
    PATH: ({ path }) => path,
  },
};

export const volumeUses: Verb = defineApiVerb({
  summary: 'list the pods and endpoints that mount one network volume',
  description: ['Needs a key with the scopes pods:read and endpoints:read.'],
  id: 'network volume ID or name',
  options: {},
  examples: ['millrace network-volumes uses models'],
  async act({ caller, id: idOrName, json, width }) {
    const { id, name } = await connectResources(caller, 'networkVolumes').get(idOrName);
    const uses: VolumeUse[] = [];
    for await (const endpoint of connectResources(caller, 'endpoints').list()) {
      const { networkVolumeId, networkVolumePath: path } = endpoint;
      if (networkVolumeId !== id) continue;
      uses.push({ kind: 'endpoint', id: endpoint.id, name: endpoint.name, status: null, path });
    }
    for await (const pod of connectResources(caller, 'pods').list()) {
      const mount = pod.mounts.network?.find(({ volumeId }) => volumeId === id);
      if (!mount || pod.status === 'TERMINATED') continue;
      const { path } = mount;
      uses.push({ kind: 'pod', id: pod.id, name: pod.name, status: pod.status, path });
    }
    if (json) return JSON.stringify({ uses });
    return uses.length > 0 ? formatItems(uses, kind, width) : `nothing mounts ${name}`;
  },
});
