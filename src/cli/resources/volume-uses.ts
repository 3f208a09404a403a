// `millrace network-volumes uses`: lists the pods and endpoints that mount a volume, and so keep it from being deleted.

import { connectResources } from '../../client/resource-calls.ts';
import type { NetworkVolumeRecord } from '../../client.ts';
import type { Verb } from '../command.ts';
import { defineApiVerb } from './api-verb.ts';
import { formatItems, type ListKind } from './resource-command.ts';

const kind: ListKind<NetworkVolumeRecord['uses'][number]> = {
  plural: 'uses',
  columns: {
    KIND: (use) => use.kind,
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    STATUS: ({ status }) => status ?? '-',
    'WORKER OF': ({ endpointId }) => endpointId ?? '-',
    PATH: ({ path }) => path,
  },
};

export const volumeUses: Verb = defineApiVerb({
  summary: 'lists the pods and endpoints that mount one network volume',
  description: ['Lists endpoints only with a key that has the scope endpoints:read.'],
  id: 'network volume ID or name',
  options: {},
  examples: ['millrace network-volumes uses models'],
  async act({ caller, id, json, width }) {
    const volume = await connectResources(caller, 'networkVolumes').get(id);
    const { name, useCount, uses } = volume;
    if (json) return JSON.stringify({ useCount, uses });
    if (useCount === 0) return `nothing mounts ${name}`;
    const more = useCount - uses.length;
    return `${formatItems(uses, kind, width)}${more > 0 ? `\nand ${more} more` : ''}`;
  },
});
