// Network volumes and registry logins of RunPod's REST API, before those of Millrace's own.
import { z } from 'zod';
import type { Registries } from '../../../control/registries/registries.ts';
import type { NetworkVolumeService } from '../../../control/volumes/network-volumes.ts';
import { creationShape, updateShape } from '../../../wire/resources/field-schemas.ts';
import { NETWORK_VOLUME_FIELDS, REGISTRY_FIELDS } from '../../../wire/resources/fields.ts';
import type { StoredNetworkVolume } from '../../../wire/resources/network-volume.ts';
import { RESOURCES } from '../../../wire/routes/routes.ts';
import { asRule, type ManagedResource } from './managed-resource.ts';

/** GB, as RunPod documents them. */
const VOLUME_SIZE = { min: 10, max: 4_096 };
const size = z.int().min(VOLUME_SIZE.min).max(VOLUME_SIZE.max);

const volumeCreation = z.strictObject({
  name: creationShape(NETWORK_VOLUME_FIELDS).name,
  size,
  dataCenter: z.string().min(1).max(200),
  type: z
    .literal('STANDARD', 'must be STANDARD: this platform has one kind of storage')
    .exactOptional(),
});
const volumeUpdate = z.strictObject({
  name: updateShape(NETWORK_VOLUME_FIELDS).name,
  size: size.exactOptional(),
});

export function manageVolumes(
  volumes: NetworkVolumeService,
): ManagedResource<typeof volumeCreation, typeof volumeUpdate> {
  return {
    outline: RESOURCES.networkVolumes,
    path: 'network-volumes',
    names: { dataCenterId: 'dataCenter' },
    creation: volumeCreation,
    update: {
      schema: volumeUpdate,
      apply: async ({ caller }, id, given) =>
        showVolume(await volumes.update(caller.userId, id, given)),
    },
    async list({ caller }, page) {
      const { next, records } = volumes.list({ ...page, userId: caller.userId });
      return { records: records.map(showVolume), next };
    },
    async create({ caller }, { dataCenter: dataCenterId, name, size }) {
      return showVolume(await volumes.create(caller.userId, { name, size, dataCenterId }));
    },
    get: async ({ caller }, id) => showVolume(volumes.get(caller.userId, id)),
    remove: ({ caller }, id) => volumes.remove(caller.userId, id),
  };
}

/** A size that the document does not allow is shown as the nearest one; a declared volume may have none. */
function showVolume({ dataCenterId, id, name, size }: StoredNetworkVolume) {
  const shown = Math.min(VOLUME_SIZE.max, Math.max(VOLUME_SIZE.min, size ?? VOLUME_SIZE.min));
  return { id, name, size: shown, dataCenter: dataCenterId, type: 'STANDARD' };
}

const { name, secret: password, username } = creationShape(REGISTRY_FIELDS);
const registryCreation = z.strictObject({ name, username, password });

/** RunPod's logins name no server. */
const SERVER = 'docker.io';

export function manageRegistries(
  registries: Registries,
): ManagedResource<typeof registryCreation, never> {
  const show = ({ id, name }: { id: string; name: string }) => ({ id, name });
  return {
    outline: RESOURCES.registries,
    path: 'registries',
    names: { secret: 'password' },
    creation: registryCreation,
    async list({ caller }, page) {
      const { next, records } = registries.list({ ...page, userId: caller.userId });
      return { records: records.map(show), next };
    },
    create: async ({ caller }, { name, password: secret, username }) =>
      show(await registries.create(caller.userId, { name, server: SERVER, username, secret })),
    get: async ({ caller }, id) => show(registries.get(caller.userId, id)),
    remove: ({ caller }, id) => asRule(registries.remove(caller.userId, id)),
  };
}
