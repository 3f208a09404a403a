// The commands of what pods and workers are made of: templates, logins of image registries, and network volumes.
import { resolve } from 'node:path';
import { connectResources } from '../../client/resource-calls.ts';
import type { NetworkVolumeRecord } from '../../client.ts';
import {
  NETWORK_VOLUME_FIELDS,
  REGISTRY_FIELDS,
  TEMPLATE_FIELDS,
} from '../../wire/resources/fields.ts';
import type { CommandGroup, Verb } from '../command.ts';
import { type OptionValues, readNamedFile, text } from '../options.ts';
import {
  defineApiVerb,
  defineDeletion,
  defineResourceVerbs,
  formatItems,
  type ListKind,
} from './resource-command.ts';

const templateOptions = {
  handler: text({
    placeholder: 'PATH',
    help: "process engine: handler module of the workers, a path on the platform's machine; a relative path starts at the current folder",
  }),
};

/** The platform runs in another folder. */
function composeTemplate({ handler }: OptionValues<typeof templateOptions>) {
  return { handler: handler === undefined ? undefined : resolve(handler) };
}

const templateVerbs = defineResourceVerbs({
  name: 'templates',
  fields: TEMPLATE_FIELDS,
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    VERSION: ({ version }) => String(version),
    IMAGE: ({ image }) => image,
    HANDLER: ({ handler }) => handler ?? '-',
  },
  create: {
    options: templateOptions,
    compose: composeTemplate,
    examples: [
      'millrace templates create --name echo --image millrace-worker --handler /srv/echo.ts',
      'millrace templates create --file template.json',
    ],
  },
  update: {
    options: templateOptions,
    compose: composeTemplate,
    effect:
      'A change of anything except the name replaces the workers of all endpoints that use the template, new ones ' +
      'ready first. Pods made from the template stay as they are.',
    examples: ['millrace templates update tpl_01912f4e-… --env LEVEL=debug'],
  },
});

export const templatesCommands: CommandGroup = {
  name: 'millrace templates',
  description: [
    'A template describes the containers of pods and workers: image, arguments, environment, ports, disk.',
    'To a key without the scope endpoints:write, the value of each variable is "***".',
  ],
  verbs: {
    ...templateVerbs,
    delete: defineDeletion('templates', '; no endpoint may use it'),
  },
  examples: [
    'millrace templates create --name echo --image millrace-worker --handler /srv/echo.ts',
    'millrace templates update tpl_01912f4e-… --env LEVEL=debug',
  ],
};

const registryOptions = {
  secretFile: text({
    placeholder: 'FILE',
    help: 'file with the password or token; - reads it from standard input; a line break at its end does not count',
  }),
};

function composeRegistry({ secretFile }: OptionValues<typeof registryOptions>) {
  return { secret: readSecret(secretFile) };
}

const registryVerbs = defineResourceVerbs({
  name: 'registries',
  fields: REGISTRY_FIELDS,
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    SERVER: ({ server }) => server,
    USER: ({ username }) => username,
    DECLARED: ({ declared }) => (declared ? 'yes' : 'no'),
  },
  create: {
    options: registryOptions,
    compose: composeRegistry,
    examples: [
      'millrace registries create --name own --server ghcr.io --username ci --secret-file token',
    ],
  },
  update: {
    options: registryOptions,
    compose: composeRegistry,
    effect: 'The next pull uses the new login.',
    examples: ['millrace registries update own --secret-file token'],
  },
  flags: { secret: 'secretFile' },
});

export const registriesCommands: CommandGroup = {
  name: 'millrace registries',
  description: ['A registry is a login with which the engine pulls private images.'],
  verbs: {
    ...registryVerbs,
    delete: defineDeletion('registries', '; no pod or template may use it'),
  },
  examples: [
    'millrace registries create --name own --server ghcr.io --username ci --secret-file token',
    'millrace registries delete own',
  ],
};

/** Not an option's value, which other users of the machine can see. @throws UsageError */
function readSecret(path: string | undefined): string | undefined {
  return path && readNamedFile('--secret-file', path, 'stdin').replace(/\r?\n$/, '');
}

const volumeVerbs = defineResourceVerbs({
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
    ...volumeVerbs,
    uses: usesVerb,
    delete: defineDeletion('networkVolumes', ' with its content; no pod or endpoint may use it'),
  },
  examples: [
    'millrace network-volumes create --name models --size 200',
    'millrace network-volumes uses models',
    'millrace network-volumes delete models',
  ],
};
