// `millrace network-volumes`: manages storage that pods mount and that outlives them.

import { connectResources } from '../../client/resource-calls.ts';
import type { NetworkVolumeRecord } from '../../client.ts';
import type { CommandGroup, Verb } from '../command.ts';
import { integer, type OptionValues, text } from '../options.ts';
import { bodyFileOption, composeBody, mark } from './request-body.ts';
import {
  defineApiVerb,
  defineDeletion,
  defineResourceVerbs,
  formatItems,
  type ListKind,
  type ResourceCommandSpec,
} from './resource-command.ts';

const updateOptions = {
  name: text({ placeholder: 'NAME', help: 'display name' }),
  size: integer({ min: 1, max: 65_536, placeholder: 'GB', help: 'size in GB; it can only grow' }),
  file: bodyFileOption,
};

const createOptions = {
  ...updateOptions,
  name: mark(updateOptions.name, 'required, here or in --file'),
  size: mark(updateOptions.size, 'required, here or in --file'),
  dataCenter: text({
    placeholder: 'ID',
    help: 'data center, from `millrace catalog data-centers`; default: the default one',
  }),
};

const kind: ResourceCommandSpec<'networkVolumes', typeof createOptions, typeof updateOptions> = {
  name: 'networkVolumes',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    GB: ({ size }) => (size === null ? '-' : String(size)),
    'DATA CENTER': ({ dataCenterId }) => dataCenterId,
    USES: ({ useCount }) => String(useCount),
    DECLARED: ({ declared }) => (declared ? 'yes' : 'no'),
  },
  create: {
    options: createOptions,
    compose: ({ dataCenter, file, name, size }: OptionValues<typeof createOptions>) =>
      composeBody(file, { name, size, dataCenterId: dataCenter }),
    examples: ['millrace network-volumes create --name models --size 200'],
  },
  update: {
    options: updateOptions,
    compose: ({ file, name, size }: OptionValues<typeof updateOptions>) =>
      composeBody(file, { name, size }),
    effect: 'Running pods keep their mount.',
    examples: ['millrace network-volumes update models --size 400'],
  },
  fields: { dataCenterId: 'data-center' },
};

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
    ...defineResourceVerbs(kind),
    uses: usesVerb,
    delete: defineDeletion('networkVolumes', ' with its content; no pod or endpoint may use it'),
  },
  examples: [
    'millrace network-volumes create --name models --size 200',
    'millrace network-volumes uses models',
    'millrace network-volumes delete models',
  ],
};
