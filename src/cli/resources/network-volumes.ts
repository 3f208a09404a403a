// `millrace network-volumes`: manages storage that pods mount and that outlives them.
import { connectResources } from '../../client/resource-calls.ts';
import type { NetworkVolumeRecord } from '../../client.ts';
import { NETWORK_VOLUME_FIELDS } from '../../wire/resources/fields.ts';
import type { CommandGroup, Verb } from '../command.ts';
import {
  defineApiVerb,
  defineDeletion,
  defineResourceVerbs,
  formatItems,
  type ListKind,
} from './resource-command.ts';

const verbs = defineResourceVerbs({
  name: 'networkVolumes',
  fields: NETWORK_VOLUME_FIELDS,
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    GB: ({ size }) => (size === null ? '-' : String(size)),
    'DATA CENTER': ({ dataCenterId }) => dataCenterId,
    USES: ({ useCount }) => String(useCount),
    DECLARED: ({ declared }) => (declared ? 'yes' : 'no'),
  },
  create: { examples: ['millrace network-volumes create --name models --size 200'] },
  update: {
    effect: 'Running pods keep their mount.',
    examples: ['millrace network-volumes update models --size 400'],
  },
});

const usesKind: ListKind<NetworkVolumeRecord['uses'][number]> = {
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

const usesVerb: Verb = defineApiVerb({
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
    return `${formatItems(uses, usesKind, width)}${more > 0 ? `\nand ${more} more` : ''}`;
  },
});

export const networkVolumesCommands: CommandGroup = {
  name: 'millrace network-volumes',
  description: [
    'A network volume is storage that pods and workers of endpoints mount, and that outlives them.',
  ],
  verbs: {
    ...verbs,
    uses: usesVerb,
    delete: defineDeletion('networkVolumes', ' with its content; no pod or endpoint may use it'),
  },
  examples: [
    'millrace network-volumes create --name models --size 200',
    'millrace network-volumes uses models',
    'millrace network-volumes delete models',
  ],
};
