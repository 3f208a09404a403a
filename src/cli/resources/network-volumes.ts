// `millrace network-volumes`: manages storage that pods mount and that outlives them.
import type { CommandGroup } from '../command.ts';
import { integer, type OptionValues, text } from '../options.ts';
import { bodyFileOption, composeBody } from './body-file.ts';
import { mark } from './container-flags.ts';
import {
  defineDeletion,
  defineResourceVerbs,
  type ResourceCommandSpec,
} from './resource-command.ts';
import { volumeUses } from './volume-uses.ts';

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

export const networkVolumesCommands: CommandGroup = {
  name: 'millrace network-volumes',
  description: [
    'A network volume is storage that pods and workers of endpoints mount, and that outlives them.',
  ],
  verbs: {
    ...defineResourceVerbs(kind),
    uses: volumeUses,
    delete: defineDeletion('networkVolumes', ' with its content; no pod or endpoint may use it'),
  },
  examples: [
    'millrace network-volumes create --name models --size 200',
    'millrace network-volumes uses models',
    'millrace network-volumes delete models',
  ],
};
