// The options of `millrace deploy` that name other resources: a network volume and a registry.
import type { Platform } from '../../client/platform-client.ts';
import { ApiError } from '../../client.ts';
import { CommandError } from '../command.ts';
import { type OptionValues, text, UsageError } from '../options.ts';

const NOT_FOUND = 404;

export const volumeOption = text({
  placeholder: 'NAME[:PATH]',
  help: 'network volume that the workers mount, by name or ID, and where; `none`: no volume. Default of PATH: as it was, else /runpod-volume',
});

export const registryOption = text({
  placeholder: 'NAME',
  help: 'Docker and Kubernetes: registry whose login pulls the image, by name or ID; `none`: no login',
});

/** Fields of the endpoint; undefined for what is not given. @throws UsageError */
export function readVolumeOption(given: string | undefined) {
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

/** Field of the template. */
export function readRegistryOption({
  registry,
}: OptionValues<{ registry: typeof registryOption }>) {
  return registry === NONE ? null : registry;
}

const NONE = 'none';

/** Replaces a name by its ID, so that it can be compared with the endpoint's. @throws CommandError if you have none */
export async function findVolumeId(platform: Platform, idOrName: string): Promise<string> {
  const found = await findOrNone(() => platform.networkVolumes.get(idOrName));
  if (found) return found.id;
  const remedy = `create it: millrace network-volumes create --name ${idOrName} --size GB`;
  throw new CommandError(`you have no network volume ${idOrName}; ${remedy}`);
}

/** Like `findVolumeId`. */
export async function findRegistryId(platform: Platform, idOrName: string): Promise<string> {
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
