// Finds the endpoint of a deployment, or creates it with its template, and applies its settings.
import { isDeepStrictEqual } from 'node:util';
import type { Platform } from '../../client/platform-client.ts';
import { ApiError } from '../../client.ts';
import type { EndpointRecord } from '../../wire/resources/endpoint.ts';
import type { Fields } from '../../wire/resources/field.ts';
import { ENDPOINT_FIELDS, HIDDEN_VALUE, TEMPLATE_FIELDS } from '../../wire/resources/fields.ts';
import type { TemplateRecord } from '../../wire/resources/template.ts';
import { CommandError } from '../command.ts';
import { composeScaler, scalerOptions } from '../endpoints/endpoints.ts';
import { type OptionValues, text, UsageError } from '../options.ts';
import { fieldOptions, readFields } from '../resources/request-body.ts';

const NOT_FOUND = 404;

/** Value of an option for no volume, and for no login. */
const NONE = 'none';

const DEFAULT_IMAGE = 'millrace-worker';
/** Read by model processes. */
const PYTHON_VARIABLE = 'MILLRACE_PYTHON';
/** Number of endpoints that an error names. */
const NAMED_ENDPOINTS = 5;

const OWN_OPTIONS = new Set(['name', 'templateId', 'networkVolumeId', 'networkVolumePath']);
const endpointFields: Fields = Object.fromEntries(
  Object.entries(ENDPOINT_FIELDS).filter(([name]) => !OWN_OPTIONS.has(name)),
);
const { disk, env, image } = TEMPLATE_FIELDS;
const templateFields = {
  disk: { ...disk, help: "size of a worker's disk, GB" },
  env: { ...env, help: 'environment variable of the workers' },
  image: {
    ...image,
    help: `Docker and Kubernetes: image of the workers, with millrace; default: ${DEFAULT_IMAGE}`,
  },
} satisfies Fields;

const ownOptions = {
  python: text({
    placeholder: 'PATH',
    help: 'path of the Python on the worker that model processes run in place of python and python3',
  }),
  networkVolume: text({
    placeholder: 'NAME[:PATH]',
    help: 'network volume that the workers mount, by name or ID, and where; `none`: no volume. Default of PATH: as it was, else /runpod-volume',
  }),
  registry: text({
    placeholder: 'NAME',
    help: 'Docker and Kubernetes: registry whose login pulls the image, by name or ID; `none`: no login',
  }),
};

/** Settings of the endpoint and its template. */
export const targetOptions = {
  ...fieldOptions(endpointFields, 'deploy'),
  ...scalerOptions,
  ...fieldOptions(templateFields, 'deploy'),
  ...ownOptions,
};

interface TargetSettings {
  /** Only the variable of --python is given, and the others stay. */
  keepsEnv: boolean;
  endpoint: Readonly<Record<string, unknown>>;
  template: Readonly<Record<string, unknown>>;
}

/** Only fields that the options set. @throws UsageError */
export function readSettings(values: OptionValues<typeof targetOptions>): TargetSettings {
  const { networkVolume, python, registry } = values;
  const given = readFields(templateFields, values);
  const ofPython = python !== undefined && { [PYTHON_VARIABLE]: python };
  return {
    keepsEnv: python !== undefined && given['env'] === undefined,
    endpoint: keepGiven({
      ...readFields(endpointFields, values),
      scaler: composeScaler(values),
      ...readVolumeOption(networkVolume),
    }),
    template: keepGiven({
      ...given,
      ...(ofPython && { env: { ...Object(given['env']), ...ofPython } }),
      registry: registry === NONE ? null : registry,
    }),
  };
}

/** Fields of the endpoint; undefined for what is not given. @throws UsageError */
function readVolumeOption(given: string | undefined) {
  if (given === undefined) return {};
  if (given === NONE) return { networkVolumeId: null };
  const at = given.indexOf(':');
  if (at < 0) return { networkVolumeId: given };
  const [name, path] = [given.slice(0, at), given.slice(at + 1)];
  if (name !== '' && path.startsWith('/')) {
    return { networkVolumeId: name, networkVolumePath: path };
  }
  const example = 'write NAME:PATH with an absolute path, such as models:/data';
  throw new UsageError(`--network-volume: ${JSON.stringify(given)} is invalid; ${example}`);
}

function keepGiven(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

/** With IDs instead of the names of a network volume and a registry. @throws CommandError if one does not exist */
export async function resolveNames(
  platform: Platform,
  { endpoint, keepsEnv, template }: TargetSettings,
): Promise<TargetSettings> {
  const { networkVolumeId: volume } = endpoint;
  const { registry } = template;
  return {
    keepsEnv,
    endpoint: {
      ...endpoint,
      ...(typeof volume === 'string' && {
        networkVolumeId: await findVolumeId(platform, volume),
      }),
    },
    template: {
      ...template,
      ...(typeof registry === 'string' && { registry: await findRegistryId(platform, registry) }),
    },
  };
}

/** Replaces a name by its ID, so that it can be compared with the endpoint's. @throws CommandError if you have none */
async function findVolumeId(platform: Platform, idOrName: string): Promise<string> {
  const found = await findOrNone(() => platform.networkVolumes.get(idOrName));
  if (found) return found.id;
  const remedy = `create it: millrace network-volumes create --name ${idOrName} --size GB`;
  throw new CommandError(`you have no network volume ${idOrName}; ${remedy}`);
}

/** Like `findVolumeId`. */
async function findRegistryId(platform: Platform, idOrName: string): Promise<string> {
  const found = await findOrNone(() => platform.registries.get(idOrName));
  if (found) return found.id;
  throw new CommandError(
    `you have no registry ${idOrName}; \`millrace registries list\` shows yours`,
  );
}

async function findOrNone<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof ApiError && error.status === NOT_FOUND) return undefined;
    throw error;
  }
}

/** Undefined if you have no endpoint of this name or ID. */
export function findEndpoint(
  platform: Platform,
  name: string,
): Promise<EndpointRecord | undefined> {
  return findOrNone(() => platform.endpoints.get(name));
}

/** @throws CommandError if there is none */
export async function needEndpoint(platform: Platform, name: string): Promise<EndpointRecord> {
  const endpoint = await findEndpoint(platform, name);
  if (endpoint) return endpoint;
  throw new CommandError(`you have no endpoint ${name}; \`millrace deploy\` creates one`);
}

/** Creates the endpoint without a version, so that it has no workers yet. */
export async function createEndpoint(
  platform: Platform,
  name: string,
  settings: TargetSettings,
): Promise<EndpointRecord> {
  const template = await platform.templates.create({
    name,
    image: DEFAULT_IMAGE,
    ...settings.template,
  });
  try {
    const more = { templateId: template.id, source: 'VERSION' as const };
    return await platform.endpoints.create({ name, ...settings.endpoint, ...more });
  } catch (error) {
    // The first error says why; a template that stays does no harm.
    await platform.templates.delete(template.id).catch(() => {});
    throw error;
  }
}

/** Changes the settings that differ. Resolves with the endpoint and what has changed. */
export async function changeEndpoint(
  platform: Platform,
  endpoint: EndpointRecord,
  settings: TargetSettings,
): Promise<{ endpoint: EndpointRecord; changed: string[] }> {
  const { id, templateId } = endpoint;
  if (templateId === null) {
    throw new CommandError(
      `${id} has no workers of its own, because \`serve --endpoint\` declares it; choose another --name`,
    );
  }
  const changes = keepDifferent(settings.endpoint, endpoint);
  const changed = Object.keys(changes);
  if (Object.keys(settings.template).length > 0) {
    const found = await platform.templates.get(templateId);
    const env = settings.keepsEnv && { env: mergeEnv(found.env, settings.template['env']) };
    const ofTemplate = keepDifferent({ ...settings.template, ...env }, found);
    if (Object.keys(ofTemplate).length > 0) {
      await refuseShared(platform, {
        endpoint,
        template: found,
        changed: Object.keys(ofTemplate),
      });
      await platform.templates.update(templateId, ofTemplate);
      changed.push(...Object.keys(ofTemplate));
    }
  }
  if (Object.keys(changes).length === 0) return { endpoint, changed };
  return { endpoint: await platform.endpoints.update(id, changes), changed };
}

/** @throws CommandError if the answer hides a value that stays: it cannot be sent back */
function mergeEnv(found: TemplateRecord['env'], given: unknown): Record<string, string> {
  const env: Record<string, string> = { ...found, ...Object(given) };
  const hidden = Object.keys(env).filter((name) => env[name] === HIDDEN_VALUE);
  if (hidden.length === 0) return env;
  throw new CommandError(
    `--python keeps the other variables, but your key cannot read the values of ${hidden.join(', ')}: it lacks the scope ` +
      'endpoints:write, or the platform lacks the key that encrypted them. Give all variables with --env',
  );
}

interface TemplateChange {
  endpoint: EndpointRecord;
  template: TemplateRecord;
  changed: readonly string[];
}

/** A deployment of one endpoint replaces no workers of another. @throws CommandError */
async function refuseShared(
  platform: Platform,
  { changed, endpoint, template }: TemplateChange,
): Promise<void> {
  const others: string[] = [];
  for await (const { id, name, templateId } of platform.endpoints.list()) {
    if (templateId === template.id && id !== endpoint.id) others.push(name);
  }
  if (others.length === 0) return;
  const named = others.slice(0, NAMED_ENDPOINTS).join(', ');
  const more =
    others.length > NAMED_ENDPOINTS ? ` and ${others.length - NAMED_ENDPOINTS} more` : '';
  throw new CommandError(
    `template ${template.name} (${template.id}) also serves ${named}${more}, and ${changed.join(', ')} would change for all. ` +
      `Give ${endpoint.name} a template of its own with \`millrace endpoints update ${endpoint.id} --template ID\`, ` +
      `or change this one with \`millrace templates update ${template.id}\``,
  );
}

function keepDifferent(
  given: Readonly<Record<string, unknown>>,
  found: object,
): Record<string, unknown> {
  const all = Object.entries(given);
  return Object.fromEntries(
    all.filter(([name, value]) => !isDeepStrictEqual(value, Reflect.get(found, name))),
  );
}
